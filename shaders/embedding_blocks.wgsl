// embedding_blocks: x[t,k] = round_shift(W[ids[t],k], 8), W the Q24 values of weights in blocks, x Q16 in 64 bits: op 1 of
// profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Integers are pairs of words by the prelude
// int64_limbs. A lane makes one output: group x is 64 weights of a row, group y the token.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;

// The Q24 value of a finite fp16: exact, for 2^-24 is its smallest step.
fn scale_of(bits: u32) -> limbs {
    let exponent = (bits >> 10u) & 31u;
    var scale: limbs = i64_make(bits & 1023u, 0u);
    if (exponent > 0u) {
        scale = i64_shl(i64_make(1024u | (bits & 1023u), 0u), exponent - 1u);
    }
    if ((bits & 0x8000u) != 0u) {
        scale = i64_neg(scale);
    }
    return scale;
}

// T tokens, K, first token of the band
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read> w: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn look_up(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let K = params[1];
    let token = params[2] + group.y;
    let k = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (k < K) {
        let block_at = (ids[token] * (K >> 5u) + (k >> 5u)) * BLOCK_BYTES;
        let scale: limbs = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
        let q_at = block_at + quant_at(k & 31u);
        let q = quant_of((w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u, k & 31u);
        var weight: limbs = i64_mul(scale, i64_from_i32(q));
        if (HAS_MIN == 1u) {
            let min_at = block_at + 2u;
            weight = i64_add(weight, scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu));
        }
        var result: limbs = i64_shr(weight, 8u);
        if (KNOWN_BAD == 0u) {
            result = i64_round_shift(weight, 8u);
        }
        let at = (token * K + k) << 1u;
        x[at] = result.x;
        x[at + 1u] = result.y;
    }
}
