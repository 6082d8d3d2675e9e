// linear_blocks_int64: y[m,n] = round_shift(bias[n] + sum over k of W[n,k] * x[m,k], 24), W the Q24 values of weights
// in blocks, x and y Q16, bias Q40, all of 64 bits: op 2 of profile dyadic-q16; the reference is cpu_ref/linear.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Sums are native 64-bit integers, exact modulo
// 2^64, and rounded once, after the last addition. A lane makes one output: group x is 64 rows of W, group y the token,
// in both entry points. Under the schedule tree a workgroup makes one output: group x is the row, 64 lanes take turns
// at the terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine adds the
// parts.

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
#define TILE 32u
#define SHIFT 24u

typedef uint u32;
typedef ulong u64;
typedef long i64;

// The Q24 value of a finite fp16: exact, for 2^-24 is its smallest step.
static u64 scale_of(u32 bits) {
    const u32 exponent = (bits >> 10u) & 31u;
    u64 scale = (u64)(bits & 1023u);
    if (exponent > 0u) {
        scale = (u64)(1024u | (bits & 1023u)) << (exponent - 1u);
    }
    if ((bits & 0x8000u) != 0u) {
        scale = 0ul - scale;
    }
    return scale;
}

// floor((a + 2^(n-1)) / 2^n), 1 <= n <= 63, a signed: half up.
static u64 round_shift(u64 a, u32 n) {
    return (u64)((i64)(a + (1ul << (n - 1u))) >> n);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multiply(
    __global const u32 *params,  // M tokens, N rows, K, first row of the band, terms in a part, first row of w
    __global const u32 *w,
    __global const u32 *x,
    __global const u32 *bias,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    __local u64 sums[LANES];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    const u32 token = group.y;
    u32 row = params[3] + group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = params[3] + group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    // A step is one term; one whose k is not below end is none.
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
    u32 steps = end - begin;
    if (SCHEDULE == TILED_SHUFFLED) {
        steps = K;
    }
    if (SCHEDULE == TREE) {
        steps = (K + LANES - 1u) >> 6u;
    }
    if (row >= N || token >= M) {
        steps = 0u;
    }

    const u32 row_at = (row - params[5]) * (K >> 5u) * BLOCK_BYTES;
    u64 sum = 0ul;
    u64 scale = 0ul;
    u64 least = 0ul;
    u32 scale_block = K;  // none yet
    for (u32 step = 0u; step < steps; step++) {
        u32 k = begin + step;
        if (SCHEDULE == REVERSE) {
            k = end - 1u - step;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            k = order[step >> 5u] * TILE + (step & 31u);
        }
        if (SCHEDULE == TREE) {
            k = step * LANES + lane.x;
        }
        if (k < end) {
            const u32 block = k >> 5u;
            const u32 block_at = row_at + block * BLOCK_BYTES;
            if (block != scale_block) {
                scale_block = block;
                scale = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
                if (HAS_MIN == 1u) {
                    const u32 min_at = block_at + 2u;
                    least = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                }
            }
            const u32 q_at = block_at + quant_at(k & 31u);
            const u32 byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
            const u32 q = quant_of(byte, k & 31u);
            const u64 weight = scale * (((u64)q ^ 0x80000000ul) - 0x80000000ul) + least;
            const u32 x_at = (token * K + k) << 1u;
            sum += weight * (((u64)x[x_at + 1u] << 32u) | (u64)x[x_at]);
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
    if (row < N && token < M) {
        if (SCHEDULE == SPLIT_K) {
            const u32 at = ((group.z * M + token) * N + row) << 1u;
            scratch[at] = (u32)sum;
            scratch[at + 1u] = (u32)(sum >> 32u);
        } else {
            const u32 bias_at = row << 1u;
            const u64 from_bias = ((u64)bias[bias_at + 1u] << 32u) | (u64)bias[bias_at];
            const u64 result = round_shift(sum + from_bias, SHIFT);
            const u32 at = (token * N + row) << 1u;
            y[at] = (u32)result;
            y[at + 1u] = (u32)(result >> 32u);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *w,
    __global const u32 *x,
    __global const u32 *bias,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 token = group.y;
    const u32 row = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < N && token < M) {
        u64 sum = 0ul;
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = (((part - 1u) * M + token) * N + row) << 1u;
            sum += ((u64)scratch[at + 1u] << 32u) | (u64)scratch[at];
        }
        const u32 bias_at = row << 1u;
        const u64 from_bias = ((u64)bias[bias_at + 1u] << 32u) | (u64)bias[bias_at];
        const u64 result = round_shift(sum + from_bias, SHIFT);
        const u32 at = (token * N + row) << 1u;
        y[at] = (u32)result;
        y[at + 1u] = (u32)(result >> 32u);
    }
}
