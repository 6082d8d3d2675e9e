// nel_argmax: y[t] = the lowest place of the largest of N logits i32: operation 11 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// A lane makes one output; under the schedule tree a workgroup does, 64 lanes take turns at its logits. Under split_k
// group y is the part, which keeps its largest value and the place; entry point combine chooses among the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LOWEST 0x80000000u

// 1 where a value at its place is chosen before the best so far, else 0.
static u32 better(u32 value, u32 place, u32 best, u32 best_place) {
    u32 chosen = i32_less(best, value);
    if (value == best && place < best_place) {
        chosen = 1u;
    }
    return chosen;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void choose(
    __global const u32 *params,  // rows, N, terms in a part, tiles
    __global const u32 *logits,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    __local u32 values[LANES];
    __local u32 places[LANES];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    u32 row = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 first = first_term(SCHEDULE, group.y, params[2], N - KNOWN_BAD);
    const u32 end = end_of_terms(SCHEDULE, first, params[2], N - KNOWN_BAD);
    u32 steps = steps_of_terms(SCHEDULE, first, end, params[3]);
    if (row >= M) {
        steps = 0u;
    }
    u32 best = LOWEST;
    u32 best_place = N;
    for (u32 step = 0u; step < steps; step++) {
        const u32 k = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (k < end) {
            const u32 value = logits[row * N + k];
            if (better(value, k, best, best_place) == 1u) {
                best = value;
                best_place = k;
            }
        }
    }

    if (SCHEDULE == TREE) {
        values[lane.x] = best;
        places[lane.x] = best_place;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                if (better(values[lane.x + reach], places[lane.x + reach], values[lane.x], places[lane.x]) == 1u) {
                    values[lane.x] = values[lane.x + reach];
                    places[lane.x] = places[lane.x + reach];
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (lane.x > 0u) {
            return;
        }
        best_place = places[0];
    }
    if (row < M) {
        if (SCHEDULE == SPLIT_K) {
            const u32 at = (group.y * M + row) << 1u;
            scratch[at] = best;
            scratch[at + 1u] = best_place;
        } else {
            y[row] = best_place;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *logits,
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
    if (row < M) {
        u32 best = LOWEST;
        u32 best_place = params[1];
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = ((part - 1u) * M + row) << 1u;
            if (better(scratch[at], scratch[at + 1u], best, best_place) == 1u) {
                best = scratch[at];
                best_place = scratch[at + 1u];
            }
        }
        y[row] = best_place;
    }
}
