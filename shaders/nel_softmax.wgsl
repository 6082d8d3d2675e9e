// nel_softmax: p[h,t,j] = min(round_shift(e_j * R, 15), 32767), R = floor(2^30 / sum of e), e_j = powers[d & 63] >> (d
// >> 6), 0 where d >= 1024, d = floor((max - s_j) / 128), over the keys j <= P - M + t, else 0: operation 7 of
// nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// A lane makes the row of a query, group y is the head; under the schedule tree a workgroup does, 64 lanes take turns
// at its maximum and its sum. Under split_k group z is the part: maxima and sums keep what each part has, weigh takes
// them from there.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const HEADS: u32 = 4u;
const LOWEST: u32 = 0x80000000u;
const SCORE_SHIFT: u32 = 7u;
const WEIGHT_SHIFT: u32 = 15u;
const LARGEST: u32 = 32767u;

fn larger(a: u32, b: u32) -> u32 {
    var most = a;
    if (i32_less(a, b) == 1u) {
        most = b;
    }
    return most;
}

// e at a gap, out of its entry of powers.
fn weight_of(gap: u32, entry: u32) -> u32 {
    var e = 0u;
    if (gap < 1024u) {
        e = entry >> (gap >> 6u);
    }
    return e;
}

// M queries, P keys, terms in a part, tiles
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> s: array<u32>;
@group(0) @binding(2) var<storage, read> powers: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> p: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> lanes: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn weigh(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let P = params[1];
    var query = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        query = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let row = (group.y * M + query) * P;
    let count = P - M + query + 1u;
    var steps = steps_of_terms(SCHEDULE, 0u, count, params[3]);
    if (query >= M || SCHEDULE == SPLIT_K) {
        steps = 0u;
    }
    var most = LOWEST;
    for (var step = 0u; step < steps; step++) {
        let j = term_of(SCHEDULE, step, 0u, count, order[step >> 5u], lane.x);
        if (j < count) {
            most = larger(most, s[row + j]);
        }
    }
    if (SCHEDULE == TREE) {
        lanes[lane.x] = most;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                lanes[lane.x] = larger(lanes[lane.x], lanes[lane.x + reach]);
            }
            workgroupBarrier();
        }
        most = lanes[0];
        workgroupBarrier();
    }
    if (SCHEDULE == SPLIT_K && query < M) {
        for (var part = PARTS; part > 0u; part--) {
            most = larger(most, scratch[((part - 1u) * HEADS + group.y) * M + query]);
        }
    }

    let end = count - KNOWN_BAD;
    var sum = 0u;
    for (var step = 0u; step < steps; step++) {
        let j = term_of(SCHEDULE, step, 0u, end, order[step >> 5u], lane.x);
        if (j < end) {
            let gap = (most - s[row + j]) >> SCORE_SHIFT;
            sum += weight_of(gap, powers[gap & 63u]);
        }
    }
    if (SCHEDULE == TREE) {
        lanes[lane.x] = sum;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                lanes[lane.x] += lanes[lane.x + reach];
            }
            workgroupBarrier();
        }
        if (lane.x > 0u) {
            return;
        }
        sum = lanes[0];
    }
    if (query >= M) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        for (var part = PARTS; part > 0u; part--) {
            sum += scratch[((PARTS + part - 1u) * HEADS + group.y) * M + query];
        }
    }

    let ratio = u32_div(1u << 30u, sum);
    for (var j = 0u; j < P; j++) {
        var weight = 0u;
        if (j < count) {
            let gap = (most - s[row + j]) >> SCORE_SHIFT;
            weight = i32_round_shift(weight_of(gap, powers[gap & 63u]) * ratio, WEIGHT_SHIFT);
            if (weight > LARGEST) {
                weight = LARGEST;
            }
        }
        p[row + j] = weight;
    }
}

@compute @workgroup_size(64, 1, 1)
fn maxima(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let P = params[1];
    let query = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (query >= M) {
        return;
    }
    let count = P - M + query + 1u;
    let first = first_term(SPLIT_K, group.z, params[2], count);
    let end = end_of_terms(SPLIT_K, first, params[2], count);
    var most = LOWEST;
    for (var j = first; j < end; j++) {
        most = larger(most, s[(group.y * M + query) * P + j]);
    }
    scratch[(group.z * HEADS + group.y) * M + query] = most;
}

@compute @workgroup_size(64, 1, 1)
fn sums(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let P = params[1];
    let query = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[2] = NONCE;
    }
    if (query >= M) {
        return;
    }
    var most = LOWEST;
    for (var part = PARTS; part > 0u; part--) {
        most = larger(most, scratch[((part - 1u) * HEADS + group.y) * M + query]);
    }
    let count = P - M + query + 1u - KNOWN_BAD;
    let first = first_term(SPLIT_K, group.z, params[2], count);
    let end = end_of_terms(SPLIT_K, first, params[2], count);
    var sum = 0u;
    for (var j = first; j < end; j++) {
        let gap = (most - s[(group.y * M + query) * P + j]) >> SCORE_SHIFT;
        sum += weight_of(gap, powers[gap & 63u]);
    }
    scratch[((PARTS + group.z) * HEADS + group.y) * M + query] = sum;
}
