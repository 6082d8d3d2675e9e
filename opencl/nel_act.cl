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

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void activate(
    __global const u32 *params,  // number of elements
    __global const u32 *gate,
    __global const u32 *up,
    __global const u32 *silu,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
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
