// int32_words: signed integers of 8, 16 and 32 bits as 32-bit words in two's complement.
//
// It follows int64_limbs, which names the type of a word.

// Byte i of a tensor, sign extended, out of the word that holds it.
fn i8_of(word: u32, i: u32) -> u32 {
    return (((word >> ((i & 3u) << 3u)) & 255u) ^ 128u) - 128u;
}

// Half-word i of a tensor, sign extended, out of the word that holds it.
fn i16_of(word: u32, i: u32) -> u32 {
    return (((word >> ((i & 1u) << 4u)) & 0xffffu) ^ 0x8000u) - 0x8000u;
}

// 1 where a < b, else 0, both signed.
fn i32_less(a: u32, b: u32) -> u32 {
    var less = 0u;
    if ((a ^ 0x80000000u) < (b ^ 0x80000000u)) {
        less = 1u;
    }
    return less;
}

// floor(a / 2^n), 0 <= n <= 31, a signed.
fn i32_shr(a: u32, n: u32) -> u32 {
    let fill = 0u - (a >> 31u);
    return (a >> n) | ((fill << 1u) << (31u - n));
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 31: exact for every a.
fn i32_round_shift(a: u32, n: u32) -> u32 {
    return i32_shr(a, n) + ((a >> (n - 1u)) & 1u);
}

// a where it is -128 to 127, else the nearer end.
fn sat8(a: u32) -> u32 {
    var clipped = a;
    if (i32_less(a, 0u - 128u) == 1u) {
        clipped = 0u - 128u;
    }
    if (i32_less(127u, a) == 1u) {
        clipped = 127u;
    }
    return clipped;
}
