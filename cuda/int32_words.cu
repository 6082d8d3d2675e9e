// int32_words: signed integers of 8, 16 and 32 bits as 32-bit words in two's complement.
//
// It follows int64_limbs, which names the type of a word.

// Byte i of a tensor, sign extended, out of the word that holds it.
static __device__ u32 i8_of(u32 word, u32 i) {
    return (((word >> ((i & 3u) << 3u)) & 255u) ^ 128u) - 128u;
}

// Half-word i of a tensor, sign extended, out of the word that holds it.
static __device__ u32 i16_of(u32 word, u32 i) {
    return (((word >> ((i & 1u) << 4u)) & 0xffffu) ^ 0x8000u) - 0x8000u;
}

// 1 where a < b, else 0, both signed.
static __device__ u32 i32_less(u32 a, u32 b) {
    u32 less = 0u;
    if ((a ^ 0x80000000u) < (b ^ 0x80000000u)) {
        less = 1u;
    }
    return less;
}

// floor(a / 2^n), 0 <= n <= 31, a signed.
static __device__ u32 i32_shr(u32 a, u32 n) {
    const u32 fill = 0u - (a >> 31u);
    return (a >> n) | ((fill << 1u) << (31u - n));
}

// a / 2^n to the nearest integer, ties toward +infinity, 1 <= n <= 31: exact for every a.
static __device__ u32 i32_round_shift(u32 a, u32 n) {
    return i32_shr(a, n) + ((a >> (n - 1u)) & 1u);
}

// a where it is -128 to 127, else the nearer end.
static __device__ u32 sat8(u32 a) {
    u32 clipped = a;
    if (i32_less(a, 0u - 128u) == 1u) {
        clipped = 0u - 128u;
    }
    if (i32_less(127u, a) == 1u) {
        clipped = 127u;
    }
    return clipped;
}
