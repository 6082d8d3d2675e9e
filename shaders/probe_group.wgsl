// probe_group: what the lanes of a workgroup hand to each other, an operation a row;
// the reference is cpu_ref/probe_group.py.
//
// A workgroup of 64 lanes takes a row: an operation and its four operand words. Each lane gets four words, and the
// row's results sum these up, place by place, so that the order of the lanes counts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;
const CELLS: u32 = 16u;
const SHARES: u32 = 256u;

// What a loop does in a round: no compiler sums it up.
fn mixed(s: u32, x: u32) -> u32 {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

// own_*: the atomics of this language on workgroup memory; each gives what was there before.

fn own_add(i: u32, v: u32) -> u32 {
    return atomicAdd(&cells[i], v);
}

fn own_sub(i: u32, v: u32) -> u32 {
    return atomicSub(&cells[i], v);
}

fn own_min(i: u32, v: u32) -> u32 {
    return atomicMin(&cells[i], v);
}

fn own_max(i: u32, v: u32) -> u32 {
    return atomicMax(&cells[i], v);
}

fn own_min_s(i: u32, v: u32) -> u32 {
    return u32(atomicMin(&levels[i], i32(v)));
}

fn own_max_s(i: u32, v: u32) -> u32 {
    return u32(atomicMax(&levels[i], i32(v)));
}

fn own_and(i: u32, v: u32) -> u32 {
    return atomicAnd(&cells[i], v);
}

fn own_or(i: u32, v: u32) -> u32 {
    return atomicOr(&cells[i], v);
}

fn own_xor(i: u32, v: u32) -> u32 {
    return atomicXor(&cells[i], v);
}

fn own_exchange(i: u32, v: u32) -> u32 {
    return atomicExchange(&cells[i], v);
}

fn own_compare_exchange(i: u32, old: u32, v: u32) -> u32 {
    while (true) {
        let r = atomicCompareExchangeWeak(&cells[i], old, v);
        if (r.exchanged || r.old_value != old) {
            return r.old_value;
        }
    }
    return 0u;
}

fn own_cell(i: u32) -> u32 {
    return atomicLoad(&cells[i]);
}

fn own_level(i: u32) -> u32 {
    return u32(atomicLoad(&levels[i]));
}

fn own_begin(i: u32, v: u32) {
    atomicStore(&cells[i], v);
    atomicStore(&levels[i], i32(v));
}

// Each lane writes one word and reads others'.
fn handed_over(lane: u32, a: u32, b: u32) -> quad {
    tile[lane] = mixed(a, lane);
    workgroupBarrier();
    return words(tile[(lane + b) & 63u], tile[63u - lane], tile[0u], tile[63u]);
}

// What is read between two barriers is not what comes after the second.
fn between(lane: u32, a: u32, b: u32) -> quad {
    if (lane == 0u) {
        tile[0u] = a;
    }
    workgroupBarrier();
    let first = tile[0u];
    workgroupBarrier();
    if (lane == 0u) {
        tile[0u] = b;
    }
    workgroupBarrier();
    return words(first, tile[0u], 0u, 0u);
}

// The last lane tells all.
fn from_last(lane: u32, a: u32) -> quad {
    if (lane == 63u) {
        tile[7u] = a;
    }
    workgroupBarrier();
    return words(tile[7u], 0u, 0u, 0u);
}

// The same memory holds one thing after the other.
fn used_twice(lane: u32, a: u32, b: u32) -> quad {
    tile[lane] = a + lane;
    workgroupBarrier();
    let x = tile[63u - lane];
    workgroupBarrier();
    tile[lane] = x * b + lane;
    workgroupBarrier();
    return words(x, tile[(lane + 1u) & 63u], 0u, 0u);
}

// Barriers in a loop whose count is known at run time.
fn in_loop(lane: u32, a: u32, trips: u32) -> u32 {
    var v = a + lane;
    for (var t = 0u; t < trips; t++) {
        tile[lane] = v;
        workgroupBarrier();
        v = mixed(v, tile[(lane + t + 1u) & 63u]);
        workgroupBarrier();
    }
    return v;
}

// A barrier in a branch that all lanes take, or none; an index that lives across it.
fn in_branch(lane: u32, a: u32, b: u32, c: u32) -> quad {
    let place = (lane + c) & 63u;
    var v = 0u;
    tile[lane] = 5u;
    workgroupBarrier();
    if (a <= b) {
        tile[place] = lane;
        workgroupBarrier();
        v = tile[lane] + place;
        workgroupBarrier();
        tile[place] = v;
    } else {
        v = place;
    }
    workgroupBarrier();
    return words(v, tile[lane], place, 0u);
}

// Running sums: a word goes on by 1, 2, 4, ... lanes.
fn scanned(lane: u32, a: u32) -> quad {
    var v = mixed(a, lane);
    for (var reach = 1u; reach < LANES; reach <<= 1u) {
        tile[lane] = v;
        workgroupBarrier();
        if (lane >= reach) {
            v += tile[lane - reach];
        }
        workgroupBarrier();
    }
    return words(v, 0u, 0u, 0u);
}

// Sums, and of what the additions gave back: each number below 64 once.
fn added(lane: u32, a: u32, b: u32) -> quad {
    own_add(0u, a * lane);
    own_sub(1u, b + lane);
    let before = own_add(2u, 1u);
    own_add(3u, before * before * before);
    workgroupBarrier();
    return words(own_cell(0u), own_cell(1u), own_cell(2u), own_cell(3u));
}

fn bounded(lane: u32, a: u32, c: u32) -> quad {
    let v = mixed(a, lane) >> (c & 31u);
    own_min(4u, v);
    own_max(5u, v);
    own_min_s(6u, v);
    own_max_s(7u, v);
    workgroupBarrier();
    return words(own_cell(4u), own_cell(5u), own_level(6u), own_level(7u));
}

fn of_bits(lane: u32, a: u32) -> quad {
    let v = mixed(a, lane);
    own_and(4u, v | (1u << (lane & 15u)));
    own_or(8u, v & 0x11111111u);
    own_xor(9u, v);
    workgroupBarrier();
    return words(own_cell(4u), own_cell(8u), own_cell(9u), 0u);
}

// Whatever the order: what was given back and what stays is what was put in.
fn exchanged(lane: u32, a: u32) -> quad {
    let before = own_exchange(10u, mixed(a, lane));
    own_add(11u, before);
    workgroupBarrier();
    return words(own_cell(10u) + own_cell(11u), 0u, 0u, 0u);
}

// One lane finds the 0 and the others what it left; then each adds until nobody came between.
fn compared(lane: u32, a: u32) -> quad {
    let before = own_compare_exchange(12u, 0u, lane + 1u);
    if (before == 0u) {
        own_add(13u, 1u);
    }
    var seen = own_add(14u, 0u);
    while (true) {
        let found = own_compare_exchange(14u, seen, seen + a + lane);
        if (found == seen) {
            break;
        }
        seen = found;
    }
    workgroupBarrier();
    let winner = own_cell(12u);
    if (before != 0u && before != winner) {
        own_add(13u, 256u);
    }
    workgroupBarrier();
    return words(own_cell(13u), own_cell(14u), u32(winner - 1u < LANES), 0u);
}

// Lanes count in bins that they share; what follows in memory outside the workgroup leaves them alone.
fn histogram(lane: u32, a: u32, b: u32) -> quad {
    own_add((lane * a + b) & 15u, 1u);
    workgroupBarrier();
    return words(own_cell(lane & 15u), 0u, 0u, 0u);
}

// What no lane has written yet.
fn zeroed(lane: u32) -> quad {
    return words(fresh[lane], fresh[63u - lane], fresh[lane + 64u], 0u);
}

fn operation(op: u32, lane: u32, a: u32, b: u32, c: u32, d: u32) -> quad {
    switch (op) {
        case 0u: { return handed_over(lane, a, b); }  // handed_over
        case 1u: { return between(lane, a, b); }  // between
        case 2u: { return from_last(lane, a); }  // from_last
        case 3u: { return used_twice(lane, a, b); }  // used_twice
        case 4u: { return words(in_loop(lane, a, d), 0u, 0u, 0u); }  // in_loop
        case 5u: { return words(in_loop(lane, a, 4u), 0u, 0u, 0u); }  // in_unrolled_loop
        case 6u: { return in_branch(lane, a, b, c); }  // in_branch
        case 7u: { return scanned(lane, a); }  // scanned
        case 8u: { return added(lane, a, b); }  // added
        case 9u: { return bounded(lane, a, c); }  // bounded_cells
        case 10u: { return of_bits(lane, a); }  // of_bits
        case 11u: { return exchanged(lane, a); }  // exchanged
        case 12u: { return compared(lane, a); }  // compared
        case 13u: { return histogram(lane, a, b); }  // histogram
        case 14u: { return zeroed(lane); }  // zeroed
        default: { return words(0u, 0u, 0u, 0u); }
    }
}

@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ops: array<u32>;
@group(0) @binding(2) var<storage, read> operands: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

var<workgroup> tile: array<u32, LANES>;
var<workgroup> cells: array<atomic<u32>, CELLS>;
var<workgroup> levels: array<atomic<i32>, CELLS>;
var<workgroup> fresh: array<u32, SHARES>;

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x;
    if (row + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    let at = row << 2u;
    let op = ops[row];
    let d = operands[at + 3u];
    if (op < 14u) {
        if (lane.x < CELLS) {
            own_begin(lane.x, d * u32((op == 9u || op == 10u) && (lane.x == 4u || lane.x == 6u)));
        }
        workgroupBarrier();
    }
    let r = operation(op, lane.x, operands[at], operands[at + 1u], operands[at + 2u], d);
    workgroupBarrier();
    fresh[lane.x] = r.x;
    fresh[LANES + lane.x] = r.y;
    fresh[LANES * 2u + lane.x] = r.z;
    fresh[LANES * 3u + lane.x] = r.w;
    workgroupBarrier();
    if (lane.x < 4u) {
        var sum = 0u;
        for (var i = 0u; i < LANES; i++) {
            sum = sum * 31u + fresh[lane.x * LANES + i];
        }
        results[at + lane.x] = sum ^ (KNOWN_BAD * u32(lane.x == 0u));
    }
}
