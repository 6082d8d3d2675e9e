// int64_native: the functions of int64_limbs by native 64-bit integers, on the same two words, low word x, high word y.
//
// A kernel that follows int64_limbs may follow this instead, its text unchanged; i64_mul_i32 alone is left out, for none
// that does so calls it. Functions named u64_ and u32_ take their operands as unsigned. Loops have a fixed number of
// steps. Every shift amount stays below the width of what is shifted.

typedef uint u32;
typedef ulong u64;
typedef long i64;
typedef uint2 limbs;

static limbs i64_make(u32 low, u32 high) {
    return (uint2)(low, high);
}

static u64 u64_of(limbs a) {
    return ((u64)a.y << 32u) | (u64)a.x;
}

static limbs limbs_of(u64 a) {
    return i64_make((u32)a, (u32)(a >> 32u));
}

// The word as a signed 32-bit integer, sign extended.
static limbs i64_from_i32(u32 word) {
    return limbs_of(((u64)word ^ 0x80000000ul) - 0x80000000ul);
}

static limbs i64_add(limbs a, limbs b) {
    return limbs_of(u64_of(a) + u64_of(b));
}

static limbs i64_neg(limbs a) {
    return limbs_of(0ul - u64_of(a));
}

static limbs i64_sub(limbs a, limbs b) {
    return limbs_of(u64_of(a) - u64_of(b));
}

// The full product of two unsigned words.
static limbs i64_mul_words(u32 a, u32 b) {
    return limbs_of((u64)a * (u64)b);
}

// The low 64 bits of the product: the same for signed and unsigned.
static limbs i64_mul(limbs a, limbs b) {
    return limbs_of(u64_of(a) * u64_of(b));
}

// a * 2^n, 0 <= n <= 63.
static limbs i64_shl(limbs a, u32 n) {
    return limbs_of(u64_of(a) << n);
}

// floor(a / 2^n), 0 <= n <= 63, a signed.
static limbs i64_shr(limbs a, u32 n) {
    return limbs_of((u64)((i64)u64_of(a) >> n));
}

// floor(a / 2^n), 0 <= n <= 63, a unsigned.
static limbs u64_shr(limbs a, u32 n) {
    return limbs_of(u64_of(a) >> n);
}

// 1 where a < b, else 0, both unsigned.
static u32 u64_less(limbs a, limbs b) {
    u32 less = 0u;
    if (u64_of(a) < u64_of(b)) {
        less = 1u;
    }
    return less;
}

// 1 where a < b, else 0, both signed.
static u32 i64_less(limbs a, limbs b) {
    u32 less = 0u;
    if ((i64)u64_of(a) < (i64)u64_of(b)) {
        less = 1u;
    }
    return less;
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 63: exact for every a, for nothing is added to it.
static limbs i64_round_shift(limbs a, u32 n) {
    const u64 value = u64_of(a);
    return limbs_of((u64)((i64)value >> n) + ((value >> (n - 1u)) & 1ul));
}

// a / 2^n to the nearest integer, ties away from zero, 1 <= n <= 63: exact for every a.
static limbs i64_round_away(limbs a, u32 n) {
    const u64 value = u64_of(a);
    u64 magnitude = value;
    if ((value >> 63u) > 0ul) {
        magnitude = 0ul - value;
    }
    const u64 rounded = (magnitude >> n) + ((magnitude >> (n - 1u)) & 1ul);
    if ((value >> 63u) > 0ul) {
        return limbs_of(0ul - rounded);
    }
    return limbs_of(rounded);
}

// floor(a / b) of unsigned words, digit by digit: as the dividend leaves at the top, the quotient comes in below it. What
// is left is part of the dividend, so it never leaves the word. All ones for b = 0.
static u32 u32_div(u32 a, u32 b) {
    u32 quotient = a;
    u32 rest = 0u;
    for (u32 step = 0u; step < 32u; step++) {
        rest = (rest << 1u) | (quotient >> 31u);
        quotient = quotient << 1u;
        if (rest >= b) {
            rest -= b;
            quotient |= 1u;
        }
    }
    return quotient;
}

// floor(a / b), both unsigned, as above.
static limbs u64_div(limbs a, limbs b) {
    const u64 divisor = u64_of(b);
    u64 quotient = u64_of(a);
    u64 rest = 0ul;
    for (u32 step = 0u; step < 64u; step++) {
        rest = (rest << 1u) | (quotient >> 63u);
        quotient = quotient << 1u;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1ul;
        }
    }
    return limbs_of(quotient);
}

// The largest integer whose square is at most a, bit by bit from the top: 16 steps.
static u32 u32_isqrt(u32 a) {
    u32 root = 0u;
    for (u32 bit = 0x8000u; bit > 0u; bit >>= 1u) {
        const u32 candidate = root | bit;
        if (candidate * candidate <= a) {
            root = candidate;
        }
    }
    return root;
}

// The same of an unsigned a of 64 bits: 32 steps.
static u32 u64_isqrt(limbs a) {
    const u64 value = u64_of(a);
    u32 root = 0u;
    for (u32 bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        const u32 candidate = root | bit;
        if ((u64)candidate * (u64)candidate <= value) {
            root = candidate;
        }
    }
    return root;
}
