// probe_atomics: atomics on memory that all workgroups share, an operation a row;
// the reference is cpu_ref/probe_group.py.
//
// Three workgroups of 64 lanes work on the four words of a row at once. Entry point clear sets them, probe changes
// them, and finish takes out what depends on the order.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 192u;

// What a loop does in a round: no compiler sums it up.
fn mixed(s: u32, x: u32) -> u32 {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

// own_*: the atomics of this language on storage; each gives what was there before.

fn own_add(i: u32, v: u32) -> u32 {
    return atomicAdd(&results[i], v);
}

fn own_sub(i: u32, v: u32) -> u32 {
    return atomicSub(&results[i], v);
}

fn own_min(i: u32, v: u32) -> u32 {
    return atomicMin(&results[i], v);
}

fn own_max(i: u32, v: u32) -> u32 {
    return atomicMax(&results[i], v);
}

fn own_and(i: u32, v: u32) -> u32 {
    return atomicAnd(&results[i], v);
}

fn own_or(i: u32, v: u32) -> u32 {
    return atomicOr(&results[i], v);
}

fn own_xor(i: u32, v: u32) -> u32 {
    return atomicXor(&results[i], v);
}

fn own_exchange(i: u32, v: u32) -> u32 {
    return atomicExchange(&results[i], v);
}

fn own_compare_exchange(i: u32, old: u32, v: u32) -> u32 {
    while (true) {
        let r = atomicCompareExchangeWeak(&results[i], old, v);
        if (r.exchanged || r.old_value != old) {
            return r.old_value;
        }
    }
    return 0u;
}

fn own_cell(i: u32) -> u32 {
    return atomicLoad(&results[i]);
}

fn own_set(i: u32, v: u32) {
    atomicStore(&results[i], v);
}

// Sums, and of what the additions gave back: each number below 192 once.
fn added(at: u32, lane: u32, a: u32, b: u32) -> u32 {
    own_add(at, a * lane);
    own_sub(at + 1u, b + lane);
    let before = own_add(at + 2u, 1u);
    return own_add(at + 3u, before * before * before);
}

fn bounded(at: u32, lane: u32, a: u32, c: u32) -> u32 {
    let v = mixed(a, lane) >> (c & 31u);
    own_min(at, v);
    return own_max(at + 1u, v);
}

fn of_bits(at: u32, lane: u32, a: u32) -> u32 {
    let v = mixed(a, lane);
    own_and(at, v | (1u << (lane & 15u)));
    own_or(at + 1u, v & 0x11111111u);
    return own_xor(at + 2u, v);
}

// Whatever the order: what was given back and what stays is what was put in.
fn exchanged(at: u32, lane: u32, a: u32) -> u32 {
    let before = own_exchange(at, mixed(a, lane));
    return own_add(at + 1u, before);
}

// One lane finds the 0 and the others what it left; then each adds until nobody came between.
fn compared(at: u32, lane: u32, a: u32) -> u32 {
    let before = own_compare_exchange(at, 0u, lane + 1u);
    if (before == 0u) {
        own_add(at + 1u, 1u);
    }
    if (before != 0u && before != own_or(at, 0u)) {
        own_add(at + 1u, 256u);
    }
    var seen = own_add(at + 2u, 0u);
    while (true) {
        let found = own_compare_exchange(at + 2u, seen, seen + a + lane);
        if (found == seen) {
            break;
        }
        seen = found;
    }
    return seen;
}

fn operation(op: u32, at: u32, lane: u32, a: u32, b: u32, c: u32) -> u32 {
    switch (op) {
        case 0u: { return added(at, lane, a, b); }  // added
        case 1u: { return bounded(at, lane, a, c); }  // bounded_cells
        case 2u: { return of_bits(at, lane, a); }  // of_bits
        case 3u: { return exchanged(at, lane, a); }  // exchanged
        case 4u: { return compared(at, lane, a); }  // compared
        default: { return 0u; }
    }
}

// rows
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ops: array<u32>;
@group(0) @binding(2) var<storage, read> operands: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn clear(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[0] = NONCE;
    }
    if (row < params[0]) {
        let at = row << 2u;
        own_set(at, operands[at + 3u] * u32(ops[row] == 1u || ops[row] == 2u));
        own_set(at + 1u, 0u);
        own_set(at + 2u, 0u);
        own_set(at + 3u, 0u);
    }
}

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x;
    if (row + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    let at = row << 2u;
    operation(ops[row], at, group.y * 64u + lane.x, operands[at], operands[at + 1u], operands[at + 2u]);
}

@compute @workgroup_size(64, 1, 1)
fn finish(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[2] = NONCE;
    }
    if (row < params[0]) {
        let at = row << 2u;
        var first = own_cell(at);
        if (ops[row] == 3u) {
            first += own_cell(at + 1u);
            own_set(at + 1u, 0u);
        }
        if (ops[row] == 4u) {
            first = u32(first - 1u < LANES);
        }
        own_set(at, first ^ KNOWN_BAD);
    }
}
