// nel_mix: y[t,c] = sum over keys j <= P - M + t of p[c/8,t,j] * v[j,c/16,c mod 8], i32[M,32]: operation 8 of
// nel-mini-w8a8 before Requant; the reference is cpu_ref/nel_mini_w8a8.py.
//
// p is i32[4,M,P], v i8[P,16]. A lane makes one output: group x is 2 rows of 32. Under the schedule tree a workgroup
// makes one output: group x is the row, group y the column, 64 lanes take turns at its terms. Under split_k group z is
// the part; entry point combine adds the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define WIDTH 32u
#define VALUES 16u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multiply(
    __global const u32 *params,  // M rows, P keys, terms in a part, tiles
    __global const u32 *p,
    __global const u32 *v,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    __local u32 sums[LANES];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 P = params[1];
    u32 row = (group.x << 1u) + (lane.x >> 5u);
    u32 column = lane.x & 31u;
    if (SCHEDULE == TREE) {
        row = group.x;
        column = group.y;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 count = P - M + row + 1u - KNOWN_BAD;
    const u32 first = first_term(SCHEDULE, group.z, params[2], count);
    const u32 end = end_of_terms(SCHEDULE, first, params[2], count);
    u32 steps = steps_of_terms(SCHEDULE, first, end, params[3]);
    if (row >= M) {
        steps = 0u;
    }
    const u32 p_row = ((column >> 3u) * M + row) * P;
    const u32 v_column = ((column >> 4u) << 3u) + (column & 7u);
    u32 sum = 0u;
    for (u32 step = 0u; step < steps; step++) {
        const u32 j = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (j < end) {
            const u32 v_at = j * VALUES + v_column;
            sum += p[p_row + j] * i8_of(v[v_at >> 2u], v_at);
        }
    }

    if (SCHEDULE == TREE) {
        sums[lane.x] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] += sums[lane.x + reach];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (lane.x > 0u) {
            return;
        }
        sum = sums[0];
    }
    if (row < M) {
        const u32 at = row * WIDTH + column;
        if (SCHEDULE == SPLIT_K) {
            scratch[group.z * M * WIDTH + at] = sum;
        } else {
            y[at] = sum;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *p,
    __global const u32 *v,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 outputs = params[0] * WIDTH;
    const u32 i = group.x * LANES + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < outputs) {
        u32 sum = 0u;
        for (u32 part = PARTS; part > 0u; part--) {
            sum += scratch[(part - 1u) * outputs + i];
        }
        y[i] = sum;
    }
}
