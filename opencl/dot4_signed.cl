// dot4_signed: products of packed signed bytes by the device's packed dot product of signed bytes.

typedef uint u32;

// sum plus the products of the four signed bytes of x and y.
static u32 add_dot(u32 sum, u32 x, u32 y) {
    return sum + (u32)dot_4x8packed_ss_int(x, y);
}
