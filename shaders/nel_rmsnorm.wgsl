// nel_rmsnorm: y = sat8(round_shift(x * inv * gain, 31)) of i8[M,32], inv = floor(2^30 / isqrt(floor(sum of x^2 / 32) +
// 1)) of its row: operation 4 of nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// A lane makes a row; under the schedule tree a workgroup does, 64 lanes take turns at its squares. Under split_k group
// y is the part; entry point combine adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const WIDTH: u32 = 32u;
const SHIFT: u32 = 31u;

fn inverse(squares: u32) -> u32 {
    return u32_div(1u << 30u, u32_isqrt((squares >> 5u) + 1u));
}

fn normalized(x: u32, inv: u32, gain: u32) -> u32 {
    let product: limbs = i64_mul(i64_mul(i64_from_i32(x), i64_make(inv, 0u)), i64_from_i32(gain));
    return sat8(i64_round_shift(product, SHIFT).x);
}

// rows, terms in a part, tiles
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> gain: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn scale_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    var row = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let first = first_term(SCHEDULE, group.y, params[1], WIDTH - KNOWN_BAD);
    let end = end_of_terms(SCHEDULE, first, params[1], WIDTH - KNOWN_BAD);
    var steps = steps_of_terms(SCHEDULE, first, end, params[2]);
    if (row >= M) {
        steps = 0u;
    }
    var sum = 0u;
    for (var step = 0u; step < steps; step++) {
        let k = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (k < end) {
            let at = row * WIDTH + k;
            let value = i8_of(x[at >> 2u], at);
            sum += value * value;
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
    if (row >= M) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        scratch[group.y * M + row] = sum;
        return;
    }
    let inv = inverse(sum);
    for (var column = 0u; column < WIDTH; column++) {
        let at = row * WIDTH + column;
        y[at] = normalized(i8_of(x[at >> 2u], at), inv, i8_of(gain[column >> 2u], column));
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let row = group.x * LANES + lane.x;
    if (row == 0u) {
        receipt[1] = NONCE;
    }
    if (row >= M) {
        return;
    }
    var sum = 0u;
    for (var part = PARTS; part > 0u; part--) {
        sum += scratch[(part - 1u) * M + row];
    }
    let inv = inverse(sum);
    for (var column = 0u; column < WIDTH; column++) {
        let at = row * WIDTH + column;
        y[at] = normalized(i8_of(x[at >> 2u], at), inv, i8_of(gain[column >> 2u], column));
    }
}
