// dot4_unsigned: products of packed signed bytes by the device's packed dot product of unsigned bytes, of the operands
// plus 128.

typedef unsigned int u32;

// sum plus the products of the four unsigned bytes of x and y.
static __device__ u32 add_unsigned(u32 sum, u32 x, u32 y) {
    return __dp4a(x, y, sum);
}

// sum plus the products of the four signed bytes of x and y: (p - 128)(q - 128) = p q - 128 (p + q) + 2^14, four times.
static __device__ u32 add_dot(u32 sum, u32 x, u32 y) {
    const u32 p = x ^ 0x80808080u;
    const u32 q = y ^ 0x80808080u;
    const u32 bytes = add_unsigned(add_unsigned(0u, p, 0x01010101u), q, 0x01010101u);
    return add_unsigned(sum, p, q) - (bytes << 7u) + 65536u;
}
