// block_q4_0: 32 weights in 18 bytes: fp16 scale, 16 bytes of two quants 0 .. 15 each, less 8.
// Byte j of the 16 holds quant j in its low nibble and quant j + 16 in its high one.

#define BLOCK_BYTES 18u
#define HAS_MIN 0u

// Where in the block the byte of quant i stands.
static uint quant_at(uint i) {
    return 2u + (i & 15u);
}

// Quant i as a signed 32-bit integer, out of its byte.
static uint quant_of(uint byte, uint i) {
    return ((byte >> ((i >> 4u) << 2u)) & 15u) - 8u;
}
