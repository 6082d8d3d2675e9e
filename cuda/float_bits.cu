// float_bits: a float32 as the word that holds it, and back. Only the control takes it.

typedef unsigned int u32;
typedef float f32;

static __device__ f32 f32_of(u32 word) {
    return __uint_as_float(word);
}

static __device__ u32 word_of(f32 value) {
    return __float_as_uint(value);
}
