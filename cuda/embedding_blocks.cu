// embedding_blocks: x[t,k] = round_shift(W[ids[t],k], 8), W the Q24 values of weights in blocks, x Q16 in 64 bits: op 1 of
// profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Integers are pairs of words by the prelude
// int64_limbs. A lane makes one output: group x is 64 weights of a row, group y the token.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 64u

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

extern "C" __global__ void look_up(
    const u32 *params,  // T tokens, K, first token of the band
    const u32 *ids,
    const u32 *w,
    u32 *x,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 K = params[1];
    const u32 token = params[2] + group.y;
    const u32 k = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (k < K) {
        const u32 block_at = (ids[token] * (K >> 5u) + (k >> 5u)) * BLOCK_BYTES;
        const limbs scale = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
        const u32 q_at = block_at + quant_at(k & 31u);
        const u32 q = quant_of((w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u, k & 31u);
        limbs weight = i64_mul(scale, i64_from_i32(q));
        if (HAS_MIN == 1u) {
            const u32 min_at = block_at + 2u;
            weight = i64_add(weight, scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu));
        }
        limbs result = i64_shr(weight, 8u);
        if (KNOWN_BAD == 0u) {
            result = i64_round_shift(weight, 8u);
        }
        const u32 at = (token * K + k) << 1u;
        x[at] = result.x;
        x[at + 1u] = result.y;
    }
}
