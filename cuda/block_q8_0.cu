// block_q8_0: 32 weights in 34 bytes: fp16 scale, 32 int8.

#define BLOCK_BYTES 34u
#define HAS_MIN 0u

// Where in the block the byte of quant i stands.
static __device__ unsigned int quant_at(unsigned int i) {
    return 2u + i;
}

// Quant i as a signed 32-bit integer, out of its byte.
static __device__ unsigned int quant_of(unsigned int byte, unsigned int i) {
    return (byte ^ 128u) - 128u;
}
