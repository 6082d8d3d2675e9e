// probe_arguments: y[i] = sum over j of 31^(11 - j) * xj[i] modulo 2^32, a kernel of fifteen arguments;
// the reference is cpu_ref/probe_memory.py.
//
// WebGPU promises eight buffers to a kernel; many devices take more.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

typedef uint u32;

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe(
    __global const u32 *params,  // n
    __global const u32 *x0,
    __global const u32 *x1,
    __global const u32 *x2,
    __global const u32 *x3,
    __global const u32 *x4,
    __global const u32 *x5,
    __global const u32 *x6,
    __global const u32 *x7,
    __global const u32 *x8,
    __global const u32 *x9,
    __global const u32 *x10,
    __global const u32 *x11,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        u32 sum = KNOWN_BAD;
        sum = sum * 31u + x0[i];
        sum = sum * 31u + x1[i];
        sum = sum * 31u + x2[i];
        sum = sum * 31u + x3[i];
        sum = sum * 31u + x4[i];
        sum = sum * 31u + x5[i];
        sum = sum * 31u + x6[i];
        sum = sum * 31u + x7[i];
        sum = sum * 31u + x8[i];
        sum = sum * 31u + x9[i];
        sum = sum * 31u + x10[i];
        sum = sum * 31u + x11[i];
        y[i] = sum;
    }
}
