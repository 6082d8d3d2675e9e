// nel_softmax: p[h,t,j] = min(round_shift(e_j * R, 15), 32767), R = floor(2^30 / sum of e), e_j = powers[d & 63] >> (d
// >> 6), 0 where d >= 1024, d = floor((max - s_j) / 128), over the keys j <= P - M + t, else 0: operation 7 of
// nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// A lane makes the row of a query, group y is the head; under the schedule tree a workgroup does, 64 lanes take turns
// at its maximum and its sum. Under split_k group z is the part: maxima and sums keep what each part has, weigh takes
// them from there.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define HEADS 4u
#define LOWEST 0x80000000u
#define SCORE_SHIFT 7u
#define WEIGHT_SHIFT 15u
#define LARGEST 32767u

static __device__ u32 larger(u32 a, u32 b) {
    u32 most = a;
    if (i32_less(a, b) == 1u) {
        most = b;
    }
    return most;
}

// e at a gap, out of its entry of powers.
static __device__ u32 weight_of(u32 gap, u32 entry) {
    u32 e = 0u;
    if (gap < 1024u) {
        e = entry >> (gap >> 6u);
    }
    return e;
}

extern "C" __global__ void weigh(
    const u32 *params,  // M queries, P keys, terms in a part, tiles
    const u32 *s,
    const u32 *powers,
    const u32 *order,
    u32 *scratch,
    u32 *p,
    u32 *receipt) {
    __shared__ u32 lanes[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 P = params[1];
    u32 query = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        query = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 row = (group.y * M + query) * P;
    const u32 count = P - M + query + 1u;
    u32 steps = steps_of_terms(SCHEDULE, 0u, count, params[3]);
    if (query >= M || SCHEDULE == SPLIT_K) {
        steps = 0u;
    }
    u32 most = LOWEST;
    for (u32 step = 0u; step < steps; step++) {
        const u32 j = term_of(SCHEDULE, step, 0u, count, order[step >> 5u], lane.x);
        if (j < count) {
            most = larger(most, s[row + j]);
        }
    }
    if (SCHEDULE == TREE) {
        lanes[lane.x] = most;
        __syncthreads();
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                lanes[lane.x] = larger(lanes[lane.x], lanes[lane.x + reach]);
            }
            __syncthreads();
        }
        most = lanes[0];
        __syncthreads();
    }
    if (SCHEDULE == SPLIT_K && query < M) {
        for (u32 part = PARTS; part > 0u; part--) {
            most = larger(most, scratch[((part - 1u) * HEADS + group.y) * M + query]);
        }
    }

    const u32 end = count - KNOWN_BAD;
    u32 sum = 0u;
    for (u32 step = 0u; step < steps; step++) {
        const u32 j = term_of(SCHEDULE, step, 0u, end, order[step >> 5u], lane.x);
        if (j < end) {
            const u32 gap = (most - s[row + j]) >> SCORE_SHIFT;
            sum += weight_of(gap, powers[gap & 63u]);
        }
    }
    if (SCHEDULE == TREE) {
        lanes[lane.x] = sum;
        __syncthreads();
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                lanes[lane.x] += lanes[lane.x + reach];
            }
            __syncthreads();
        }
        if (lane.x > 0u) {
            return;
        }
        sum = lanes[0];
    }
    if (query >= M) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        for (u32 part = PARTS; part > 0u; part--) {
            sum += scratch[((PARTS + part - 1u) * HEADS + group.y) * M + query];
        }
    }

    const u32 ratio = u32_div(1u << 30u, sum);
    for (u32 j = 0u; j < P; j++) {
        u32 weight = 0u;
        if (j < count) {
            const u32 gap = (most - s[row + j]) >> SCORE_SHIFT;
            weight = i32_round_shift(weight_of(gap, powers[gap & 63u]) * ratio, WEIGHT_SHIFT);
            if (weight > LARGEST) {
                weight = LARGEST;
            }
        }
        p[row + j] = weight;
    }
}

extern "C" __global__ void maxima(
    const u32 *params,
    const u32 *s,
    const u32 *powers,
    const u32 *order,
    u32 *scratch,
    u32 *p,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 P = params[1];
    const u32 query = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (query >= M) {
        return;
    }
    const u32 count = P - M + query + 1u;
    const u32 first = first_term(SPLIT_K, group.z, params[2], count);
    const u32 end = end_of_terms(SPLIT_K, first, params[2], count);
    u32 most = LOWEST;
    for (u32 j = first; j < end; j++) {
        most = larger(most, s[(group.y * M + query) * P + j]);
    }
    scratch[(group.z * HEADS + group.y) * M + query] = most;
}

extern "C" __global__ void sums(
    const u32 *params,
    const u32 *s,
    const u32 *powers,
    const u32 *order,
    u32 *scratch,
    u32 *p,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 P = params[1];
    const u32 query = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[2] = NONCE;
    }
    if (query >= M) {
        return;
    }
    u32 most = LOWEST;
    for (u32 part = PARTS; part > 0u; part--) {
        most = larger(most, scratch[((part - 1u) * HEADS + group.y) * M + query]);
    }
    const u32 count = P - M + query + 1u - KNOWN_BAD;
    const u32 first = first_term(SPLIT_K, group.z, params[2], count);
    const u32 end = end_of_terms(SPLIT_K, first, params[2], count);
    u32 sum = 0u;
    for (u32 j = first; j < end; j++) {
        const u32 gap = (most - s[(group.y * M + query) * P + j]) >> SCORE_SHIFT;
        sum += weight_of(gap, powers[gap & 63u]);
    }
    scratch[((PARTS + group.z) * HEADS + group.y) * M + query] = sum;
}
