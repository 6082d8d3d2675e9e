// int64_limbs: 64-bit two's complement integers modulo 2^64 as two 32-bit words, low word x, high word y.
//
// Functions named u64_ and u32_ take their operands as unsigned. Loops have a fixed number of steps.
// Every shift amount stays below 32: a bit that would need 32 is moved in two steps.

alias limbs = vec2<u32>;

fn i64_make(low: u32, high: u32) -> limbs {
    return limbs(low, high);
}

// The word as a signed 32-bit integer, sign extended.
fn i64_from_i32(word: u32) -> limbs {
    return i64_make(word, 0u - (word >> 31u));
}

fn i64_add(a: limbs, b: limbs) -> limbs {
    let low = a.x + b.x;
    var carry = 0u;
    if (low < a.x) {
        carry = 1u;
    }
    return i64_make(low, a.y + b.y + carry);
}

fn i64_neg(a: limbs) -> limbs {
    return i64_add(i64_make(~a.x, ~a.y), i64_make(1u, 0u));
}

fn i64_sub(a: limbs, b: limbs) -> limbs {
    return i64_add(a, i64_neg(b));
}

// The full product of two unsigned words, by pieces of 16 bits; no sum below exceeds 2^32 - 1.
fn i64_mul_words(a: u32, b: u32) -> limbs {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let low = a_low * b_low;
    let middle = a_high * b_low + (low >> 16u);
    let cross = a_low * b_high + (middle & 0xffffu);
    return i64_make((cross << 16u) | (low & 0xffffu), a_high * b_high + (middle >> 16u) + (cross >> 16u));
}

// The full product of two words as signed 32-bit integers: a negative one takes 2^32 times the other off.
fn i64_mul_i32(a: u32, b: u32) -> limbs {
    let p: limbs = i64_mul_words(a, b);
    return i64_make(p.x, p.y - ((0u - (a >> 31u)) & b) - ((0u - (b >> 31u)) & a));
}

// The low 64 bits of the product: the same for signed and unsigned.
fn i64_mul(a: limbs, b: limbs) -> limbs {
    let p: limbs = i64_mul_words(a.x, b.x);
    return i64_make(p.x, p.y + a.x * b.y + a.y * b.x);
}

// a * 2^n, 0 <= n <= 63.
fn i64_shl(a: limbs, n: u32) -> limbs {
    if (n >= 32u) {
        return i64_make(0u, a.x << (n - 32u));
    }
    return i64_make(a.x << n, (a.y << n) | ((a.x >> 1u) >> (31u - n)));
}

// floor(a / 2^n), 0 <= n <= 63, a signed.
fn i64_shr(a: limbs, n: u32) -> limbs {
    let fill = 0u - (a.y >> 31u);
    if (n >= 32u) {
        return i64_make((a.y >> (n - 32u)) | ((fill << 1u) << (63u - n)), fill);
    }
    return i64_make((a.x >> n) | ((a.y << 1u) << (31u - n)), (a.y >> n) | ((fill << 1u) << (31u - n)));
}

// floor(a / 2^n), 0 <= n <= 63, a unsigned.
fn u64_shr(a: limbs, n: u32) -> limbs {
    if (n >= 32u) {
        return i64_make(a.y >> (n - 32u), 0u);
    }
    return i64_make((a.x >> n) | ((a.y << 1u) << (31u - n)), a.y >> n);
}

// 1 where a < b, else 0, both unsigned.
fn u64_less(a: limbs, b: limbs) -> u32 {
    var less = 0u;
    if (a.y < b.y || (a.y == b.y && a.x < b.x)) {
        less = 1u;
    }
    return less;
}

// 1 where a < b, else 0, both signed.
fn i64_less(a: limbs, b: limbs) -> u32 {
    return u64_less(i64_make(a.x, a.y ^ 0x80000000u), i64_make(b.x, b.y ^ 0x80000000u));
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 63: exact for every a, for nothing is added to it.
fn i64_round_shift(a: limbs, n: u32) -> limbs {
    return i64_add(i64_shr(a, n), i64_make(u64_shr(a, n - 1u).x & 1u, 0u));
}

// a / 2^n to the nearest integer, ties away from zero, 1 <= n <= 63: exact for every a.
fn i64_round_away(a: limbs, n: u32) -> limbs {
    var magnitude: limbs = a;
    if (a.y >= 0x80000000u) {
        magnitude = i64_neg(a);
    }
    let rounded: limbs = i64_add(u64_shr(magnitude, n), i64_make(u64_shr(magnitude, n - 1u).x & 1u, 0u));
    if (a.y >= 0x80000000u) {
        return i64_neg(rounded);
    }
    return rounded;
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
    var quotient: limbs = a;
    var rest: limbs = i64_make(0u, 0u);
    for (var step = 0u; step < 64u; step++) {
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
    var root = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        let candidate = root | bit;
        if (u64_less(a, i64_mul_words(candidate, candidate)) == 0u) {
            root = candidate;
        }
    }
    return root;
}
