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

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void add_residual(
    __global const u32 *params,  // number of elements
    __global const u32 *a,
    __global const u32 *b,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        y[i] = sat8(i8_of(a[i >> 2u], i) + i8_of(b[i >> 2u], i)) ^ KNOWN_BAD;
    }
}
