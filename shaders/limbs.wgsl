// limbs: r[f,i] = function f of the preludes int64_limbs and int128_limbs applied to a[i], b[i] and shift[i], residues of
// its width; the reference is cpu_ref/limbs.py.
//
// a and b are 128-bit integers of four words, lowest first; a function of 64 or 32 bits takes their lowest words. It takes
// shift[i] modulo its width, to round by at least 1. A result is four words, zero where the function has none. Group x is
// 64 elements, group y the function.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;

const I64_ADD: u32 = 0u;
const I64_SUB: u32 = 1u;
const I64_NEG: u32 = 2u;
const I64_MUL_WORDS: u32 = 3u;
const I64_MUL: u32 = 4u;
const I64_SHL: u32 = 5u;
const I64_SHR: u32 = 6u;
const U64_SHR: u32 = 7u;
const I64_LESS: u32 = 8u;
const U64_LESS: u32 = 9u;
const I64_ROUND_SHIFT: u32 = 10u;
const I64_ROUND_AWAY: u32 = 11u;
const U64_DIV: u32 = 12u;
const U64_ISQRT: u32 = 13u;
const U32_DIV: u32 = 14u;
const U32_ISQRT: u32 = 15u;
const I128_ADD: u32 = 16u;
const I128_SUB: u32 = 17u;
const I128_NEG: u32 = 18u;
const U64_MUL_WIDE: u32 = 19u;
const I128_MUL: u32 = 20u;
const I128_SHL: u32 = 21u;
const I128_SHR: u32 = 22u;
const U128_SHR: u32 = 23u;
const I128_LESS: u32 = 24u;
const U128_LESS: u32 = 25u;
const I128_ROUND_SHIFT: u32 = 26u;
const I128_ROUND_AWAY: u32 = 27u;
const U128_DIV: u32 = 28u;
const U128_ISQRT: u32 = 29u;

fn at_least_1(n: u32) -> u32 {
    var k = n;
    if (n == 0u) {
        k = 1u;
    }
    return k;
}

// number of elements
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> shift: array<u32>;
@group(0) @binding(4) var<storage, read_write> r: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn apply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let N = params[0];
    let i = group.x * LANES + lane.x;
    let f = group.y;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (i >= N) {
        return;
    }

    let at = i << 2u;
    let p: limbs = i64_make(a[at], a[at + 1u]);
    let q: limbs = i64_make(b[at], b[at + 1u]);
    let wide_p: wide = i128_make(p, i64_make(a[at + 2u], a[at + 3u]));
    let wide_q: wide = i128_make(q, i64_make(b[at + 2u], b[at + 3u]));
    let n = shift[i];

    // Functions of at most 64 bits make the low half, the others the whole.
    var low: limbs = i64_make(0u, 0u);
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
    var result: wide = i128_make(low, i64_make(0u, 0u));
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

    let out = (f * N + i) << 2u;
    r[out] = result.x ^ KNOWN_BAD;
    r[out + 1u] = result.y;
    r[out + 2u] = result.z;
    r[out + 3u] = result.w;
}
