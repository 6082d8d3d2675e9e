// block_q4_0: 32 weights in 18 bytes: fp16 scale, 16 bytes of two quants 0 .. 15 each, less 8.
// Byte j of the 16 holds quant j in its low nibble and quant j + 16 in its high one.

const BLOCK_BYTES: u32 = 18u;
const HAS_MIN: u32 = 0u;

// Where in the block the byte of quant i stands.
fn quant_at(i: u32) -> u32 {
    return 2u + (i & 15u);
}

// Quant i as a signed 32-bit integer, out of its byte.
fn quant_of(byte: u32, i: u32) -> u32 {
    return ((byte >> ((i >> 4u) << 2u)) & 15u) - 8u;
}
