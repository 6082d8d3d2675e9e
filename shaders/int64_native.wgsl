// int64_native: the functions of int64_limbs by native 64-bit integers, on the same two words, low word x, high word y.
//
// A kernel that follows int64_limbs may follow this instead, its text unchanged; i64_mul_i32 alone is left out, for none
// that does so calls it. Functions named u64_ and u32_ take their operands as unsigned. Loops have a fixed number of
// steps. Every shift amount stays below the width of what is shifted.

alias limbs = vec2<u32>;

fn i64_make(low: u32, high: u32) -> limbs {
    return limbs(low, high);
}

fn u64_of(a: limbs) -> u64 {
    return (u64(a.y) << 32u) | u64(a.x);
}

fn limbs_of(a: u64) -> limbs {
    return i64_make(u32(a), u32(a >> 32u));
}

// The word as a signed 32-bit integer, sign extended.
fn i64_from_i32(word: u32) -> limbs {
    return limbs_of((u64(word) ^ 0x80000000lu) - 0x80000000lu);
}

fn i64_add(a: limbs, b: limbs) -> limbs {
    return limbs_of(u64_of(a) + u64_of(b));
}

fn i64_neg(a: limbs) -> limbs {
    return limbs_of(0lu - u64_of(a));
}

fn i64_sub(a: limbs, b: limbs) -> limbs {
    return limbs_of(u64_of(a) - u64_of(b));
}

// The full product of two unsigned words.
fn i64_mul_words(a: u32, b: u32) -> limbs {
    return limbs_of(u64(a) * u64(b));
}

// The low 64 bits of the product: the same for signed and unsigned.
fn i64_mul(a: limbs, b: limbs) -> limbs {
    return limbs_of(u64_of(a) * u64_of(b));
}

// a * 2^n, 0 <= n <= 63.
fn i64_shl(a: limbs, n: u32) -> limbs {
    return limbs_of(u64_of(a) << n);
}

// floor(a / 2^n), 0 <= n <= 63, a signed.
fn i64_shr(a: limbs, n: u32) -> limbs {
    return limbs_of(u64(i64(u64_of(a)) >> n));
}

// floor(a / 2^n), 0 <= n <= 63, a unsigned.
fn u64_shr(a: limbs, n: u32) -> limbs {
    return limbs_of(u64_of(a) >> n);
}

// 1 where a < b, else 0, both unsigned.
fn u64_less(a: limbs, b: limbs) -> u32 {
    var less = 0u;
    if (u64_of(a) < u64_of(b)) {
        less = 1u;
    }
    return less;
}

// 1 where a < b, else 0, both signed.
fn i64_less(a: limbs, b: limbs) -> u32 {
    var less = 0u;
    if (i64(u64_of(a)) < i64(u64_of(b))) {
        less = 1u;
    }
    return less;
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 63: exact for every a, for nothing is added to it.
fn i64_round_shift(a: limbs, n: u32) -> limbs {
    let value: u64 = u64_of(a);
    return limbs_of(u64(i64(value) >> n) + ((value >> (n - 1u)) & 1lu));
}

// a / 2^n to the nearest integer, ties away from zero, 1 <= n <= 63: exact for every a.
fn i64_round_away(a: limbs, n: u32) -> limbs {
    let value: u64 = u64_of(a);
    var magnitude: u64 = value;
    if ((value >> 63u) > 0lu) {
        magnitude = 0lu - value;
    }
    let rounded: u64 = (magnitude >> n) + ((magnitude >> (n - 1u)) & 1lu);
    if ((value >> 63u) > 0lu) {
        return limbs_of(0lu - rounded);
    }
    return limbs_of(rounded);
}

// floor(a / b) of unsigned words, digit by digit: as the dividend leaves at the top, the quotient comes in below it. What
// is left is part of the dividend, so it never leaves the word. All ones for b = 0.
fn u32_div(a: u32, b: u32) -> u32 {
    var quotient = a;
    var rest = 0u;
    for (var step = 0u; step < 32u; step++) {
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
fn u64_div(a: limbs, b: limbs) -> limbs {
    let divisor: u64 = u64_of(b);
    var quotient: u64 = u64_of(a);
    var rest: u64 = 0lu;
    for (var step = 0u; step < 64u; step++) {
        rest = (rest << 1u) | (quotient >> 63u);
        quotient = quotient << 1u;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1lu;
        }
    }
    return limbs_of(quotient);
}

// The largest integer whose square is at most a, bit by bit from the top: 16 steps.
fn u32_isqrt(a: u32) -> u32 {
    var root = 0u;
    for (var bit = 0x8000u; bit > 0u; bit >>= 1u) {
        let candidate = root | bit;
        if (candidate * candidate <= a) {
            root = candidate;
        }
    }
    return root;
}

// The same of an unsigned a of 64 bits: 32 steps.
fn u64_isqrt(a: limbs) -> u32 {
    let value: u64 = u64_of(a);
    var root = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        let candidate = root | bit;
        if (u64(candidate) * u64(candidate) <= value) {
            root = candidate;
        }
    }
    return root;
}
