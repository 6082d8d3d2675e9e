// nel_scores: s[h,t,j] = sum over d of q[t,h,d] * k[j,h/2,d] where key j <= P - M + t, else 0: operation 6 of
// nel-mini-w8a8; the reference is cpu_ref/nel_mini_w8a8.py.
//
// q is i8[M,4,D], k i8[P,2,D]. A lane makes one output: group x is 64 keys, group y the query, group z the head. Under
// the schedule tree a workgroup makes one output, group x is the key, 64 lanes take turns at its terms. Under split_k
// group z is part and head; entry point combine adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const HEADS: u32 = 4u;

// M queries, P keys, D, terms in a part, tiles
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<u32>;
@group(0) @binding(2) var<storage, read> k: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> s: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let P = params[1];
    let D = params[2];
    let query = group.y;
    let head = group.z & 3u;
    let part = group.z >> 2u;
    var key = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        key = group.x;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let first = first_term(SCHEDULE, part, params[3], D - KNOWN_BAD);
    let end = end_of_terms(SCHEDULE, first, params[3], D - KNOWN_BAD);
    var steps = steps_of_terms(SCHEDULE, first, end, params[4]);
    if (key > P - M + query) {
        steps = 0u;
    }
    let q_row = (query * HEADS + head) * D;
    let k_row = (key * (HEADS >> 1u) + (head >> 1u)) * D;
    var sum = 0u;
    for (var step = 0u; step < steps; step++) {
        let d = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (d < end) {
            let q_at = q_row + d;
            let k_at = k_row + d;
            sum += i8_of(q[q_at >> 2u], q_at) * i8_of(k[k_at >> 2u], k_at);
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
    if (key < P) {
        let at = (head * M + query) * P + key;
        if (SCHEDULE == SPLIT_K) {
            scratch[part * HEADS * M * P + at] = sum;
        } else {
            s[at] = sum;
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let outputs = HEADS * params[0] * params[1];
    let i = group.x * LANES + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < outputs) {
        var sum = 0u;
        for (var part = PARTS; part > 0u; part--) {
            sum += scratch[(part - 1u) * outputs + i];
        }
        s[i] = sum;
    }
}
