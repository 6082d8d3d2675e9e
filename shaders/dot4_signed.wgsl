// dot4_signed: products of packed signed bytes by the device's packed dot product of signed bytes.

// sum plus the products of the four signed bytes of x and y.
fn add_dot(sum: u32, x: u32, y: u32) -> u32 {
    return sum + bitcast<u32>(dot4I8Packed(x, y));
}
