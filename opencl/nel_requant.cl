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

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void requantize(
    __global const u32 *params,  // number of elements, k
    __global const u32 *acc,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        y[i] = sat8(i32_round_shift(acc[i], params[1])) ^ KNOWN_BAD;
    }
}
