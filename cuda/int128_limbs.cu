// int128_limbs: 128-bit two's complement integers modulo 2^128 as four 32-bit words, lowest word x, highest word w.
//
// It follows int64_limbs and works on halves of 64 bits. Functions named u128_ and u64_ take their operands as unsigned.
// Loops have a fixed number of steps.

typedef uint4 wide;

static __device__ wide i128_make(limbs low, limbs high) {
    return make_uint4(low.x, low.y, high.x, high.y);
}

static __device__ limbs i128_low(wide a) {
    return i64_make(a.x, a.y);
}

static __device__ limbs i128_high(wide a) {
    return i64_make(a.z, a.w);
}

// The value as a signed 64-bit integer, sign extended.
static __device__ wide i128_from_i64(limbs a) {
    const u32 fill = 0u - (a.y >> 31u);
    return i128_make(a, i64_make(fill, fill));
}

static __device__ wide i128_add(wide a, wide b) {
    const limbs low = i64_add(i128_low(a), i128_low(b));
    const u32 carry = u64_less(low, i128_low(a));
    return i128_make(low, i64_add(i64_add(i128_high(a), i128_high(b)), i64_make(carry, 0u)));
}

static __device__ wide i128_neg(wide a) {
    const wide flipped = i128_make(i64_make(~a.x, ~a.y), i64_make(~a.z, ~a.w));
    return i128_add(flipped, i128_make(i64_make(1u, 0u), i64_make(0u, 0u)));
}

static __device__ wide i128_sub(wide a, wide b) {
    return i128_add(a, i128_neg(b));
}

// The full product of two unsigned 64-bit integers, from its four products of words.
static __device__ wide u64_mul_wide(limbs a, limbs b) {
    const limbs cross = i64_mul_words(a.x, b.y);
    const limbs other = i64_mul_words(a.y, b.x);
    const wide ends = i128_make(i64_mul_words(a.x, b.x), i64_mul_words(a.y, b.y));
    const wide sum = i128_add(ends, i128_make(i64_make(0u, cross.x), i64_make(cross.y, 0u)));
    return i128_add(sum, i128_make(i64_make(0u, other.x), i64_make(other.y, 0u)));
}

// The low 128 bits of the product: the same for signed and unsigned.
static __device__ wide i128_mul(wide a, wide b) {
    const wide low = u64_mul_wide(i128_low(a), i128_low(b));
    const limbs cross = i64_mul(i128_low(a), i128_high(b));
    const limbs other = i64_mul(i128_high(a), i128_low(b));
    return i128_make(i128_low(low), i64_add(i128_high(low), i64_add(cross, other)));
}

// a * 2^n, 0 <= n <= 127.
static __device__ wide i128_shl(wide a, u32 n) {
    if (n >= 64u) {
        return i128_make(i64_make(0u, 0u), i64_shl(i128_low(a), n - 64u));
    }
    const limbs carried = u64_shr(u64_shr(i128_low(a), 1u), 63u - n);
    return i128_make(i64_shl(i128_low(a), n), i64_add(i64_shl(i128_high(a), n), carried));
}

// floor(a / 2^n), 0 <= n <= 127, a unsigned.
static __device__ wide u128_shr(wide a, u32 n) {
    if (n >= 64u) {
        return i128_make(u64_shr(i128_high(a), n - 64u), i64_make(0u, 0u));
    }
    const limbs carried = i64_shl(i64_shl(i128_high(a), 1u), 63u - n);
    return i128_make(i64_add(u64_shr(i128_low(a), n), carried), u64_shr(i128_high(a), n));
}

// floor(a / 2^n), 0 <= n <= 127, a signed.
static __device__ wide i128_shr(wide a, u32 n) {
    if (n >= 64u) {
        return i128_from_i64(i64_shr(i128_high(a), n - 64u));
    }
    const limbs carried = i64_shl(i64_shl(i128_high(a), 1u), 63u - n);
    return i128_make(i64_add(u64_shr(i128_low(a), n), carried), i64_shr(i128_high(a), n));
}

// 1 where a < b, else 0, both unsigned.
static __device__ u32 u128_less(wide a, wide b) {
    if (a.z == b.z && a.w == b.w) {
        return u64_less(i128_low(a), i128_low(b));
    }
    return u64_less(i128_high(a), i128_high(b));
}

// 1 where a < b, else 0, both signed.
static __device__ u32 i128_less(wide a, wide b) {
    const wide top = i128_make(i64_make(0u, 0u), i64_make(0u, 0x80000000u));
    return u128_less(i128_add(a, top), i128_add(b, top));
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 127: exact for every a, for nothing is added to it.
static __device__ wide i128_round_shift(wide a, u32 n) {
    const u32 up = u128_shr(a, n - 1u).x & 1u;
    return i128_add(i128_shr(a, n), i128_make(i64_make(up, 0u), i64_make(0u, 0u)));
}

// a / 2^n to the nearest integer, ties away from zero, 1 <= n <= 127: exact for every a.
static __device__ wide i128_round_away(wide a, u32 n) {
    wide magnitude = a;
    if (a.w >= 0x80000000u) {
        magnitude = i128_neg(a);
    }
    const u32 up = u128_shr(magnitude, n - 1u).x & 1u;
    const wide rounded = i128_add(u128_shr(magnitude, n), i128_make(i64_make(up, 0u), i64_make(0u, 0u)));
    if (a.w >= 0x80000000u) {
        return i128_neg(rounded);
    }
    return rounded;
}

// floor(a / b), both unsigned, digit by digit: as the dividend leaves at the top, the quotient comes in below it. All ones
// for b = 0.
static __device__ wide u128_div(wide a, wide b) {
    const wide one = i128_make(i64_make(1u, 0u), i64_make(0u, 0u));
    wide quotient = a;
    wide rest = i128_make(i64_make(0u, 0u), i64_make(0u, 0u));
    for (u32 step = 0u; step < 128u; step++) {
        rest = i128_add(i128_shl(rest, 1u), u128_shr(quotient, 127u));
        quotient = i128_shl(quotient, 1u);
        if (u128_less(rest, b) == 0u) {
            rest = i128_sub(rest, b);
            quotient = i128_add(quotient, one);
        }
    }
    return quotient;
}

// The largest integer whose square is at most an unsigned a, bit by bit from the top: 64 steps.
static __device__ limbs u128_isqrt(wide a) {
    limbs root = i64_make(0u, 0u);
    for (u32 step = 0u; step < 64u; step++) {
        const limbs candidate = i64_add(root, i64_shl(i64_make(1u, 0u), 63u - step));
        if (u128_less(a, u64_mul_wide(candidate, candidate)) == 0u) {
            root = candidate;
        }
    }
    return root;
}
