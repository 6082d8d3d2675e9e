// dot4_signed: products of packed signed bytes by the device's packed dot product of signed bytes.

typedef unsigned int u32;

// sum plus the products of the four signed bytes of x and y.
static __device__ u32 add_dot(u32 sum, u32 x, u32 y) {
    return (u32)__dp4a((int)x, (int)y, (int)sum);
}
