// int64_limbs: 64-bit two's complement integers modulo 2^64 as two 32-bit words, low word x, high word y.
//
// Functions named u64_ and u32_ take their operands as unsigned. Loops have a fixed number of steps.
// Every shift amount stays below 32: a bit that would need 32 is moved in two steps.

typedef uint u32;
typedef uint2 limbs;

static limbs i64_make(u32 low, u32 high) {
    return (uint2)(low, high);
}

// The word as a signed 32-bit integer, sign extended.
static limbs i64_from_i32(u32 word) {
    return i64_make(word, 0u - (word >> 31u));
}

static limbs i64_add(limbs a, limbs b) {
    const u32 low = a.x + b.x;
    u32 carry = 0u;
    if (low < a.x) {
        carry = 1u;
    }
    return i64_make(low, a.y + b.y + carry);
}

static limbs i64_neg(limbs a) {
    return i64_add(i64_make(~a.x, ~a.y), i64_make(1u, 0u));
}

static limbs i64_sub(limbs a, limbs b) {
    return i64_add(a, i64_neg(b));
}

// The full product of two unsigned words, by pieces of 16 bits; no sum below exceeds 2^32 - 1.
static limbs i64_mul_words(u32 a, u32 b) {
    const u32 a_low = a & 0xffffu;
    const u32 a_high = a >> 16u;
    const u32 b_low = b & 0xffffu;
    const u32 b_high = b >> 16u;
    const u32 low = a_low * b_low;
    const u32 middle = a_high * b_low + (low >> 16u);
    const u32 cross = a_low * b_high + (middle & 0xffffu);
    return i64_make((cross << 16u) | (low & 0xffffu), a_high * b_high + (middle >> 16u) + (cross >> 16u));
}

// The full product of two words as signed 32-bit integers: a negative one takes 2^32 times the other off.
static limbs i64_mul_i32(u32 a, u32 b) {
    const limbs p = i64_mul_words(a, b);
    return i64_make(p.x, p.y - ((0u - (a >> 31u)) & b) - ((0u - (b >> 31u)) & a));
}

// The low 64 bits of the product: the same for signed and unsigned.
static limbs i64_mul(limbs a, limbs b) {
    const limbs p = i64_mul_words(a.x, b.x);
    return i64_make(p.x, p.y + a.x * b.y + a.y * b.x);
}

// a * 2^n, 0 <= n <= 63.
static limbs i64_shl(limbs a, u32 n) {
    if (n >= 32u) {
        return i64_make(0u, a.x << (n - 32u));
    }
    return i64_make(a.x << n, (a.y << n) | ((a.x >> 1u) >> (31u - n)));
}

// floor(a / 2^n), 0 <= n <= 63, a signed.
static limbs i64_shr(limbs a, u32 n) {
    const u32 fill = 0u - (a.y >> 31u);
    if (n >= 32u) {
        return i64_make((a.y >> (n - 32u)) | ((fill << 1u) << (63u - n)), fill);
    }
    return i64_make((a.x >> n) | ((a.y << 1u) << (31u - n)), (a.y >> n) | ((fill << 1u) << (31u - n)));
}

// floor(a / 2^n), 0 <= n <= 63, a unsigned.
static limbs u64_shr(limbs a, u32 n) {
    if (n >= 32u) {
        return i64_make(a.y >> (n - 32u), 0u);
    }
    return i64_make((a.x >> n) | ((a.y << 1u) << (31u - n)), a.y >> n);
}

// 1 where a < b, else 0, both unsigned.
static u32 u64_less(limbs a, limbs b) {
    u32 less = 0u;
    if (a.y < b.y || (a.y == b.y && a.x < b.x)) {
        less = 1u;
    }
    return less;
}

// 1 where a < b, else 0, both signed.
static u32 i64_less(limbs a, limbs b) {
    return u64_less(i64_make(a.x, a.y ^ 0x80000000u), i64_make(b.x, b.y ^ 0x80000000u));
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 63: exact for every a, for nothing is added to it.
static limbs i64_round_shift(limbs a, u32 n) {
    return i64_add(i64_shr(a, n), i64_make(u64_shr(a, n - 1u).x & 1u, 0u));
}

// a / 2^n to the nearest integer, ties away from zero, 1 <= n <= 63: exact for every a.
static limbs i64_round_away(limbs a, u32 n) {
    limbs magnitude = a;
    if (a.y >= 0x80000000u) {
        magnitude = i64_neg(a);
    }
    const limbs rounded = i64_add(u64_shr(magnitude, n), i64_make(u64_shr(magnitude, n - 1u).x & 1u, 0u));
    if (a.y >= 0x80000000u) {
        return i64_neg(rounded);
    }
    return rounded;
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
    limbs quotient = a;
    limbs rest = i64_make(0u, 0u);
    for (u32 step = 0u; step < 64u; step++) {
        rest = i64_make((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
        quotient = i64_shl(quotient, 1u);
        if (u64_less(rest, b) == 0u) {
            rest = i64_sub(rest, b);
            quotient = i64_make(quotient.x | 1u, quotient.y);
        }
    }
    return quotient;
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
    u32 root = 0u;
    for (u32 bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        const u32 candidate = root | bit;
        if (u64_less(a, i64_mul_words(candidate, candidate)) == 0u) {
            root = candidate;
        }
    }
    return root;
}
