// probe_flow: loops, branches and switches, an operation a row;
// the reference is cpu_ref/probe_flow.py.
//
// A row names an operation and its four operand words; it gets four words back. The variant `literal` writes the
// operands of known rows into this text in place of a, b, c, d, so that compilers compute them.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const TRIPS: u32 = 8u;
const ROUNDS: u32 = 16u;

// What a loop does in a round: no compiler sums it up.
fn mixed(s: u32, x: u32) -> u32 {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

fn rotr(x: u32, n: u32) -> u32 {
    return (x >> n) | (x << (32u - n));
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

fn own_unrolled(a: u32, b: u32) -> u32 {
    var s = a;
    for (var i = 0u; i < TRIPS; i++) {
        s = mixed(s, b + i);
    }
    return s;
}

fn own_two_selectors(a: u32, b: u32) -> u32 {
    var s = b;
    for (var t = 0u; t < 4u; t++) {
        switch ((a >> (t * 2u)) & 3u) {
            case 0u: { s += 1u; break; }
            case 1u, 2u: { s = s * 5u + 2u; break; }
            default: { s ^= t; break; }
        }
    }
    return s;
}

// Word i of four.
fn own_pick(v: quad, i: u32) -> u32 {
    var table = array<u32, 4u>(v.x, v.y, v.z, v.w);
    return table[i];
}

// At most a rounds; the other exit is a pattern in the sum.
fn two_exits(a: u32, b: u32, c: u32, d: u32) -> quad {
    var s = b;
    var i = 0u;
    var found = 0u;
    while (i < a) {
        s = mixed(s, i);
        if ((s & c) == (d & c)) {
            found = 1u;
            break;
        }
        i++;
    }
    return words(s, i, found, 0u);
}

// Some rounds of the inner loop are passed over, and some leave it.
fn nested(a: u32, b: u32, c: u32) -> quad {
    var s = b;
    var inner = 0u;
    for (var i = 0u; i < a; i++) {
        for (var j = 0u; j <= i; j++) {
            if (((i ^ j ^ b) & 3u) == 0u) {
                continue;
            }
            s = mixed(s, (i << 4u) + j);
            inner++;
            if ((s & c) == c) {
                break;
            }
        }
    }
    return words(s, inner, 0u, 0u);
}

// Loops without a condition: the inner one leaves at multiples of 3.
fn endless(a: u32, b: u32) -> quad {
    var i = a;
    var inner = 0u;
    var outer = 0u;
    while (true) {
        while (true) {
            i++;
            inner++;
            if (i % 3u == 0u) {
                break;
            }
        }
        outer++;
        if (outer >= b) {
            break;
        }
    }
    return words(i, inner, outer, 0u);
}

fn switched(a: u32, b: u32) -> u32 {
    var s = b;
    for (var t = 0u; t < TRIPS; t++) {
        switch ((a >> (t * 4u)) & 7u) {
            case 0u: { s += 1u; break; }
            case 1u: { s ^= t; break; }
            case 2u: { continue; }
            case 5u: { s = s * 3u; break; }
            default: { s = s * 5u + 2u; break; }
        }
        s += 7u;
    }
    return s;
}

fn rolled(a: u32, b: u32, count: u32) -> u32 {
    var s = a;
    for (var i = 0u; i < count; i++) {
        s = mixed(s, b + i);
    }
    return s;
}

fn by_hand(a: u32, b: u32) -> u32 {
    let s = mixed(mixed(mixed(mixed(a, b), b + 1u), b + 2u), b + 3u);
    return mixed(mixed(mixed(mixed(s, b + 4u), b + 5u), b + 6u), b + 7u);
}

// A round of a hash like SHA-2 on the words of x and y, the new ones in x.x and y.x.
fn hash_x(x: quad, y: quad, key: u32) -> quad {
    let sum = y.w + (rotr(y.x, 6u) ^ rotr(y.x, 11u) ^ rotr(y.x, 25u)) + ((y.x & y.y) ^ (~y.x & y.z)) + key;
    let most = (x.x & x.y) ^ (x.x & x.z) ^ (x.y & x.z);
    return words(sum + (rotr(x.x, 2u) ^ rotr(x.x, 13u) ^ rotr(x.x, 22u)) + most, x.w + sum, 0u, 0u);
}

fn hash_rolled(v: quad, count: u32) -> quad {
    var x = v;
    var y = words(0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
    for (var i = 0u; i < count; i++) {
        let now = hash_x(x, y, i * 0x9e3779b9u);
        x = words(now.x, x.x, x.y, x.z);
        y = words(now.y, y.x, y.y, y.z);
    }
    return words(x.x, x.w, y.x, y.w);
}

fn own_hash(v: quad) -> quad {
    var x = v;
    var y = words(0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
    for (var i = 0u; i < ROUNDS; i++) {
        let now = hash_x(x, y, i * 0x9e3779b9u);
        x = words(now.x, x.x, x.y, x.z);
        y = words(now.y, y.x, y.y, y.z);
    }
    return words(x.x, x.w, y.x, y.w);
}

// A branch that no row takes: d is below 2^16.
fn with_branch(a: u32, b: u32, c: u32, d: u32) -> u32 {
    var s = a;
    for (var i = 0u; i < TRIPS; i++) {
        if (d > 0xffff0000u) {
            s = rolled(s, c, d);
            i = s & 7u;
        }
        s = mixed(s, b + i);
    }
    return s;
}

// How many of 16 lanes pass the guard, written in two ways.
fn guarded(n: u32) -> quad {
    var signed_ones = 0u;
    var plain = 0u;
    for (var lane = 0u; lane < 16u; lane++) {
        if (i32(0xffffffffu) * i32(lane) + i32(n) >= i32(0u)) {
            signed_ones++;
        }
        if (n >= lane) {
            plain++;
        }
    }
    return words(signed_ones, plain, 0u, 0u);
}

// A table of four, looked up at -1 to 4 with the index clamped.
fn clamped(v: quad) -> quad {
    var s = 0u;
    var sum = 0u;
    for (var i = 0u; i < 6u; i++) {
        let found = own_pick(v, u32(min(max(i32(i) - i32(1u), i32(0u)), i32(3u))));
        s = mixed(s, found);
        sum += found;
    }
    return words(s, sum, 0u, 0u);
}

// The bounds check inside a loop without a condition holds back what is out of bounds.
fn bounded(a: u32, b: u32) -> quad {
    var i = a;
    var written = 0u;
    var trips = 0u;
    while (true) {
        if (i < 10u) {
            written |= 1u << (i & 31u);
            break;
        }
        trips++;
        if (trips > 3u) {
            break;
        }
        i += b;
    }
    return words(written, trips, i, 0u);
}

// The second half of a condition is not looked at where the first fails.
fn sought(v: quad, n: u32) -> u32 {
    var i = 0u;
    while (i < 4u && own_pick(v, i) != n) {
        i++;
    }
    return i;
}

// A return from within two loops.
fn returned(a: u32, b: u32, c: u32, d: u32) -> quad {
    var s = b;
    for (var i = 0u; i < a; i++) {
        for (var j = 0u; j <= i; j++) {
            s = mixed(s, i + j);
            if ((s & c) == (d & c)) {
                return words(s, i, j, 1u);
            }
        }
    }
    return words(s, 0u, 0u, 0u);
}

fn operation(op: u32, a: u32, b: u32, c: u32, d: u32) -> quad {
    switch (op) {
        case 0u: { return two_exits(a, b, c, d); }  // two_exits
        case 1u: { return nested(a, b, c); }  // nested
        case 2u: { return endless(a, b); }  // endless
        case 3u: { return words(switched(a, b), own_two_selectors(a, b), 0u, 0u); }  // switch_in_loop
        case 4u: { return words(rolled(a, b, d), own_unrolled(a, b), by_hand(a, b), 0u); }  // unrolled
        case 5u: { return hash_rolled(words(a, b, c, a ^ b), d); }  // hash_rolled
        case 6u: { return own_hash(words(a, b, c, d)); }  // hash_unrolled
        case 7u: { return words(with_branch(a, b, c, d), rolled(a, b, TRIPS), 0u, 0u); }  // dead_branch
        case 8u: { return guarded(a); }  // guarded
        case 9u: { return clamped(words(a, b, c, d)); }  // clamped
        case 10u: { return bounded(a, b); }  // bounded
        case 11u: { return words(sought(words(a, b, c, d), d), sought(words(d, c, b, b), a), 0u, 0u); }  // sought
        case 12u: { return returned(a, b, c, d); }  // returned
        default: { return words(0u, 0u, 0u, 0u); }
    }
}

// rows, first literal
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ops: array<u32>;
@group(0) @binding(2) var<storage, read> operands: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[0] = NONCE;
    }
    if (row < params[0]) {
        let at = row << 2u;
        let r: quad = operation(
            ops[row] | (KNOWN_BAD * 0xffffffffu), operands[at], operands[at + 1u], operands[at + 2u], operands[at + 3u]);
        results[at] = r.x;
        results[at + 1u] = r.y;
        results[at + 2u] = r.z;
        results[at + 3u] = r.w;
    }
}
