// nel_scores: s[h,t,j] = sum over d of q[t,h,d] * k[j,h/2,d] where key j <= P - M + t, else 0: operation 6 of
// nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// q is i8[M,4,D], k i8[P,2,D]. A lane makes one output: group x is 64 keys, group y the query, group z the head. Under
// the schedule tree a workgroup makes one output, group x is the key, 64 lanes take turns at its terms. Under split_k
// group z is part and head; entry point combine adds the parts.

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

extern "C" __global__ void multiply(
    const u32 *params,  // M queries, P keys, D, terms in a part, tiles
    const u32 *q,
    const u32 *k,
    const u32 *order,
    u32 *scratch,
    u32 *s,
    u32 *receipt) {
    __shared__ u32 sums[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 P = params[1];
    const u32 D = params[2];
    const u32 query = group.y;
    const u32 head = group.z & 3u;
    const u32 part = group.z >> 2u;
    u32 key = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        key = group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 first = first_term(SCHEDULE, part, params[3], D - KNOWN_BAD);
    const u32 end = end_of_terms(SCHEDULE, first, params[3], D - KNOWN_BAD);
    u32 steps = steps_of_terms(SCHEDULE, first, end, params[4]);
    if (key > P - M + query) {
        steps = 0u;
    }
    const u32 q_row = (query * HEADS + head) * D;
    const u32 k_row = (key * (HEADS >> 1u) + (head >> 1u)) * D;
    u32 sum = 0u;
    for (u32 step = 0u; step < steps; step++) {
        const u32 d = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (d < end) {
            const u32 q_at = q_row + d;
            const u32 k_at = k_row + d;
            sum += i8_of(q[q_at >> 2u], q_at) * i8_of(k[k_at >> 2u], k_at);
        }
    }

    if (SCHEDULE == TREE) {
        sums[lane.x] = sum;
        __syncthreads();
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] += sums[lane.x + reach];
            }
            __syncthreads();
        }
        if (lane.x > 0u) {
            return;
        }
        sum = sums[0];
    }
    if (key < P) {
        const u32 at = (head * M + query) * P + key;
        if (SCHEDULE == SPLIT_K) {
            scratch[part * HEADS * M * P + at] = sum;
        } else {
            s[at] = sum;
        }
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *q,
    const u32 *k,
    const u32 *order,
    u32 *scratch,
    u32 *s,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 outputs = HEADS * params[0] * params[1];
    const u32 i = group.x * LANES + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < outputs) {
        u32 sum = 0u;
        for (u32 part = PARTS; part > 0u; part--) {
            sum += scratch[(part - 1u) * outputs + i];
        }
        s[i] = sum;
    }
}
