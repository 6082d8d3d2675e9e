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

typedef unsigned int u32;

extern "C" __global__ void probe(
    const u32 *params,  // n
    const u32 *x0,
    const u32 *x1,
    const u32 *x2,
    const u32 *x3,
    const u32 *x4,
    const u32 *x5,
    const u32 *x6,
    const u32 *x7,
    const u32 *x8,
    const u32 *x9,
    const u32 *x10,
    const u32 *x11,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
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
