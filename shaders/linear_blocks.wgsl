// linear_blocks: y[m,n] = round_shift(bias[n] + sum over k of W[n,k] * x[m,k], 24), W the Q24 values of weights in
// blocks, x and y Q16, bias Q40, all of 64 bits: op 2 of profile dyadic-q16; the reference is cpu_ref/linear.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Of a block the sum of q * x is taken first, exact
// modulo 2^64: its words are cut in halves so that 32 terms stay inside a word. Then it is times the scale, modulo 2^64 by
// the prelude int64_limbs, and rounded once, after the last addition. A lane makes one row of W by 4 tokens: group x is 64
// rows, group y 4 tokens. Under the schedule tree a workgroup makes one row by 4 tokens: group x is the row, 64 lanes take
// turns at the terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine, whose
// lanes make one output and whose group y is the token, adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const REVERSE: u32 = 1u;
const SPLIT_K: u32 = 2u;
const TILED_SHUFFLED: u32 = 3u;
const TREE: u32 = 4u;

const PARTS: u32 = 8u;
const LANES: u32 = 64u;
const TOKENS: u32 = 4u;
const SUMS: u32 = 256u;
const TILE: u32 = 32u;
const SHIFT: u32 = 24u;

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

// The sum modulo 2^64 of three words, each as a signed 32-bit integer, at bits 0, 16 and 32.
fn joined(low: u32, middle: u32, high: u32) -> limbs {
    return i64_add(i64_add(i64_from_i32(low), i64_shl(i64_from_i32(middle), 16u)), i64_make(0u, high));
}

// M tokens, N rows, K, first row of the band, terms in a part, first row of w
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;
@group(0) @binding(4) var<storage, read> order: array<u32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<u32>;
@group(0) @binding(7) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<limbs, SUMS>;

@compute @workgroup_size(64, 1, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let K = params[2];
    let terms = K - KNOWN_BAD;
    let token = group.y * TOKENS;
    var row = params[3] + group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = params[3] + group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    var begin = 0u;
    var end = terms;
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
    let block_first = begin >> 5u;
    var visits = ((end + 31u) >> 5u) - block_first;
    if (SCHEDULE == TILED_SHUFFLED) {
        visits = K >> 5u;
    }
    if (row >= N || SCHEDULE == TREE) {
        visits = 0u;
    }

    let row_at = (row - params[5]) * (K >> 5u) * BLOCK_BYTES;
    var results: array<limbs, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) {
        results[t] = i64_make(0u, 0u);
    }
    if (SCHEDULE == TREE && row < N) {
        // No two terms of a lane lie in one block: the weight is taken whole, then one product a token.
        for (var k = lane.x; k < terms; k += LANES) {
            let block_at = row_at + (k >> 5u) * BLOCK_BYTES;
            let q_at = block_at + quant_at(k & 31u);
            let byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
            let q = quant_of(byte, k & 31u);
            let scale: limbs = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
            var weight: limbs = i64_mul(scale, i64_from_i32(q));
            if (HAS_MIN == 1u) {
                let min_at = block_at + 2u;
                let least: limbs = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                weight = i64_add(weight, least);
            }
            for (var t = 0u; t < TOKENS; t++) {
                let x_at = (min(token + t, M - 1u) * K + k) << 1u;
                results[t] = i64_add(results[t], i64_mul(weight, i64_make(x[x_at], x[x_at + 1u])));
            }
        }
    }
    for (var visit = 0u; visit < visits; visit++) {
        var block = block_first + visit;
        if (SCHEDULE == REVERSE) {
            block = block_first + visits - 1u - visit;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            block = order[visit];
        }
        let low = max(block * TILE, begin);
        let high = min(block * TILE + TILE, end);
        if (low < high) {
            // Sums of q * x and of x: of the low and the high half of x's low word, and of its high word modulo 2^32.
            var lows: array<u32, TOKENS>;
            var middles: array<u32, TOKENS>;
            var highs: array<u32, TOKENS>;
            var x_lows: array<u32, TOKENS>;
            var x_middles: array<u32, TOKENS>;
            var x_highs: array<u32, TOKENS>;
            for (var t = 0u; t < TOKENS; t++) {
                lows[t] = 0u;
                middles[t] = 0u;
                highs[t] = 0u;
                x_lows[t] = 0u;
                x_middles[t] = 0u;
                x_highs[t] = 0u;
            }
            let block_at = row_at + block * BLOCK_BYTES;
            for (var term = low; term < high; term++) {
                var k = term;
                if (SCHEDULE == REVERSE) {
                    k = high - 1u - (term - low);
                }
                let q_at = block_at + quant_at(k & 31u);
                let byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
                let q = quant_of(byte, k & 31u);
                for (var t = 0u; t < TOKENS; t++) {
                    let x_at = (min(token + t, M - 1u) * K + k) << 1u;
                    let x_low = x[x_at];
                    let x_high = x[x_at + 1u];
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
            let scale: limbs = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
            for (var t = 0u; t < TOKENS; t++) {
                results[t] = i64_add(results[t], i64_mul(scale, joined(lows[t], middles[t], highs[t])));
            }
            if (HAS_MIN == 1u) {
                let min_at = block_at + 2u;
                let least: limbs = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                for (var t = 0u; t < TOKENS; t++) {
                    results[t] = i64_add(results[t], i64_mul(least, joined(x_lows[t], x_middles[t], x_highs[t])));
                }
            }
        }
    }

    if (SCHEDULE == TREE) {
        for (var t = 0u; t < TOKENS; t++) {
            sums[t * LANES + lane.x] = results[t];
        }
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                for (var t = 0u; t < TOKENS; t++) {
                    let at = t * LANES + lane.x;
                    sums[at] = i64_add(sums[at], sums[at + reach]);
                }
            }
            workgroupBarrier();
        }
        if (lane.x > 0u) {
            return;
        }
        for (var t = 0u; t < TOKENS; t++) {
            results[t] = sums[t * LANES];
        }
    }
    if (row < N) {
        for (var t = 0u; t < TOKENS && token + t < M; t++) {
            if (SCHEDULE == SPLIT_K) {
                let at = ((group.z * M + token + t) * N + row) << 1u;
                scratch[at] = results[t].x;
                scratch[at + 1u] = results[t].y;
            } else {
                let bias_at = row << 1u;
                let from_bias: limbs = i64_make(bias[bias_at], bias[bias_at + 1u]);
                let result: limbs = i64_round_shift(i64_add(results[t], from_bias), SHIFT);
                let at = ((token + t) * N + row) << 1u;
                y[at] = result.x;
                y[at + 1u] = result.y;
            }
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let token = group.y;
    let row = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < N && token < M) {
        var sum: limbs = i64_make(0u, 0u);
        for (var part = PARTS; part > 0u; part--) {
            let at = (((part - 1u) * M + token) * N + row) << 1u;
            sum = i64_add(sum, i64_make(scratch[at], scratch[at + 1u]));
        }
        let bias_at = row << 1u;
        let from_bias: limbs = i64_make(bias[bias_at], bias[bias_at + 1u]);
        let result: limbs = i64_round_shift(i64_add(sum, from_bias), SHIFT);
        let at = (token * N + row) << 1u;
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}
