// nel_residual: y = sat8(a + b) of i8 a and b: operation 10 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// Group x is 64 elements.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define ELEMENTS 64u

extern "C" __global__ void add_residual(
    const u32 *params,  // number of elements
    const u32 *a,
    const u32 *b,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        y[i] = sat8(i8_of(a[i >> 2u], i) + i8_of(b[i >> 2u], i)) ^ KNOWN_BAD;
    }
}
