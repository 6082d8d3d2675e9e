// nel_rmsnorm: y = sat8(round_shift(x * inv * gain, 31)) of i8[M,32], inv = floor(2^30 / isqrt(floor(sum of x^2 / 32) +
// 1)) of its row: operation 4 of nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// A lane makes a row; under the schedule tree a workgroup does, 64 lanes take turns at its squares. Under split_k group
// y is the part; entry point combine adds the parts.

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
#define SHIFT 31u

static u32 inverse(u32 squares) {
    return u32_div(1u << 30u, u32_isqrt((squares >> 5u) + 1u));
}

static u32 normalized(u32 x, u32 inv, u32 gain) {
    const limbs product = i64_mul(i64_mul(i64_from_i32(x), i64_make(inv, 0u)), i64_from_i32(gain));
    return sat8(i64_round_shift(product, SHIFT).x);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void scale_rows(
    __global const u32 *params,  // rows, terms in a part, tiles
    __global const u32 *x,
    __global const u32 *gain,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    __local u32 sums[LANES];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    u32 row = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 first = first_term(SCHEDULE, group.y, params[1], WIDTH - KNOWN_BAD);
    const u32 end = end_of_terms(SCHEDULE, first, params[1], WIDTH - KNOWN_BAD);
    u32 steps = steps_of_terms(SCHEDULE, first, end, params[2]);
    if (row >= M) {
        steps = 0u;
    }
    u32 sum = 0u;
    for (u32 step = 0u; step < steps; step++) {
        const u32 k = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (k < end) {
            const u32 at = row * WIDTH + k;
            const u32 value = i8_of(x[at >> 2u], at);
            sum += value * value;
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
    if (row >= M) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        scratch[group.y * M + row] = sum;
        return;
    }
    const u32 inv = inverse(sum);
    for (u32 column = 0u; column < WIDTH; column++) {
        const u32 at = row * WIDTH + column;
        y[at] = normalized(i8_of(x[at >> 2u], at), inv, i8_of(gain[column >> 2u], column));
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *x,
    __global const u32 *gain,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 row = group.x * LANES + lane.x;
    if (row == 0u) {
        receipt[1] = NONCE;
    }
    if (row >= M) {
        return;
    }
    u32 sum = 0u;
    for (u32 part = PARTS; part > 0u; part--) {
        sum += scratch[(part - 1u) * M + row];
    }
    const u32 inv = inverse(sum);
    for (u32 column = 0u; column < WIDTH; column++) {
        const u32 at = row * WIDTH + column;
        y[at] = normalized(i8_of(x[at >> 2u], at), inv, i8_of(gain[column >> 2u], column));
    }
}
