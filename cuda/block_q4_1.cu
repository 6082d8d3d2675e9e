// block_q4_1: 32 weights in 20 bytes: fp16 scale, fp16 min, 16 bytes of two quants 0 .. 15 each.
// Byte j of the 16 holds quant j in its low nibble and quant j + 16 in its high one.

#define BLOCK_BYTES 20u
#define HAS_MIN 1u

// Where in the block the byte of quant i stands.
static __device__ unsigned int quant_at(unsigned int i) {
    return 4u + (i & 15u);
}

// Quant i as a signed 32-bit integer, out of its byte.
static __device__ unsigned int quant_of(unsigned int byte, unsigned int i) {
    return (byte >> ((i >> 4u) << 2u)) & 15u;
}
