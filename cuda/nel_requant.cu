// nel_requant: y = sat8(round_shift(acc, k)) of each acc i32: operation 3 of nel-mini-w8a8; the reference is
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

extern "C" __global__ void requantize(
    const u32 *params,  // number of elements, k
    const u32 *acc,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        y[i] = sat8(i32_round_shift(acc[i], params[1])) ^ KNOWN_BAD;
    }
}
