// nel_mix: y[t,c] = sum over keys j <= P - M + t of p[c/8,t,j] * v[j,c/16,c mod 8], i32[M,32]: operation 8 of
// nel-mini-w8a8 before Requant; the reference is cpu_ref/nel_mini_w8a8.py.
//
// p is i32[4,M,P], v i8[P,16]. A lane makes one output: group x is 2 rows of 32. Under the schedule tree a workgroup
// makes one output: group x is the row, group y the column, 64 lanes take turns at its terms. Under split_k group z is
// the part; entry point combine adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const WIDTH: u32 = 32u;
const VALUES: u32 = 16u;

// M rows, P keys, terms in a part, tiles
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> p: array<u32>;
@group(0) @binding(2) var<storage, read> v: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<u32, LANES>;

@compute @workgroup_size(64, 1, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let P = params[1];
    var row = (group.x << 1u) + (lane.x >> 5u);
    var column = lane.x & 31u;
    if (SCHEDULE == TREE) {
        row = group.x;
        column = group.y;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let count = P - M + row + 1u - KNOWN_BAD;
    let first = first_term(SCHEDULE, group.z, params[2], count);
    let end = end_of_terms(SCHEDULE, first, params[2], count);
    var steps = steps_of_terms(SCHEDULE, first, end, params[3]);
    if (row >= M) {
        steps = 0u;
    }
    let p_row = ((column >> 3u) * M + row) * P;
    let v_column = ((column >> 4u) << 3u) + (column & 7u);
    var sum = 0u;
    for (var step = 0u; step < steps; step++) {
        let j = term_of(SCHEDULE, step, first, end, order[step >> 5u], lane.x);
        if (j < end) {
            let v_at = j * VALUES + v_column;
            sum += p[p_row + j] * i8_of(v[v_at >> 2u], v_at);
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
    if (row < M) {
        let at = row * WIDTH + column;
        if (SCHEDULE == SPLIT_K) {
            scratch[group.z * M * WIDTH + at] = sum;
        } else {
            y[at] = sum;
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let outputs = params[0] * WIDTH;
    let i = group.x * LANES + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < outputs) {
        var sum = 0u;
        for (var part = PARTS; part > 0u; part--) {
            sum += scratch[(part - 1u) * outputs + i];
        }
        y[i] = sum;
    }
}
