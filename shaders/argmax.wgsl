// argmax: i[m] = the lowest n where x[m,n] is largest, x and i of 64 bits: the greedy choice of profile dyadic-q16; the
// reference is cpu_ref/dyadic_q16.py.
//
// Values are pairs of words by the prelude int64_limbs. A workgroup makes one row: group x. One lane looks through it;
// under the schedule tree 64 lanes take turns, then what they found is joined pairwise. Under split_k group z is the
// part; entry point combine joins the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const PART: u32 = 3u;

// 1 where b at place j goes before a at place i: it is larger, or equal and at a lower place.
fn before(b: limbs, j: u32, a: limbs, i: u32) -> u32 {
    var goes = i64_less(a, b);
    if (a.x == b.x && a.y == b.y && j < i) {
        goes = 1u;
    }
    return goes;
}

// M rows, N columns, first row of the band, terms in a part
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(4) var<storage, read_write> i: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

var<workgroup> values: array<limbs, LANES>;
var<workgroup> places: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn choose(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let terms = N - KNOWN_BAD;
    let row = params[2] + group.x;
    let part = group.z;
    if (group.x + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let begin = first_term(SCHEDULE, part, params[PART], terms);
    let end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    var steps = steps_of_terms(SCHEDULE, begin, end, (N + TILE - 1u) >> 5u);
    if (SCHEDULE != TREE && lane.x > 0u) {
        steps = 0u;
    }

    var value: limbs = i64_make(0u, 0x80000000u);
    var place = N;  // none yet
    for (var step = 0u; step < steps; step++) {
        let column = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (column < end) {
            let at = (row * N + column) << 1u;
            let there: limbs = i64_make(x[at], x[at + 1u]);
            if (before(there, column, value, place) == 1u) {
                value = there;
                place = column;
            }
        }
    }

    if (SCHEDULE == TREE) {
        values[lane.x] = value;
        places[lane.x] = place;
        workgroupBarrier();
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                let other = lane.x + reach;
                if (before(values[other], places[other], values[lane.x], places[lane.x]) == 1u) {
                    values[lane.x] = values[other];
                    places[lane.x] = places[other];
                }
            }
            workgroupBarrier();
        }
        place = places[0];
    }
    if (lane.x > 0u) {
        return;
    }
    if (SCHEDULE == SPLIT_K) {
        let at = (part * M + row) * 3u;
        scratch[at] = value.x;
        scratch[at + 1u] = value.y;
        scratch[at + 2u] = place;
    } else {
        i[row << 1u] = place;
        i[(row << 1u) + 1u] = 0u;
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    let M = params[0];
    let row = params[2] + group.x * LANES + lane.x;
    if (group.x + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M) {
        var value: limbs = i64_make(0u, 0x80000000u);
        var place = params[1];
        for (var part = PARTS; part > 0u; part--) {
            let at = ((part - 1u) * M + row) * 3u;
            let there: limbs = i64_make(scratch[at], scratch[at + 1u]);
            if (before(there, scratch[at + 2u], value, place) == 1u) {
                value = there;
                place = scratch[at + 2u];
            }
        }
        i[row << 1u] = place;
        i[(row << 1u) + 1u] = 0u;
    }
}
