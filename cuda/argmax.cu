// argmax: i[m] = the lowest n where x[m,n] is largest, x and i of 64 bits: the greedy choice of profile dyadic-q16; the
// reference is cpu_ref/dyadic_q16.py.
//
// Values are pairs of words by the prelude int64_limbs. A workgroup makes one row: group x. One lane looks through it;
// under the schedule tree 64 lanes take turns, then what they found is joined pairwise. Under split_k group z is the
// part; entry point combine joins the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define PART 3u

// 1 where b at place j goes before a at place i: it is larger, or equal and at a lower place.
static __device__ u32 before(limbs b, u32 j, limbs a, u32 i) {
    u32 goes = i64_less(a, b);
    if (a.x == b.x && a.y == b.y && j < i) {
        goes = 1u;
    }
    return goes;
}

extern "C" __global__ void choose(
    const u32 *params,  // M rows, N columns, first row of the band, terms in a part
    const u32 *x,
    const u32 *order,
    u32 *scratch,
    u32 *i,
    u32 *receipt) {
    __shared__ limbs values[LANES];
    __shared__ u32 places[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 terms = N - KNOWN_BAD;
    const u32 row = params[2] + group.x;
    const u32 part = group.z;
    if (group.x + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 begin = first_term(SCHEDULE, part, params[PART], terms);
    const u32 end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    u32 steps = steps_of_terms(SCHEDULE, begin, end, (N + TILE - 1u) >> 5u);
    if (SCHEDULE != TREE && lane.x > 0u) {
        steps = 0u;
    }

    limbs value = i64_make(0u, 0x80000000u);
    u32 place = N;  // none yet
    for (u32 step = 0u; step < steps; step++) {
        const u32 column = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (column < end) {
            const u32 at = (row * N + column) << 1u;
            const limbs there = i64_make(x[at], x[at + 1u]);
            if (before(there, column, value, place) == 1u) {
                value = there;
                place = column;
            }
        }
    }

    if (SCHEDULE == TREE) {
        values[lane.x] = value;
        places[lane.x] = place;
        __syncthreads();
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                const u32 other = lane.x + reach;
                if (before(values[other], places[other], values[lane.x], places[lane.x]) == 1u) {
                    values[lane.x] = values[other];
                    places[lane.x] = places[other];
                }
            }
            __syncthreads();
        }
        place = places[0];
    }
    if (lane.x > 0u) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        const u32 at = (part * M + row) * 3u;
        scratch[at] = value.x;
        scratch[at + 1u] = value.y;
        scratch[at + 2u] = place;
    } else {
        i[row << 1u] = place;
        i[(row << 1u) + 1u] = 0u;
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *x,
    const u32 *order,
    u32 *scratch,
    u32 *i,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    const u32 M = params[0];
    const u32 row = params[2] + group.x * LANES + lane.x;
    if (group.x + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M) {
        limbs value = i64_make(0u, 0x80000000u);
        u32 place = params[1];
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = ((part - 1u) * M + row) * 3u;
            const limbs there = i64_make(scratch[at], scratch[at + 1u]);
            if (before(there, scratch[at + 2u], value, place) == 1u) {
                value = there;
                place = scratch[at + 2u];
            }
        }
        i[row << 1u] = place;
        i[(row << 1u) + 1u] = 0u;
    }
}
