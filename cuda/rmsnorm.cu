// rmsnorm: y[m,n] = round_shift(x[m,n] * g[n] * inv[m], 71 - e / 2) with inv and e of the row's sum of squares, x and y
// Q16, g Q24, eps32 Q32, all of 64 bits: op 3 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// Sums and products are four words by the prelude int128_limbs; root and quotients are made bit by bit, once a row. A
// workgroup makes one row: group x. One lane adds its squares; under the schedule tree 64 lanes take turns at the
// terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine adds the parts.

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

static __device__ wide square(limbs x) {
    limbs magnitude = x;
    if (x.y >= 0x80000000u) {
        magnitude = i64_neg(x);
    }
    return u64_mul_wide(magnitude, magnitude);
}

// inv of op 3, low, and the shift 71 - e / 2, high.
static __device__ limbs inverse(wide squares, u32 n, limbs eps32) {
    const limbs zero = i64_make(0u, 0u);
    const wide mean = i128_add(u128_div(squares, i128_make(i64_make(n, 0u), zero)), i128_make(eps32, zero));
    // The bit length: of the highest word that is not zero, and of those below it.
    u32 length = 0u;
    u32 highest = mean.x;
    if (mean.y > 0u) {
        length = 32u;
        highest = mean.y;
    }
    if (mean.z > 0u) {
        length = 64u;
        highest = mean.z;
    }
    if (mean.w > 0u) {
        length = 96u;
        highest = mean.w;
    }
    for (u32 bit = 0u; bit < 32u; bit++) {
        if ((highest >> bit) > 0u) {
            length += 1u;
        }
    }
    // A length of 64 - e or 63 - e for an even e; m is the mean times 2^e.
    limbs m = zero;
    u32 shift = 71u;
    if (length <= 64u) {
        const u32 e = ((64u - length) >> 1u) << 1u;
        m = i128_low(i128_shl(mean, e));
        shift -= e >> 1u;
    } else {
        const u32 minus_e = ((length - 63u) >> 1u) << 1u;
        m = i128_low(u128_shr(mean, minus_e));
        shift += minus_e >> 1u;
    }
    const limbs quotient = u64_div(i64_make(0xffffffffu, 0x7fffffffu), i64_make(u64_isqrt(m), 0u));
    return i64_make(quotient.x, shift);
}

static __device__ limbs scaled(limbs x, limbs gain, limbs factor) {
    const wide product = i128_mul(i128_from_i64(x), i128_from_i64(gain));
    const wide whole = i128_mul(product, i128_make(i64_make(factor.x, 0u), i64_make(0u, 0u)));
    return i128_low(i128_round_shift(whole, factor.y));
}

extern "C" __global__ void normalise(
    const u32 *params,  // M rows, N columns, first row of the band, terms in a part
    const u32 *x,
    const u32 *g,
    const u32 *eps32,
    const u32 *order,
    u32 *scratch,
    u32 *y,
    u32 *receipt) {
    __shared__ wide sums[LANES];
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

    wide sum = i128_make(i64_make(0u, 0u), i64_make(0u, 0u));
    for (u32 step = 0u; step < steps; step++) {
        const u32 column = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (column < end) {
            const u32 at = (row * N + column) << 1u;
            sum = i128_add(sum, square(i64_make(x[at], x[at + 1u])));
        }
    }

    sums[lane.x] = sum;
    __syncthreads();
    if (SCHEDULE == TREE) {
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] = i128_add(sums[lane.x], sums[lane.x + reach]);
            }
            __syncthreads();
        }
    }
    if (SCHEDULE == SPLIT_K) {
        if (lane.x == 0u) {
            const u32 at = (part * M + row) << 2u;
            scratch[at] = sum.x;
            scratch[at + 1u] = sum.y;
            scratch[at + 2u] = sum.z;
            scratch[at + 3u] = sum.w;
        }
        return;
    }
    if (lane.x == 0u) {
        sums[0] = i128_make(inverse(sums[0], N, i64_make(eps32[0], eps32[1])), i64_make(0u, 0u));
    }
    __syncthreads();
    const limbs factor = i128_low(sums[0]);
    for (u32 column = lane.x; column < N; column += LANES) {
        const u32 g_at = column << 1u;
        const u32 at = (row * N + column) << 1u;
        const limbs result = scaled(i64_make(x[at], x[at + 1u]), i64_make(g[g_at], g[g_at + 1u]), factor);
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *x,
    const u32 *g,
    const u32 *eps32,
    const u32 *order,
    u32 *scratch,
    u32 *y,
    u32 *receipt) {
    __shared__ wide sums[LANES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 row = params[2] + group.x;
    if (group.x + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (lane.x == 0u) {
        wide sum = i128_make(i64_make(0u, 0u), i64_make(0u, 0u));
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = ((part - 1u) * M + row) << 2u;
            const limbs low = i64_make(scratch[at], scratch[at + 1u]);
            sum = i128_add(sum, i128_make(low, i64_make(scratch[at + 2u], scratch[at + 3u])));
        }
        sums[0] = i128_make(inverse(sum, N, i64_make(eps32[0], eps32[1])), i64_make(0u, 0u));
    }
    __syncthreads();
    const limbs factor = i128_low(sums[0]);
    for (u32 column = lane.x; column < N; column += LANES) {
        const u32 g_at = column << 1u;
        const u32 at = (row * N + column) << 1u;
        const limbs result = scaled(i64_make(x[at], x[at + 1u]), i64_make(g[g_at], g[g_at + 1u]), factor);
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}
