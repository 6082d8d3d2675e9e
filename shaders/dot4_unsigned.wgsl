// dot4_unsigned: products of packed signed bytes by the device's packed dot product of unsigned bytes, of the operands
// plus 128.

// sum plus the products of the four unsigned bytes of x and y.
fn add_unsigned(sum: u32, x: u32, y: u32) -> u32 {
    return sum + dot4U8Packed(x, y);
}

// sum plus the products of the four signed bytes of x and y: (p - 128)(q - 128) = p q - 128 (p + q) + 2^14, four times.
fn add_dot(sum: u32, x: u32, y: u32) -> u32 {
    let p = x ^ 0x80808080u;
    let q = y ^ 0x80808080u;
    let bytes = add_unsigned(add_unsigned(0u, p, 0x01010101u), q, 0x01010101u);
    return add_unsigned(sum, p, q) - (bytes << 7u) + 65536u;
}
