// mix: o[t,h,d] = round_shift(sum over s of p[h,t,s] * v[s,g,d], 30) over the keys s that query t sees, p Q30, v and o
// Q16, all of 64 bits: op 7 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The queries are the last T of the S positions; one sees its own and those before it. Query head h reads value head
// g = floor(h / (H / kv)). Sums are pairs of words by the prelude int64_limbs, exact modulo 2^64. A lane makes one
// output: group x is 64 elements of a head, group y the query, group z the head. Under the schedule tree a workgroup
// makes one output: group x is the element, 64 lanes take turns at the terms, then their sums are added pairwise. Under
// split_k group z is head and part, 8 to a head; entry point combine adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const PART: u32 = 6u;

// T, S, H, heads to a value head, head width, first query, terms in a part
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> p: array<u32>;
@group(0) @binding(2) var<storage, read> v: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> o: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<limbs, LANES>;

@compute @workgroup_size(64, 1, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let T = params[0];
    let S = params[1];
    let H = params[2];
    let width = params[4];
    let query = params[5] + group.y;
    let terms = S - T + query + 1u - KNOWN_BAD;
    var d = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        d = group.x;
    }
    var head = group.z;
    var part = 0u;
    if (SCHEDULE == SPLIT_K) {
        head = group.z >> 3u;
        part = group.z & 7u;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let begin = first_term(SCHEDULE, part, params[PART], terms);
    let end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    var steps = steps_of_terms(SCHEDULE, begin, end, (S + TILE - 1u) >> 5u);
    if (d >= width) {
        steps = 0u;
    }

    let heads = params[3];
    let value_heads = u32_div(H, heads);
    let value_head = u32_div(head, heads);
    let p_at = (head * T + query) * S;
    var sum: limbs = i64_make(0u, 0u);
    for (var step = 0u; step < steps; step++) {
        let key = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (key < end) {
            let left = (p_at + key) << 1u;
            let right = ((key * value_heads + value_head) * width + d) << 1u;
            sum = i64_add(sum, i64_mul(i64_make(p[left], p[left + 1u]), i64_make(v[right], v[right + 1u])));
        }
    }

    if (SCHEDULE == TREE) {
        sums[lane.x] = sum;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] = i64_add(sums[lane.x], sums[lane.x + reach]);
            }
            workgroupBarrier();
        }
        if (lane.x > 0u) {
            return;
        }
        sum = sums[0];
    }
    if (d < width) {
        if (SCHEDULE == SPLIT_K) {
            let at = (((part * T + query) * H + head) * width + d) << 1u;
            scratch[at] = sum.x;
            scratch[at + 1u] = sum.y;
        } else {
            let result: limbs = i64_round_shift(sum, 30u);
            let at = ((query * H + head) * width + d) << 1u;
            o[at] = result.x;
            o[at + 1u] = result.y;
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    let T = params[0];
    let H = params[2];
    let width = params[4];
    let query = params[5] + group.y;
    let d = group.x * LANES + lane.x;
    let head = group.z;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (d < width) {
        var sum: limbs = i64_make(0u, 0u);
        for (var part = PARTS; part > 0u; part--) {
            let from_part = ((((part - 1u) * T + query) * H + head) * width + d) << 1u;
            sum = i64_add(sum, i64_make(scratch[from_part], scratch[from_part + 1u]));
        }
        let result: limbs = i64_round_shift(sum, 30u);
        let at = ((query * H + head) * width + d) << 1u;
        o[at] = result.x;
        o[at + 1u] = result.y;
    }
}
