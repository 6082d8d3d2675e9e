// residual: z[m,n] = x[m,n] + y[m,n], Q16 in 64 bits: op 10 of profile dyadic-q16; the reference is
// cpu_ref/dyadic_q16.py.
//
// Integers are pairs of words by the prelude int64_limbs. A lane makes one output: group x is 64 columns, group y the
// row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 64u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void add(
    __global const u32 *params,  // M rows, N columns, first row of the band
    __global const u32 *x,
    __global const u32 *y,
    __global u32 *z,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 N = params[1];
    const u32 row = params[2] + group.y;
    const u32 column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        const u32 at = (row * N + column) << 1u;
        limbs sum = i64_make(x[at], x[at + 1u]);
        if (KNOWN_BAD == 0u) {
            sum = i64_add(sum, i64_make(y[at], y[at + 1u]));
        }
        z[at] = sum.x;
        z[at + 1u] = sum.y;
    }
}
