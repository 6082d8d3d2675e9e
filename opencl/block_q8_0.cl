// block_q8_0: 32 weights in 34 bytes: fp16 scale, 32 int8.

#define BLOCK_BYTES 34u
#define HAS_MIN 0u

// Where in the block the byte of quant i stands.
static uint quant_at(uint i) {
    return 2u + i;
}

// Quant i as a signed 32-bit integer, out of its byte.
static uint quant_of(uint byte, uint i) {
    return (byte ^ 128u) - 128u;
}
