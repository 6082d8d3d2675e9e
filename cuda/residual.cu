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

extern "C" __global__ void add(
    const u32 *params,  // M rows, N columns, first row of the band
    const u32 *x,
    const u32 *y,
    u32 *z,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
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
