// nel_act: y = sat8(round_shift(silu[gate & 255] * up, 8)) of i8 gate and up: operation 9 of nel-mini-w8a8; the
// reference is cpu_ref/nel_mini_w8a8.py.
//
// The index is the two's-complement byte of gate. Group x is 64 elements.

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
#define SHIFT 8u

extern "C" __global__ void activate(
    const u32 *params,  // number of elements
    const u32 *gate,
    const u32 *up,
    const u32 *silu,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        const u32 byte = i8_of(gate[i >> 2u], i) & 255u;
        const u32 product = i8_of(silu[byte >> 2u], byte) * i8_of(up[i >> 2u], i);
        y[i] = sat8(i32_round_shift(product, SHIFT)) ^ KNOWN_BAD;
    }
}
