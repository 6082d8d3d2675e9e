// linear_blocks: y[m,n] = round_shift(bias[n] + sum over k of W[n,k] * x[m,k], 24), W the Q24 values of weights in
// blocks, x and y Q16, bias Q40, all of 64 bits: op 2 of profile dyadic-q16; the reference is cpu_ref/linear.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Of a block the sum of q * x is taken first, exact
// modulo 2^64: its words are cut in halves so that 32 terms stay inside a word. Then it is times the scale, modulo 2^64 by
// the prelude int64_limbs, and rounded once, after the last addition. A lane makes one row of W by 4 tokens: group x is 64
// rows, group y 4 tokens. Under the schedule tree a workgroup makes one row by 4 tokens: group x is the row, 64 lanes take
// turns at the terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine, whose
// lanes make one output and whose group y is the token, adds the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define REVERSE 1u
#define SPLIT_K 2u
#define TILED_SHUFFLED 3u
#define TREE 4u

#define PARTS 8u
#define LANES 64u
#define TOKENS 4u
#define SUMS 256u
#define TILE 32u
#define SHIFT 24u

// The Q24 value of a finite fp16: exact, for 2^-24 is its smallest step.
static __device__ limbs scale_of(u32 bits) {
    const u32 exponent = (bits >> 10u) & 31u;
    limbs scale = i64_make(bits & 1023u, 0u);
    if (exponent > 0u) {
        scale = i64_shl(i64_make(1024u | (bits & 1023u), 0u), exponent - 1u);
    }
    if ((bits & 0x8000u) != 0u) {
        scale = i64_neg(scale);
    }
    return scale;
}

// The sum modulo 2^64 of three words, each as a signed 32-bit integer, at bits 0, 16 and 32.
static __device__ limbs joined(u32 low, u32 middle, u32 high) {
    return i64_add(i64_add(i64_from_i32(low), i64_shl(i64_from_i32(middle), 16u)), i64_make(0u, high));
}

