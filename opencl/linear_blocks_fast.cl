// linear_blocks_fast: y[m,n] = round_shift(bias[n] + sum over k of W[n,k] * x[m,k], 24), W the Q24 values of weights in
// blocks, x and y Q16, bias Q40, all of 64 bits: op 2 of profile dyadic-q16; the reference is cpu_ref/linear.py.
//
// For CPU devices; schedules forward and split_k. The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0.
// Sums are native 64-bit integers, exact modulo 2^64, and rounded once, after the last addition. A workgroup is one
// work-item and makes 16 rows of W by 8 tokens: it decodes a block once and takes the tokens through it, each with a
// vector of 8 sums in registers. Under split_k group z is the part; entry point combine adds the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define SPLIT_K 2u

#if SCHEDULE != 0u && SCHEDULE != SPLIT_K
#error "linear_blocks_fast has the schedules forward (0) and split_k (2) only"
#endif

#define PARTS 8u
#define LANES 64u
#define ROWS 16u
#define TOKENS 8u
#define BLOCK 32u
#define WIDTH 8u
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

// The fp16 that stands in w at byte `at`, which is even.
static u32 half_at(__global const u32 *w, u32 at) {
    return (w[at >> 2u] >> ((at & 2u) << 3u)) & 0xffffu;
}

// The Q24 weights of the block at byte `at`, whose first has the number k; zero outside begin .. end - 1.
static void decode(__global const u32 *w, u32 at, u32 k, u32 begin, u32 end, u64 *weights) {
    const u64 scale = scale_of(half_at(w, at));
    u64 least = 0ul;
    if (HAS_MIN == 1u) {
        least = scale_of(half_at(w, at + 2u));
    }
    for (u32 i = 0u; i < BLOCK; i++) {
        const u32 q_at = at + quant_at(i);
        const u32 byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
        weights[i] = 0ul;
        if (k + i >= begin && k + i < end) {
            weights[i] = scale * (((u64)quant_of(byte, i) ^ 0x80000000ul) - 0x80000000ul) + least;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void multiply(
    __global const u32 *params,  // M tokens, N rows, K, first row of the band, terms in a part, first row of w
    __global const u32 *w,
    __global const u32 *x,
    __global const u32 *bias,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    const u32 first = params[3] + group.x * ROWS;
    const u32 token = group.y * TOKENS;
    if (group.x + group.y + group.z == 0u) {
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

    u32 tokens = 0u;
    if (token < M) {
        tokens = min(M - token, TOKENS);
    }
    for (u32 row = first; row < first + ROWS && row < N; row++) {
        ulong8 sums[TOKENS];
        for (u32 t = 0u; t < TOKENS; t++) {
            sums[t] = (ulong8)(0ul);
        }
        for (u32 k = begin & ~(BLOCK - 1u); k < end; k += BLOCK) {
            u64 weights[BLOCK];
            decode(w, ((row - params[5]) * (K >> 5u) + (k >> 5u)) * BLOCK_BYTES, k, begin, end, weights);
            for (u32 t = 0u; t < tokens; t++) {
                for (u32 i = 0u; i < BLOCK; i += WIDTH) {
                    // Two words, low first: on these devices, all little-endian, a 64-bit integer as it stands.
                    __global const u64 *values = (__global const u64 *)(x + (((token + t) * K + k + i) << 1u));
                    sums[t] += vload8(0u, weights + i) * vload8(0u, values);
                }
            }
        }
        for (u32 t = 0u; t < tokens; t++) {
            const ulong4 four = sums[t].lo + sums[t].hi;
            const u64 sum = four.x + four.y + four.z + four.w;
            if (SCHEDULE == SPLIT_K) {
                const u32 at = ((group.z * M + token + t) * N + row) << 1u;
                scratch[at] = (u32)sum;
                scratch[at + 1u] = (u32)(sum >> 32u);
            } else {
                const u32 bias_at = row << 1u;
                const u64 from_bias = ((u64)bias[bias_at + 1u] << 32u) | (u64)bias[bias_at];
                const u64 result = round_shift(sum + from_bias, SHIFT);
                const u32 at = ((token + t) * N + row) << 1u;
                y[at] = (u32)result;
                y[at + 1u] = (u32)(result >> 32u);
            }
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
