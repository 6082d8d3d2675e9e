// rope: y[t,h,:] = x[t,h,:], each pair (a, b) made round_shift(a * c - b * s, 30) and round_shift(a * s + b * c, 30), x and
// y Q16 in 64 bits, c and s Q30 in 32: op 4 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// A pair is elements (2i, 2i + 1) where pairing is 0, (i, i + hd / 2) where it is 1. Integers are pairs of words by the
// prelude int64_limbs. A lane turns one pair: group x is 32 pairs of a head, group y the token, group z the head.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 32u

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void turn(
    __global const u32 *params,  // T tokens, H heads, head width, pairing, first token of the band
    __global const u32 *x,
    __global const u32 *c,
    __global const u32 *s,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 H = params[1];
    const u32 width = params[2];
    const u32 pairs = width >> 1u;
    const u32 token = params[4] + group.y;
    const u32 pair = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (pair < pairs) {
        u32 first = pair << 1u;
        u32 apart = 1u;
        if (params[3] == 1u) {
            first = pair;
            apart = pairs;
        }
        const u32 at = ((token * H + group.z) * width + first) << 1u;
        const u32 other = at + (apart << 1u);
        const limbs a = i64_make(x[at], x[at + 1u]);
        const limbs b = i64_make(x[other], x[other + 1u]);
        const limbs cosine = i64_from_i32(c[token * pairs + pair]);
        const limbs sine = i64_from_i32(s[token * pairs + pair]);
        limbs p = i64_mul(a, cosine);
        limbs q = i64_mul(a, sine);
        if (KNOWN_BAD == 0u) {
            p = i64_sub(p, i64_mul(b, sine));
            q = i64_add(q, i64_mul(b, cosine));
        }
        p = i64_round_shift(p, 30u);
        q = i64_round_shift(q, 30u);
        y[at] = p.x;
        y[at + 1u] = p.y;
        y[other] = q.x;
        y[other + 1u] = q.y;
    }
}
