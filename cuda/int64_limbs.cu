// int64_limbs: 64-bit two's complement integers modulo 2^64 as two 32-bit words, low word x, high word y.
//
// Every shift amount stays below 32: a bit that would need 32 is moved in two steps.

typedef unsigned int u32;
typedef uint2 limbs;

static __device__ limbs i64_make(u32 low, u32 high) {
    return make_uint2(low, high);
}

// The word as a signed 32-bit integer, sign extended.
static __device__ limbs i64_from_i32(u32 word) {
    return i64_make(word, 0u - (word >> 31u));
}

static __device__ limbs i64_add(limbs a, limbs b) {
    const u32 low = a.x + b.x;
    u32 carry = 0u;
    if (low < a.x) {
        carry = 1u;
    }
    return i64_make(low, a.y + b.y + carry);
}

static __device__ limbs i64_neg(limbs a) {
    return i64_add(i64_make(~a.x, ~a.y), i64_make(1u, 0u));
}

// The full product of two unsigned words, by pieces of 16 bits; no sum below exceeds 2^32 - 1.
static __device__ limbs i64_mul_words(u32 a, u32 b) {
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
static __device__ limbs i64_mul_i32(u32 a, u32 b) {
    const limbs p = i64_mul_words(a, b);
    return i64_make(p.x, p.y - ((0u - (a >> 31u)) & b) - ((0u - (b >> 31u)) & a));
}

// The low 64 bits of the product: the same for signed and unsigned.
static __device__ limbs i64_mul(limbs a, limbs b) {
    const limbs p = i64_mul_words(a.x, b.x);
    return i64_make(p.x, p.y + a.x * b.y + a.y * b.x);
}

// a * 2^n, 0 <= n <= 63.
static __device__ limbs i64_shl(limbs a, u32 n) {
    if (n >= 32u) {
        return i64_make(0u, a.x << (n - 32u));
    }
    return i64_make(a.x << n, (a.y << n) | ((a.x >> 1u) >> (31u - n)));
}

// floor(a / 2^n), 0 <= n <= 63, a signed.
static __device__ limbs i64_shr(limbs a, u32 n) {
    const u32 fill = 0u - (a.y >> 31u);
    if (n >= 32u) {
        return i64_make((a.y >> (n - 32u)) | ((fill << 1u) << (63u - n)), fill);
    }
    return i64_make((a.x >> n) | ((a.y << 1u) << (31u - n)), (a.y >> n) | ((fill << 1u) << (31u - n)));
}

// floor((a + 2^(n-1)) / 2^n), 1 <= n <= 63: half up.
static __device__ limbs i64_round_shift(limbs a, u32 n) {
    return i64_shr(i64_add(a, i64_shl(i64_make(1u, 0u), n - 1u)), n);
}
