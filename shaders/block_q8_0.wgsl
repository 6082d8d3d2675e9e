// block_q8_0: 32 weights in 34 bytes: fp16 scale, 32 int8.

const BLOCK_BYTES: u32 = 34u;
const HAS_MIN: u32 = 0u;

// Where in the block the byte of quant i stands.
fn quant_at(i: u32) -> u32 {
    return 2u + i;
}

// Quant i as a signed 32-bit integer, out of its byte.
fn quant_of(byte: u32, i: u32) -> u32 {
    return (byte ^ 128u) - 128u;
}
