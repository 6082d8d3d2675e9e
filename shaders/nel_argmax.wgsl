// nel_argmax: y[t] = the lowest place of the largest of N logits i32: operation 11 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// A lane makes one output; under the schedule tree a workgroup does, 64 lanes take turns at its logits. Under split_k
// group y is the part, which keeps its largest value and the place; entry point combine chooses among the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LOWEST: u32 = 0x80000000u;

// 1 where a value at its place is chosen before the best so far, else 0.
fn better(value: u32, place: u32, best: u32, best_place: u32) -> u32 {
    var chosen = i32_less(best, value);
    if (value == best && place < best_place) {
        chosen = 1u;
    }
    return chosen;
}

// rows, N, terms in a part, tiles
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

var<workgroup> values: array<u32, LANES>;
var<workgroup> places: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn choose(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    var row = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        row = group.x;
    }
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let first = first_term(SCHEDULE, group.y, params[2], N - KNOWN_BAD);
    let end = end_of_terms(SCHEDULE, first, params[2], N - KNOWN_BAD);
    var steps = steps_of_terms(SCHEDULE, first, end, params[3]);
    if (row >= M) {
        steps = 0u;
    }
    var best = LOWEST;
    var best_place = N;
    for (var step = 0u; step < steps; step++) {
        let k = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (k < end) {
            let value = logits[row * N + k];
            if (better(value, k, best, best_place) == 1u) {
                best = value;
                best_place = k;
            }
        }
    }

    if (SCHEDULE == TREE) {
        values[lane.x] = best;
        places[lane.x] = best_place;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                if (better(values[lane.x + reach], places[lane.x + reach], values[lane.x], places[lane.x]) == 1u) {
                    values[lane.x] = values[lane.x + reach];
                    places[lane.x] = places[lane.x + reach];
                }
            }
            workgroupBarrier();
        }
        if (lane.x > 0u) {
            return;
        }
        best_place = places[0];
    }
    if (row < M) {
        if (SCHEDULE == SPLIT_K) {
            let at = (group.y * M + row) << 1u;
            scratch[at] = best;
            scratch[at + 1u] = best_place;
        } else {
            y[row] = best_place;
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let row = group.x * LANES + lane.x;
    if (row == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M) {
        var best = LOWEST;
        var best_place = params[1];
        for (var part = PARTS; part > 0u; part--) {
            let at = ((part - 1u) * M + row) << 1u;
            if (better(scratch[at], scratch[at + 1u], best, best_place) == 1u) {
                best = scratch[at];
                best_place = scratch[at + 1u];
            }
        }
        y[row] = best_place;
    }
}
