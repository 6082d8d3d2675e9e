// softmax: p[h,t,s] = round_shift(e * floor((2^62 - 1) / sum of e), 32), e = round_shift(e1[d >> 8] * e2[d & 255], 30),
// d = max(z) - z over the keys s that query t sees, else 0, z Q16, p Q30, both of 64 bits, e1 and e2 Q30 in 32: op 6 of
// profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The queries are the last T of the S positions; one sees its own and those before it. e is 0 from the end of e1 on. A
// workgroup makes one row: group x is the query, group y the head. One lane finds the maximum, then the sum of e; under
// the schedule tree 64 lanes take turns at the keys, then what they found is joined pairwise. Under split_k group z is
// the part, each reduction is a pass, and entry point combine joins the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const PART: u32 = 4u;
const MAXIMUM: u32 = 0u;
const SUM: u32 = 1u;
const SOFTMAX_END: u32 = 5632u;

fn larger(a: limbs, b: limbs) -> limbs {
    var c: limbs = a;
    if (i64_less(a, b) == 1u) {
        c = b;
    }
    return c;
}

// What two keys' worth of a reduction is together.
fn join(reduction: u32, a: limbs, b: limbs) -> limbs {
    var both: limbs = i64_add(a, b);
    if (reduction == MAXIMUM) {
        both = larger(a, b);
    }
    return both;
}

// e, Q30, from its two factors.
fn weight(coarse: u32, fine: u32) -> u32 {
    return i64_round_shift(i64_mul_words(coarse, fine), 30u).x;
}

// floor((2^62 - 1) / sum), where sum is at least 2^30.
fn reciprocal(sum: limbs) -> limbs {
    return u64_div(i64_make(0xffffffffu, 0x3fffffffu), sum);
}

// T, S, H, first query, keys in a part, first reduction, end of the reductions
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> z: array<u32>;
@group(0) @binding(2) var<storage, read> e1: array<u32>;
@group(0) @binding(3) var<storage, read> e2: array<u32>;
@group(0) @binding(4) var<storage, read> order: array<u32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(6) var<storage, read_write> p: array<u32>;
@group(0) @binding(7) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<limbs, LANES>;

@compute @workgroup_size(64, 1, 1)
fn weigh(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let T = params[0];
    let S = params[1];
    let H = params[2];
    let query = params[3] + group.x;
    let head = group.y;
    let part = group.z;
    let visible = S - T + query + 1u;
    let terms = visible - KNOWN_BAD;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let begin = first_term(SCHEDULE, part, params[PART], terms);
    let end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    var steps = steps_of_terms(SCHEDULE, begin, end, (S + TILE - 1u) >> 5u);
    if (SCHEDULE != TREE && lane.x > 0u) {
        steps = 0u;
    }

    let row_at = ((head * T + query) * S) << 1u;
    var top: limbs = i64_make(0u, 0x80000000u);
    if (SCHEDULE == SPLIT_K && params[5] == SUM) {
        for (var other = PARTS; other > 0u; other--) {
            let at = (((other - 1u) * H + head) * T + query) << 1u;
            top = larger(top, i64_make(scratch[at], scratch[at + 1u]));
        }
    }
    for (var reduction = params[5]; reduction < params[6]; reduction++) {
        var found: limbs = i64_make(0u, 0u);
        if (reduction == MAXIMUM) {
            found = top;
        }
        for (var step = 0u; step < steps; step++) {
            let key = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
            if (key < end) {
                let at = row_at + (key << 1u);
                let score: limbs = i64_make(z[at], z[at + 1u]);
                if (reduction == MAXIMUM) {
                    found = larger(found, score);
                } else {
                    let below: limbs = i64_sub(top, score);
                    let coarse: limbs = u64_shr(below, 8u);
                    if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                        found = i64_add(found, i64_make(weight(e1[coarse.x], e2[below.x & 255u]), 0u));
                    }
                }
            }
        }
        sums[lane.x] = found;
        workgroupBarrier();
        if (SCHEDULE == TREE) {
            for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
                if (lane.x < reach) {
                    sums[lane.x] = join(reduction, sums[lane.x], sums[lane.x + reach]);
                }
                workgroupBarrier();
            }
        }
        if (SCHEDULE == SPLIT_K && lane.x == 0u) {
            let at = (((reduction * PARTS + part) * H + head) * T + query) << 1u;
            scratch[at] = found.x;
            scratch[at + 1u] = found.y;
        }
        if (reduction == MAXIMUM) {
            top = sums[0];
        }
        workgroupBarrier();
    }
    if (SCHEDULE == SPLIT_K) {
        return;
    }
    if (lane.x == 0u) {
        sums[0] = reciprocal(sums[0]);
    }
    workgroupBarrier();
    let quotient = sums[0].x;
    for (var key = lane.x; key < S; key += LANES) {
        let at = row_at + (key << 1u);
        var result: limbs = i64_make(0u, 0u);
        if (key < visible) {
            let below: limbs = i64_sub(top, i64_make(z[at], z[at + 1u]));
            let coarse: limbs = u64_shr(below, 8u);
            if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                result = i64_round_shift(i64_mul_words(weight(e1[coarse.x], e2[below.x & 255u]), quotient), 32u);
            }
        }
        p[at] = result.x;
        p[at + 1u] = result.y;
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    let T = params[0];
    let S = params[1];
    let H = params[2];
    let query = params[3] + group.x;
    let head = group.y;
    let visible = S - T + query + 1u;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    let row_at = ((head * T + query) * S) << 1u;
    var top: limbs = i64_make(0u, 0x80000000u);
    var sum: limbs = i64_make(0u, 0u);
    for (var part = PARTS; part > 0u; part--) {
        let top_at = (((part - 1u) * H + head) * T + query) << 1u;
        top = larger(top, i64_make(scratch[top_at], scratch[top_at + 1u]));
        let sum_at = (((PARTS + part - 1u) * H + head) * T + query) << 1u;
        sum = i64_add(sum, i64_make(scratch[sum_at], scratch[sum_at + 1u]));
    }
    if (lane.x == 0u) {
        sums[0] = reciprocal(sum);
    }
    workgroupBarrier();
    let quotient = sums[0].x;
    for (var key = lane.x; key < S; key += LANES) {
        let at = row_at + (key << 1u);
        var result: limbs = i64_make(0u, 0u);
        if (key < visible) {
            let below: limbs = i64_sub(top, i64_make(z[at], z[at + 1u]));
            let coarse: limbs = u64_shr(below, 8u);
            if (coarse.y == 0u && coarse.x < SOFTMAX_END) {
                result = i64_round_shift(i64_mul_words(weight(e1[coarse.x], e2[below.x & 255u]), quotient), 32u);
            }
        }
        p[at] = result.x;
        p[at + 1u] = result.y;
    }
}