extern "C" __global__ void multiply(
    const u32 *params,  // M tokens, N rows, K, first row of the band, terms in a part, first row of w
    const u32 *w,
    const u32 *x,
    const u32 *bias,
    const u32 *order,
    u32 *scratch,
    u32 *y,
    u32 *receipt) {
    __shared__ limbs sums[SUMS];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    const u32 token = group.y * TOKENS;
    u32 row = params[3] + group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = params[3] + group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    u32 begin = 0u;
    u32 end = terms;
    if (SCHEDULE == SPLIT_K) {
        begin = group.z * params[4];
        if (begin > terms) {
            begin = terms;
        }
        if (end - begin > params[4]) {
            end = begin + params[4];
        }
    }
    // A visit is to the terms of one block between begin and end.
    const u32 block_first = begin >> 5u;
    u32 visits = ((end + 31u) >> 5u) - block_first;
    if (SCHEDULE == TILED_SHUFFLED) {
        visits = K >> 5u;
    }
    if (row >= N || SCHEDULE == TREE) {
        visits = 0u;
    }

    const u32 row_at = (row - params[5]) * (K >> 5u) * BLOCK_BYTES;
    limbs results[TOKENS];
    for (u32 t = 0u; t < TOKENS; t++) {
        results[t] = i64_make(0u, 0u);
    }
    if (SCHEDULE == TREE && row < N) {
        // No two terms of a lane lie in one block: the weight is taken whole, then one product a token.
        for (u32 k = lane.x; k < terms; k += LANES) {
            const u32 block_at = row_at + (k >> 5u) * BLOCK_BYTES;
            const u32 q_at = block_at + quant_at(k & 31u);
            const u32 byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
            const u32 q = quant_of(byte, k & 31u);
            const limbs scale = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
            limbs weight = i64_mul(scale, i64_from_i32(q));
            if (HAS_MIN == 1u) {
                const u32 min_at = block_at + 2u;
                const limbs least = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                weight = i64_add(weight, least);
            }
            for (u32 t = 0u; t < TOKENS; t++) {
                const u32 x_at = (min(token + t, M - 1u) * K + k) << 1u;
                results[t] = i64_add(results[t], i64_mul(weight, i64_make(x[x_at], x[x_at + 1u])));
            }
        }
    }
    for (u32 visit = 0u; visit < visits; visit++) {
        u32 block = block_first + visit;
        if (SCHEDULE == REVERSE) {
            block = block_first + visits - 1u - visit;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            block = order[visit];
        }
        const u32 low = max(block * TILE, begin);
        const u32 high = min(block * TILE + TILE, end);
        if (low < high) {
            // Sums of q * x and of x: of the low and the high half of x's low word, and of its high word modulo 2^32.
            u32 lows[TOKENS];
            u32 middles[TOKENS];
            u32 highs[TOKENS];
            u32 x_lows[TOKENS];
            u32 x_middles[TOKENS];
            u32 x_highs[TOKENS];
            for (u32 t = 0u; t < TOKENS; t++) {
                lows[t] = 0u;
                middles[t] = 0u;
                highs[t] = 0u;
                x_lows[t] = 0u;
                x_middles[t] = 0u;
                x_highs[t] = 0u;
            }
            const u32 block_at = row_at + block * BLOCK_BYTES;
            for (u32 term = low; term < high; term++) {
                u32 k = term;
                if (SCHEDULE == REVERSE) {
                    k = high - 1u - (term - low);
                }
                const u32 q_at = block_at + quant_at(k & 31u);
                const u32 byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
                const u32 q = quant_of(byte, k & 31u);
                for (u32 t = 0u; t < TOKENS; t++) {
                    const u32 x_at = (min(token + t, M - 1u) * K + k) << 1u;
                    const u32 x_low = x[x_at];
                    const u32 x_high = x[x_at + 1u];
                    lows[t] += q * (x_low & 0xffffu);
                    middles[t] += q * (x_low >> 16u);
                    highs[t] += q * x_high;
                    if (HAS_MIN == 1u) {
                        x_lows[t] += x_low & 0xffffu;
                        x_middles[t] += x_low >> 16u;
                        x_highs[t] += x_high;
                    }
                }
            }
            const limbs scale = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
            for (u32 t = 0u; t < TOKENS; t++) {
                results[t] = i64_add(results[t], i64_mul(scale, joined(lows[t], middles[t], highs[t])));
            }
            if (HAS_MIN == 1u) {
                const u32 min_at = block_at + 2u;
                const limbs least = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                for (u32 t = 0u; t < TOKENS; t++) {
                    results[t] = i64_add(results[t], i64_mul(least, joined(x_lows[t], x_middles[t], x_highs[t])));
                }
            }
        }
    }

    if (SCHEDULE == TREE) {
        for (u32 t = 0u; t < TOKENS; t++) {
            sums[t * LANES + lane.x] = results[t];
        }
        __syncthreads();
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                for (u32 t = 0u; t < TOKENS; t++) {
                    const u32 at = t * LANES + lane.x;
                    sums[at] = i64_add(sums[at], sums[at + reach]);
                }
            }
            __syncthreads();
        }
        if (lane.x > 0u) {
            return;
        }
        for (u32 t = 0u; t < TOKENS; t++) {
            results[t] = sums[t * LANES];
        }
    }
    if (row < N) {
        for (u32 t = 0u; t < TOKENS && token + t < M; t++) {
            if (SCHEDULE == SPLIT_K) {
                const u32 at = ((group.z * M + token + t) * N + row) << 1u;
                scratch[at] = results[t].x;
                scratch[at + 1u] = results[t].y;
            } else {
                const u32 bias_at = row << 1u;
                const limbs from_bias = i64_make(bias[bias_at], bias[bias_at + 1u]);
                const limbs result = i64_round_shift(i64_add(results[t], from_bias), SHIFT);
                const u32 at = ((token + t) * N + row) << 1u;
                y[at] = result.x;
                y[at + 1u] = result.y;
            }
        }
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *w,
    const u32 *x,
    const u32 *bias,
    const u32 *order,
    u32 *scratch,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 token = group.y;
    const u32 row = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < N && token < M) {
        limbs sum = i64_make(0u, 0u);
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = (((part - 1u) * M + token) * N + row) << 1u;
            sum = i64_add(sum, i64_make(scratch[at], scratch[at + 1u]));
        }
        const u32 bias_at = row << 1u;
        const limbs from_bias = i64_make(bias[bias_at], bias[bias_at + 1u]);
        const limbs result = i64_round_shift(i64_add(sum, from_bias), SHIFT);
        const u32 at = (token * N + row) << 1u;
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}
