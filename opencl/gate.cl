// gate: h[m,n] = round_shift(silu(gate[m,n]) * up[m,n], 16), all Q16 in 64 bits: ops 8 and 9 of profile dyadic-q16; the
// reference is cpu_ref/dyadic_q16.py.
//
// g is the table G, Q30 in 32 bits: the sigmoid at every 2^5 of magnitude, linear between two entries, 1 from 16 on.
// Integers are pairs of words by the prelude int64_limbs. A lane makes one output: group x is 64 columns, group y the
// row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 64u
#define SILU_END 0x100000u
#define ONE 0x40000000u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void activate(
    __global const u32 *params,  // M rows, N columns, first row of the band
    __global const u32 *gate,
    __global const u32 *up,
    __global const u32 *g,
    __global u32 *h,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 N = params[1];
    const u32 row = params[2] + group.y;
    const u32 column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        const u32 at = (row * N + column) << 1u;
        const limbs x = i64_make(gate[at], gate[at + 1u]);
        limbs magnitude = x;
        if (x.y >= 0x80000000u) {
            magnitude = i64_neg(x);
        }
        u32 s = ONE;
        if (magnitude.y == 0u && magnitude.x < SILU_END) {
            const u32 i = magnitude.x >> 5u;
            // The table rises by less than 2^18 from entry to entry.
            s = g[i] + (((g[i + 1u] - g[i]) * (magnitude.x & 31u) + 16u) >> 5u);
        }
        if (x.y >= 0x80000000u) {
            s = ONE - s;
        }
        limbs product = i64_round_shift(i64_mul(x, i64_make(s, 0u)), 30u);
        if (KNOWN_BAD == 0u) {
            product = i64_mul(product, i64_make(up[at], up[at + 1u]));
        }
        const limbs result = i64_round_shift(product, 16u);
        h[at] = result.x;
        h[at + 1u] = result.y;
    }
}
