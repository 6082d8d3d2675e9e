// float_bits: a float32 as the word that holds it, and back. Only the control takes it.

typedef uint u32;
typedef float f32;

static f32 f32_of(u32 word) {
    return as_float(word);
}

static u32 word_of(f32 value) {
    return as_uint(value);
}
