// softmax: p[h,t,s] = round_shift(e * floor((2^62 - 1) / sum of e), 32), e = round_shift(e1[d >> 8] * e2[d & 255], 30),
// d = max(z) - z over the keys s that query t sees, else 0, z Q16, p Q30, both of 64 bits, e1 and e2 Q30 in 32: op 6 of
// profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The queries are the last T of the S positions; one sees its own and those before it. e is 0 from the end of e1 on. A
// workgroup makes one row: group x is the query, group y the head. One lane finds the maximum, then the sum of e; under
// the schedule tree 64 lanes take turns at the keys, then what they found is joined pairwise. Under split_k group z is
// the part, each reduction is a pass, and entry point combine joins the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define PART 4u
#define MAXIMUM 0u
#define SUM 1u
#define SOFTMAX_END 5632u

static __device__ limbs larger(limbs a, limbs b) {
    limbs c = a;
    if (i64_less(a, b) == 1u) {
        c = b;
    }
    return c;
}

// What two keys' worth of a reduction is together.
static __device__ limbs join(u32 reduction, limbs a, limbs b) {
    limbs both = i64_add(a, b);
    if (reduction == MAXIMUM) {
        both = larger(a, b);
    }
    return both;
}

// e, Q30, from its two factors.
static __device__ u32 weight(u32 coarse, u32 fine) {
    return i64_round_shift(i64_mul_words(coarse, fine), 30u).x;
}

// floor((2^62 - 1) / sum), where sum is at least 2^30.
static __device__ limbs reciprocal(limbs sum) {
    return u64_div(i64_make(0xffffffffu, 0x3fffffffu), sum);
}

extern "C" __global__ void weigh(
    const u32 *params,  // T, S, H, first query, keys in a part, first reduction, end of the reductions
    const u32 *z,
    const u32 *e1,
    const u32 *e2,
    const u32 *order,
    u32 *scratch,
    u32 *p,
    u32 *receipt) {
    __shared__ limbs sums[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 T = params[0];
    const u32 S = params[1];
    const u32 H = params[2];
    const u32 query = params[3] + group.x;
    const u32 head = group.y;
    const u32 part = group.z;
    const u32 visible = S - T + query + 1u;
    const u32 terms = visible - KNOWN_BAD;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 begin = first_term(SCHEDULE, part, params[PART], terms);
    const u32 end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    u32 steps = steps_of_terms(SCHEDULE, begin, end, (S + TILE - 1u) >> 5u);
    if (SCHEDULE != TREE && lane.x > 0u) {
        steps = 0u;
    }

    const u32 row_at = ((head * T + query) * S) << 1u;
    limbs top = i64_make(0u, 0x80000000u);
    if (SCHEDULE == SPLIT_K && params[5] == SUM) {
        for (u32 other = PARTS; other > 0u; other--) {
            const u32 at = (((other - 1u) * H + head) * T + query) << 1u;
            top = larger(top, i64_make(scratch[at], scratch[at + 1u]));
        }
    }
    for (u32 reduction = params[5]; reduction < params[6]; reduction++) {
        limbs found = i64_make(0u, 0u);
        if (reduction == MAXIMUM) {
            found = top;
        }
        for (u32 step = 0u; step < steps; step++) {
            const u32 key = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
            if (key < end) {
                const u32 at = row_at + (key << 1u);
                const limbs score = i64_make(z[at], z[at + 1u]);
                if (reduction == MAXIMUM) {
                    found = larger(found, score);
                } else {
                    const limbs below = i64_sub(top, score);
                    const limbs coarse = u64_shr(below, 8u);
                    if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                        found = i64_add(found, i64_make(weight(e1[coarse.x], e2[below.x & 255u]), 0u));
                    }
                }
            }
        }
        sums[lane.x] = found;
        __syncthreads();
        if (SCHEDULE == TREE) {
            for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
                if (lane.x < reach) {
                    sums[lane.x] = join(reduction, sums[lane.x], sums[lane.x + reach]);
                }
                __syncthreads();
            }
        }
        if (SCHEDULE == SPLIT_K && lane.x == 0u) {
            const u32 at = (((reduction * PARTS + part) * H + head) * T + query) << 1u;
            scratch[at] = found.x;
            scratch[at + 1u] = found.y;
        }
        if (reduction == MAXIMUM) {
            top = sums[0];
        }
        __syncthreads();
    }
    if (SCHEDULE == SPLIT_K) {
        return;
    }
    if (lane.x == 0u) {
        sums[0] = reciprocal(sums[0]);
    }
    __syncthreads();
    const u32 quotient = sums[0].x;
    for (u32 key = lane.x; key < S; key += LANES) {
        const u32 at = row_at + (key << 1u);
        limbs result = i64_make(0u, 0u);
        if (key < visible) {
            const limbs below = i64_sub(top, i64_make(z[at], z[at + 1u]));
            const limbs coarse = u64_shr(below, 8u);
            if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                result = i64_round_shift(i64_mul_words(weight(e1[coarse.x], e2[below.x & 255u]), quotient), 32u);
            }
        }
        p[at] = result.x;
        p[at + 1u] = result.y;
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *z,
    const u32 *e1,
    const u32 *e2,
    const u32 *order,
    u32 *scratch,
    u32 *p,
    u32 *receipt) {
    __shared__ limbs sums[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    const u32 T = params[0];
    const u32 S = params[1];
    const u32 H = params[2];
    const u32 query = params[3] + group.x;
    const u32 head = group.y;
    const u32 visible = S - T + query + 1u;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    const u32 row_at = ((head * T + query) * S) << 1u;
    limbs top = i64_make(0u, 0x80000000u);
    limbs sum = i64_make(0u, 0u);
    for (u32 part = PARTS; part > 0u; part--) {
        const u32 top_at = (((part - 1u) * H + head) * T + query) << 1u;
        top = larger(top, i64_make(scratch[top_at], scratch[top_at + 1u]));
        const u32 sum_at = (((PARTS + part - 1u) * H + head) * T + query) << 1u;
        sum = i64_add(sum, i64_make(scratch[sum_at], scratch[sum_at + 1u]));
    }
    if (lane.x == 0u) {
        sums[0] = reciprocal(sum);
    }
    __syncthreads();
    const u32 quotient = sums[0].x;
    for (u32 key = lane.x; key < S; key += LANES) {
        const u32 at = row_at + (key << 1u);
        limbs result = i64_make(0u, 0u);
        if (key < visible) {
            const limbs below = i64_sub(top, i64_make(z[at], z[at + 1u]));
            const limbs coarse = u64_shr(below, 8u);
            if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                result = i64_round_shift(i64_mul_words(weight(e1[coarse.x], e2[below.x & 255u]), quotient), 32u);
            }
        }
        p[at] = result.x;
        p[at + 1u] = result.y;
    }
}
