// linear_blocks_int64: y[m,n] = round_shift(bias[n] + sum over k of W[n,k] * x[m,k], 24), W the Q24 values of weights
// in blocks, x and y Q16, bias Q40, all of 64 bits: op 2 of profile dyadic-q16; the reference is cpu_ref/linear.py.
//
// The block type is the prelude's: block_q8_0, block_q4_1 or block_q4_0. Sums are native 64-bit integers, exact modulo
// 2^64, and rounded once, after the last addition. A lane makes one output: group x is 64 rows of W, group y the token,
// in both entry points. Under the schedule tree a workgroup makes one output: group x is the row, 64 lanes take turns
// at the terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine adds the
// parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const REVERSE: u32 = 1u;
const SPLIT_K: u32 = 2u;
const TILED_SHUFFLED: u32 = 3u;
const TREE: u32 = 4u;

const PARTS: u32 = 8u;
const LANES: u32 = 64u;
const TILE: u32 = 32u;
const SHIFT: u32 = 24u;

// The Q24 value of a finite fp16: exact, for 2^-24 is its smallest step.
fn scale_of(bits: u32) -> u64 {
    let exponent = (bits >> 10u) & 31u;
    var scale: u64 = u64(bits & 1023u);
    if (exponent > 0u) {
        scale = u64(1024u | (bits & 1023u)) << (exponent - 1u);
    }
    if ((bits & 0x8000u) != 0u) {
        scale = 0lu - scale;
    }
    return scale;
}

// floor((a + 2^(n-1)) / 2^n), 1 <= n <= 63, a signed: half up.
fn round_shift(a: u64, n: u32) -> u64 {
    return u64(i64(a + (1lu << (n - 1u))) >> n);
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

var<workgroup> sums: array<u64, LANES>;

@compute @workgroup_size(64, 1, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let K = params[2];
    let terms = K - KNOWN_BAD;
    let token = group.y;
    var row = params[3] + group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = params[3] + group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    // A step is one term; one whose k is not below end is none.
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
    var steps = end - begin;
    if (SCHEDULE == TILED_SHUFFLED) {
        steps = K;
    }
    if (SCHEDULE == TREE) {
        steps = (K + LANES - 1u) >> 6u;
    }
    if (row >= N || token >= M) {
        steps = 0u;
    }

    let row_at = (row - params[5]) * (K >> 5u) * BLOCK_BYTES;
    var sum: u64 = 0lu;
    var scale: u64 = 0lu;
    var least: u64 = 0lu;
    var scale_block = K;  // none yet
    for (var step = 0u; step < steps; step++) {
        var k = begin + step;
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
            let block = k >> 5u;
            let block_at = row_at + block * BLOCK_BYTES;
            if (block != scale_block) {
                scale_block = block;
                scale = scale_of((w[block_at >> 2u] >> ((block_at & 2u) << 3u)) & 0xffffu);
                if (HAS_MIN == 1u) {
                    let min_at = block_at + 2u;
                    least = scale_of((w[min_at >> 2u] >> ((min_at & 2u) << 3u)) & 0xffffu);
                }
            }
            let q_at = block_at + quant_at(k & 31u);
            let byte = (w[q_at >> 2u] >> ((q_at & 3u) << 3u)) & 255u;
            let q = quant_of(byte, k & 31u);
            let weight: u64 = scale * ((u64(q) ^ 0x80000000lu) - 0x80000000lu) + least;
            let x_at = (token * K + k) << 1u;
            sum += weight * ((u64(x[x_at + 1u]) << 32u) | u64(x[x_at]));
        }
    }

    if (SCHEDULE == TREE) {
        sums[lane.x] = sum;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] += sums[lane.x + reach];
            }
            workgroupBarrier();
        }
        if (lane.x > 0u) {
            return;
        }
        sum = sums[0];
    }
    if (row < N && token < M) {
        if (SCHEDULE == SPLIT_K) {
            let at = ((group.z * M + token) * N + row) << 1u;
            scratch[at] = u32(sum);
            scratch[at + 1u] = u32(sum >> 32u);
        } else {
            let bias_at = row << 1u;
            let from_bias: u64 = (u64(bias[bias_at + 1u]) << 32u) | u64(bias[bias_at]);
            let result: u64 = round_shift(sum + from_bias, SHIFT);
            let at = (token * N + row) << 1u;
            y[at] = u32(result);
            y[at + 1u] = u32(result >> 32u);
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
        var sum: u64 = 0lu;
        for (var part = PARTS; part > 0u; part--) {
            let at = (((part - 1u) * M + token) * N + row) << 1u;
            sum += (u64(scratch[at + 1u]) << 32u) | u64(scratch[at]);
        }
        let bias_at = row << 1u;
        let from_bias: u64 = (u64(bias[bias_at + 1u]) << 32u) | u64(bias[bias_at]);
        let result: u64 = round_shift(sum + from_bias, SHIFT);
        let at = (token * N + row) << 1u;
        y[at] = u32(result);
        y[at + 1u] = u32(result >> 32u);
    }
}
