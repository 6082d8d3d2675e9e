// nel_rope: y = the heads of x, i8[M,N], rotated, row t at position start + t: operation 5 of nel-mini-w8a8; the
// reference is cpu_ref/nel_mini_w8a8.py.
//
// A head is 8 columns, i and i + 4 are a pair; cosines and sines are i16, 4 a position. Group x is 64 columns, group y
// the row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define COLUMNS 64u
#define HALF 4u
#define SHIFT 15u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void turn_heads(
    __global const u32 *params,  // columns, start
    __global const u32 *x,
    __global const u32 *cosines,
    __global const u32 *sines,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 N = params[0];
    const u32 row = group.y;
    const u32 column = group.x * COLUMNS + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column >= N) {
        return;
    }
    const u32 second = column & HALF;
    const u32 at = row * N + column - second;
    const u32 a = i8_of(x[at >> 2u], at);
    const u32 b = i8_of(x[(at + HALF) >> 2u], at + HALF) * (1u - KNOWN_BAD);
    const u32 angle = (params[1] + row) * HALF + (column & 3u);
    const u32 c = i16_of(cosines[angle >> 1u], angle);
    const u32 s = i16_of(sines[angle >> 1u], angle);
    u32 sum = a * c - b * s;
    if (second > 0u) {
        sum = a * s + b * c;
    }
    y[row * N + column] = sat8(i32_round_shift(sum, SHIFT));
}
