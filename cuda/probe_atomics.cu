// probe_atomics: atomics on memory that all workgroups share, an operation a row;
// the reference is cpu_ref/probe_group.py.
//
// Three workgroups of 64 lanes work on the four words of a row at once. Entry point clear sets them, probe changes
// them, and finish takes out what depends on the order.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 192u

// What a loop does in a round: no compiler sums it up.
static __device__ u32 mixed(u32 s, u32 x) {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

// own_*: the atomics of this language on storage; each gives what was there before.

static __device__ u32 own_add(u32 *results, u32 i, u32 v) {
    return atomicAdd(&results[i], v);
}

static __device__ u32 own_sub(u32 *results, u32 i, u32 v) {
    return atomicSub(&results[i], v);
}

static __device__ u32 own_min(u32 *results, u32 i, u32 v) {
    return atomicMin(&results[i], v);
}

static __device__ u32 own_max(u32 *results, u32 i, u32 v) {
    return atomicMax(&results[i], v);
}

static __device__ u32 own_and(u32 *results, u32 i, u32 v) {
    return atomicAnd(&results[i], v);
}

static __device__ u32 own_or(u32 *results, u32 i, u32 v) {
    return atomicOr(&results[i], v);
}

static __device__ u32 own_xor(u32 *results, u32 i, u32 v) {
    return atomicXor(&results[i], v);
}

static __device__ u32 own_exchange(u32 *results, u32 i, u32 v) {
    return atomicExch(&results[i], v);
}

static __device__ u32 own_compare_exchange(u32 *results, u32 i, u32 old, u32 v) {
    return atomicCAS(&results[i], old, v);
}

static __device__ u32 own_cell(u32 *results, u32 i) {
    return results[i];
}

static __device__ void own_set(u32 *results, u32 i, u32 v) {
    results[i] = v;
}

// Sums, and of what the additions gave back: each number below 192 once.
static __device__ u32 added(u32 *results, u32 at, u32 lane, u32 a, u32 b) {
    own_add(results, at, a * lane);
    own_sub(results, at + 1u, b + lane);
    const u32 before = own_add(results, at + 2u, 1u);
    return own_add(results, at + 3u, before * before * before);
}

static __device__ u32 bounded(u32 *results, u32 at, u32 lane, u32 a, u32 c) {
    const u32 v = mixed(a, lane) >> (c & 31u);
    own_min(results, at, v);
    return own_max(results, at + 1u, v);
}

static __device__ u32 of_bits(u32 *results, u32 at, u32 lane, u32 a) {
    const u32 v = mixed(a, lane);
    own_and(results, at, v | (1u << (lane & 15u)));
    own_or(results, at + 1u, v & 0x11111111u);
    return own_xor(results, at + 2u, v);
}

// Whatever the order: what was given back and what stays is what was put in.
static __device__ u32 exchanged(u32 *results, u32 at, u32 lane, u32 a) {
    const u32 before = own_exchange(results, at, mixed(a, lane));
    return own_add(results, at + 1u, before);
}

// One lane finds the 0 and the others what it left; then each adds until nobody came between.
static __device__ u32 compared(u32 *results, u32 at, u32 lane, u32 a) {
    const u32 before = own_compare_exchange(results, at, 0u, lane + 1u);
    if (before == 0u) {
        own_add(results, at + 1u, 1u);
    }
    if (before != 0u && before != own_or(results, at, 0u)) {
        own_add(results, at + 1u, 256u);
    }
    u32 seen = own_add(results, at + 2u, 0u);
    while (true) {
        const u32 found = own_compare_exchange(results, at + 2u, seen, seen + a + lane);
        if (found == seen) {
            break;
        }
        seen = found;
    }
    return seen;
}

static __device__ u32 operation(u32 *results, u32 op, u32 at, u32 lane, u32 a, u32 b, u32 c) {
    switch (op) {
        case 0u: { return added(results, at, lane, a, b); }  // added
        case 1u: { return bounded(results, at, lane, a, c); }  // bounded_cells
        case 2u: { return of_bits(results, at, lane, a); }  // of_bits
        case 3u: { return exchanged(results, at, lane, a); }  // exchanged
        case 4u: { return compared(results, at, lane, a); }  // compared
        default: { return 0u; }
    }
}

extern "C" __global__ void clear(
    const u32 *params,  // rows
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
        own_set(results, at, operands[at + 3u] * u32(ops[row] == 1u || ops[row] == 2u));
        own_set(results, at + 1u, 0u);
        own_set(results, at + 2u, 0u);
        own_set(results, at + 3u, 0u);
    }
}

extern "C" __global__ void probe(
    const u32 *params,
    const u32 *ops,
    const u32 *operands,
    u32 *results,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 row = group.x;
    if (row + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    const u32 at = row << 2u;
    operation(results, ops[row], at, group.y * 64u + lane.x, operands[at], operands[at + 1u], operands[at + 2u]);
}

extern "C" __global__ void finish(
    const u32 *params,
    const u32 *ops,
    const u32 *operands,
    u32 *results,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[2] = NONCE;
    }
    if (row < params[0]) {
        const u32 at = row << 2u;
        u32 first = own_cell(results, at);
        if (ops[row] == 3u) {
            first += own_cell(results, at + 1u);
            own_set(results, at + 1u, 0u);
        }
        if (ops[row] == 4u) {
            first = u32(first - 1u < LANES);
        }
        own_set(results, at, first ^ KNOWN_BAD);
    }
}
