// probe_flow: loops, branches and switches, an operation a row;
// the reference is cpu_ref/probe_flow.py.
//
// A row names an operation and its four operand words; it gets four words back. The variant `literal` writes the
// operands of known rows into this text in place of a, b, c, d, so that compilers compute them.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define TRIPS 8u
#define ROUNDS 16u

// What a loop does in a round: no compiler sums it up.
static __device__ u32 mixed(u32 s, u32 x) {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

static __device__ u32 rotr(u32 x, u32 n) {
    return (x >> n) | (x << (32u - n));
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

static __device__ u32 own_unrolled(u32 a, u32 b) {
    u32 s = a;
#pragma unroll
    for (u32 i = 0u; i < TRIPS; i++) {
        s = mixed(s, b + i);
    }
    return s;
}

static __device__ u32 own_two_selectors(u32 a, u32 b) {
    u32 s = b;
    for (u32 t = 0u; t < 4u; t++) {
        switch ((a >> (t * 2u)) & 3u) {
            case 0u: { s += 1u; break; }
            case 1u:
            case 2u: { s = s * 5u + 2u; break; }
            default: { s ^= t; break; }
        }
    }
    return s;
}

// Word i of four.
static __device__ u32 own_pick(quad v, u32 i) {
    const u32 table[4u] = {v.x, v.y, v.z, v.w};
    return table[i];
}

// At most a rounds; the other exit is a pattern in the sum.
static __device__ quad two_exits(u32 a, u32 b, u32 c, u32 d) {
    u32 s = b;
    u32 i = 0u;
    u32 found = 0u;
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
static __device__ quad nested(u32 a, u32 b, u32 c) {
    u32 s = b;
    u32 inner = 0u;
    for (u32 i = 0u; i < a; i++) {
        for (u32 j = 0u; j <= i; j++) {
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
static __device__ quad endless(u32 a, u32 b) {
    u32 i = a;
    u32 inner = 0u;
    u32 outer = 0u;
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

static __device__ u32 switched(u32 a, u32 b) {
    u32 s = b;
    for (u32 t = 0u; t < TRIPS; t++) {
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

static __device__ u32 rolled(u32 a, u32 b, u32 count) {
    u32 s = a;
    for (u32 i = 0u; i < count; i++) {
        s = mixed(s, b + i);
    }
    return s;
}

static __device__ u32 by_hand(u32 a, u32 b) {
    const u32 s = mixed(mixed(mixed(mixed(a, b), b + 1u), b + 2u), b + 3u);
    return mixed(mixed(mixed(mixed(s, b + 4u), b + 5u), b + 6u), b + 7u);
}

// A round of a hash like SHA-2 on the words of x and y, the new ones in x.x and y.x.
static __device__ quad hash_x(quad x, quad y, u32 key) {
    const u32 sum = y.w + (rotr(y.x, 6u) ^ rotr(y.x, 11u) ^ rotr(y.x, 25u)) + ((y.x & y.y) ^ (~y.x & y.z)) + key;
    const u32 most = (x.x & x.y) ^ (x.x & x.z) ^ (x.y & x.z);
    return words(sum + (rotr(x.x, 2u) ^ rotr(x.x, 13u) ^ rotr(x.x, 22u)) + most, x.w + sum, 0u, 0u);
}

static __device__ quad hash_rolled(quad v, u32 count) {
    quad x = v;
    quad y = words(0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
    for (u32 i = 0u; i < count; i++) {
        const quad now = hash_x(x, y, i * 0x9e3779b9u);
        x = words(now.x, x.x, x.y, x.z);
        y = words(now.y, y.x, y.y, y.z);
    }
    return words(x.x, x.w, y.x, y.w);
}

static __device__ quad own_hash(quad v) {
    quad x = v;
    quad y = words(0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
#pragma unroll
    for (u32 i = 0u; i < ROUNDS; i++) {
        const quad now = hash_x(x, y, i * 0x9e3779b9u);
        x = words(now.x, x.x, x.y, x.z);
        y = words(now.y, y.x, y.y, y.z);
    }
    return words(x.x, x.w, y.x, y.w);
}

// A branch that no row takes: d is below 2^16.
static __device__ u32 with_branch(u32 a, u32 b, u32 c, u32 d) {
    u32 s = a;
    for (u32 i = 0u; i < TRIPS; i++) {
        if (d > 0xffff0000u) {
            s = rolled(s, c, d);
            i = s & 7u;
        }
        s = mixed(s, b + i);
    }
    return s;
}

// How many of 16 lanes pass the guard, written in two ways.
static __device__ quad guarded(u32 n) {
    u32 signed_ones = 0u;
    u32 plain = 0u;
    for (u32 lane = 0u; lane < 16u; lane++) {
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
static __device__ quad clamped(quad v) {
    u32 s = 0u;
    u32 sum = 0u;
    for (u32 i = 0u; i < 6u; i++) {
        const u32 found = own_pick(v, u32(min(max(i32(i) - i32(1u), i32(0u)), i32(3u))));
        s = mixed(s, found);
        sum += found;
    }
    return words(s, sum, 0u, 0u);
}

// The bounds check inside a loop without a condition holds back what is out of bounds.
static __device__ quad bounded(u32 a, u32 b) {
    u32 i = a;
    u32 written = 0u;
    u32 trips = 0u;
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
static __device__ u32 sought(quad v, u32 n) {
    u32 i = 0u;
    while (i < 4u && own_pick(v, i) != n) {
        i++;
    }
    return i;
}

// A return from within two loops.
static __device__ quad returned(u32 a, u32 b, u32 c, u32 d) {
    u32 s = b;
    for (u32 i = 0u; i < a; i++) {
        for (u32 j = 0u; j <= i; j++) {
            s = mixed(s, i + j);
            if ((s & c) == (d & c)) {
                return words(s, i, j, 1u);
            }
        }
    }
    return words(s, 0u, 0u, 0u);
}

static __device__ quad operation(u32 op, u32 a, u32 b, u32 c, u32 d) {
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

extern "C" __global__ void probe(
    const u32 *params,  // rows, first literal
    const u32 *ops,
    const u32 *operands,
    u32 *results,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[0] = NONCE;
    }
    if (row < params[0]) {
        const u32 at = row << 2u;
        const quad r = operation(
            ops[row] | (KNOWN_BAD * 0xffffffffu), operands[at], operands[at + 1u], operands[at + 2u], operands[at + 3u]);
        results[at] = r.x;
        results[at + 1u] = r.y;
        results[at + 2u] = r.z;
        results[at + 3u] = r.w;
    }
}
