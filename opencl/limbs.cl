// limbs: r[f,i] = function f of the preludes int64_limbs and int128_limbs applied to a[i], b[i] and shift[i], residues of
// its width; the reference is cpu_ref/limbs.py.
//
// a and b are 128-bit integers of four words, lowest first; a function of 64 or 32 bits takes their lowest words. It takes
// shift[i] modulo its width, to round by at least 1. A result is four words, zero where the function has none. Group x is
// 64 elements, group y the function.

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

#define I64_ADD 0u
#define I64_SUB 1u
#define I64_NEG 2u
#define I64_MUL_WORDS 3u
#define I64_MUL 4u
#define I64_SHL 5u
#define I64_SHR 6u
#define U64_SHR 7u
#define I64_LESS 8u
#define U64_LESS 9u
#define I64_ROUND_SHIFT 10u
#define I64_ROUND_AWAY 11u
#define U64_DIV 12u
#define U64_ISQRT 13u
#define U32_DIV 14u
#define U32_ISQRT 15u
#define I128_ADD 16u
#define I128_SUB 17u
#define I128_NEG 18u
#define U64_MUL_WIDE 19u
#define I128_MUL 20u
#define I128_SHL 21u
#define I128_SHR 22u
#define U128_SHR 23u
#define I128_LESS 24u
#define U128_LESS 25u
#define I128_ROUND_SHIFT 26u
#define I128_ROUND_AWAY 27u
#define U128_DIV 28u
#define U128_ISQRT 29u

static u32 at_least_1(u32 n) {
    u32 k = n;
    if (n == 0u) {
        k = 1u;
    }
    return k;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void apply(
    __global const u32 *params,  // number of elements
    __global const u32 *a,
    __global const u32 *b,
    __global const u32 *shift,
    __global u32 *r,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 N = params[0];
    const u32 i = group.x * LANES + lane.x;
    const u32 f = group.y;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (i >= N) {
        return;
    }

    const u32 at = i << 2u;
    const limbs p = i64_make(a[at], a[at + 1u]);
    const limbs q = i64_make(b[at], b[at + 1u]);
    const wide wide_p = i128_make(p, i64_make(a[at + 2u], a[at + 3u]));
    const wide wide_q = i128_make(q, i64_make(b[at + 2u], b[at + 3u]));
    const u32 n = shift[i];

    // Functions of at most 64 bits make the low half, the others the whole.
    limbs low = i64_make(0u, 0u);
    if (f == I64_ADD) {
        low = i64_add(p, q);
    }
    if (f == I64_SUB) {
        low = i64_sub(p, q);
    }
    if (f == I64_NEG) {
        low = i64_neg(p);
    }
    if (f == I64_MUL_WORDS) {
        low = i64_mul_words(p.x, q.x);
    }
    if (f == I64_MUL) {
        low = i64_mul(p, q);
    }
    if (f == I64_SHL) {
        low = i64_shl(p, n & 63u);
    }
    if (f == I64_SHR) {
        low = i64_shr(p, n & 63u);
    }
    if (f == U64_SHR) {
        low = u64_shr(p, n & 63u);
    }
    if (f == I64_LESS) {
        low = i64_make(i64_less(p, q), 0u);
    }
    if (f == U64_LESS) {
        low = i64_make(u64_less(p, q), 0u);
    }
    if (f == I64_ROUND_SHIFT) {
        low = i64_round_shift(p, at_least_1(n & 63u));
    }
    if (f == I64_ROUND_AWAY) {
        low = i64_round_away(p, at_least_1(n & 63u));
    }
    if (f == U64_DIV) {
        low = u64_div(p, q);
    }
    if (f == U64_ISQRT) {
        low = i64_make(u64_isqrt(p), 0u);
    }
    if (f == U32_DIV) {
        low = i64_make(u32_div(p.x, q.x), 0u);
    }
    if (f == U32_ISQRT) {
        low = i64_make(u32_isqrt(p.x), 0u);
    }
    wide result = i128_make(low, i64_make(0u, 0u));
    if (f == I128_ADD) {
        result = i128_add(wide_p, wide_q);
    }
    if (f == I128_SUB) {
        result = i128_sub(wide_p, wide_q);
    }
    if (f == I128_NEG) {
        result = i128_neg(wide_p);
    }
    if (f == U64_MUL_WIDE) {
        result = u64_mul_wide(p, q);
    }
    if (f == I128_MUL) {
        result = i128_mul(wide_p, wide_q);
    }
    if (f == I128_SHL) {
        result = i128_shl(wide_p, n & 127u);
    }
    if (f == I128_SHR) {
        result = i128_shr(wide_p, n & 127u);
    }
    if (f == U128_SHR) {
        result = u128_shr(wide_p, n & 127u);
    }
    if (f == I128_LESS) {
        result = i128_make(i64_make(i128_less(wide_p, wide_q), 0u), i64_make(0u, 0u));
    }
    if (f == U128_LESS) {
        result = i128_make(i64_make(u128_less(wide_p, wide_q), 0u), i64_make(0u, 0u));
    }
    if (f == I128_ROUND_SHIFT) {
        result = i128_round_shift(wide_p, at_least_1(n & 127u));
    }
    if (f == I128_ROUND_AWAY) {
        result = i128_round_away(wide_p, at_least_1(n & 127u));
    }
    if (f == U128_DIV) {
        result = u128_div(wide_p, wide_q);
    }
    if (f == U128_ISQRT) {
        result = i128_make(u128_isqrt(wide_p), i64_make(0u, 0u));
    }

    const u32 out = (f * N + i) << 2u;
    r[out] = result.x ^ KNOWN_BAD;
    r[out + 1u] = result.y;
    r[out + 2u] = result.z;
    r[out + 3u] = result.w;
}
