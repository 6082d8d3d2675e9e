// probe_group: what the lanes of a workgroup hand to each other, an operation a row;
// the reference is cpu_ref/probe_group.py.
//
// A workgroup of 64 lanes takes a row: an operation and its four operand words. Each lane gets four words, and the
// row's results sum these up, place by place, so that the order of the lanes counts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 64u
#define CELLS 16u
#define SHARES 256u

// What a loop does in a round: no compiler sums it up.
static __device__ u32 mixed(u32 s, u32 x) {
    return (s ^ x) * 0x9e3779b1u + (s >> 15u);
}

// own_*: the atomics of this language on workgroup memory; each gives what was there before.

static __device__ u32 own_add(u32 *cells, u32 i, u32 v) {
    return atomicAdd(&cells[i], v);
}

static __device__ u32 own_sub(u32 *cells, u32 i, u32 v) {
    return atomicSub(&cells[i], v);
}

static __device__ u32 own_min(u32 *cells, u32 i, u32 v) {
    return atomicMin(&cells[i], v);
}

static __device__ u32 own_max(u32 *cells, u32 i, u32 v) {
    return atomicMax(&cells[i], v);
}

static __device__ u32 own_min_s(i32 *levels, u32 i, u32 v) {
    return u32(atomicMin(&levels[i], i32(v)));
}

static __device__ u32 own_max_s(i32 *levels, u32 i, u32 v) {
    return u32(atomicMax(&levels[i], i32(v)));
}

static __device__ u32 own_and(u32 *cells, u32 i, u32 v) {
    return atomicAnd(&cells[i], v);
}

static __device__ u32 own_or(u32 *cells, u32 i, u32 v) {
    return atomicOr(&cells[i], v);
}

static __device__ u32 own_xor(u32 *cells, u32 i, u32 v) {
    return atomicXor(&cells[i], v);
}

static __device__ u32 own_exchange(u32 *cells, u32 i, u32 v) {
    return atomicExch(&cells[i], v);
}

static __device__ u32 own_compare_exchange(u32 *cells, u32 i, u32 old, u32 v) {
    return atomicCAS(&cells[i], old, v);
}

static __device__ u32 own_cell(u32 *cells, u32 i) {
    return cells[i];
}

static __device__ u32 own_level(i32 *levels, u32 i) {
    return u32(levels[i]);
}

static __device__ void own_begin(u32 *cells, i32 *levels, u32 i, u32 v) {
    cells[i] = v;
    levels[i] = i32(v);
}

// Each lane writes one word and reads others'.
static __device__ quad handed_over(u32 *tile, u32 lane, u32 a, u32 b) {
    tile[lane] = mixed(a, lane);
    __syncthreads();
    return words(tile[(lane + b) & 63u], tile[63u - lane], tile[0u], tile[63u]);
}

// What is read between two barriers is not what comes after the second.
static __device__ quad between(u32 *tile, u32 lane, u32 a, u32 b) {
    if (lane == 0u) {
        tile[0u] = a;
    }
    __syncthreads();
    const u32 first = tile[0u];
    __syncthreads();
    if (lane == 0u) {
        tile[0u] = b;
    }
    __syncthreads();
    return words(first, tile[0u], 0u, 0u);
}

// The last lane tells all.
static __device__ quad from_last(u32 *tile, u32 lane, u32 a) {
    if (lane == 63u) {
        tile[7u] = a;
    }
    __syncthreads();
    return words(tile[7u], 0u, 0u, 0u);
}

// The same memory holds one thing after the other.
static __device__ quad used_twice(u32 *tile, u32 lane, u32 a, u32 b) {
    tile[lane] = a + lane;
    __syncthreads();
    const u32 x = tile[63u - lane];
    __syncthreads();
    tile[lane] = x * b + lane;
    __syncthreads();
    return words(x, tile[(lane + 1u) & 63u], 0u, 0u);
}

// Barriers in a loop whose count is known at run time.
static __device__ u32 in_loop(u32 *tile, u32 lane, u32 a, u32 trips) {
    u32 v = a + lane;
    for (u32 t = 0u; t < trips; t++) {
        tile[lane] = v;
        __syncthreads();
        v = mixed(v, tile[(lane + t + 1u) & 63u]);
        __syncthreads();
    }
    return v;
}

// A barrier in a branch that all lanes take, or none; an index that lives across it.
static __device__ quad in_branch(u32 *tile, u32 lane, u32 a, u32 b, u32 c) {
    const u32 place = (lane + c) & 63u;
    u32 v = 0u;
    tile[lane] = 5u;
    __syncthreads();
    if (a <= b) {
        tile[place] = lane;
        __syncthreads();
        v = tile[lane] + place;
        __syncthreads();
        tile[place] = v;
    } else {
        v = place;
    }
    __syncthreads();
    return words(v, tile[lane], place, 0u);
}

// Running sums: a word goes on by 1, 2, 4, ... lanes.
static __device__ quad scanned(u32 *tile, u32 lane, u32 a) {
    u32 v = mixed(a, lane);
    for (u32 reach = 1u; reach < LANES; reach <<= 1u) {
        tile[lane] = v;
        __syncthreads();
        if (lane >= reach) {
            v += tile[lane - reach];
        }
        __syncthreads();
    }
    return words(v, 0u, 0u, 0u);
}

// Sums, and of what the additions gave back: each number below 64 once.
static __device__ quad added(u32 *cells, u32 lane, u32 a, u32 b) {
    own_add(cells, 0u, a * lane);
    own_sub(cells, 1u, b + lane);
    const u32 before = own_add(cells, 2u, 1u);
    own_add(cells, 3u, before * before * before);
    __syncthreads();
    return words(own_cell(cells, 0u), own_cell(cells, 1u), own_cell(cells, 2u), own_cell(cells, 3u));
}

static __device__ quad bounded(u32 *cells, i32 *levels, u32 lane, u32 a, u32 c) {
    const u32 v = mixed(a, lane) >> (c & 31u);
    own_min(cells, 4u, v);
    own_max(cells, 5u, v);
    own_min_s(levels, 6u, v);
    own_max_s(levels, 7u, v);
    __syncthreads();
    return words(own_cell(cells, 4u), own_cell(cells, 5u), own_level(levels, 6u), own_level(levels, 7u));
}

static __device__ quad of_bits(u32 *cells, u32 lane, u32 a) {
    const u32 v = mixed(a, lane);
    own_and(cells, 4u, v | (1u << (lane & 15u)));
    own_or(cells, 8u, v & 0x11111111u);
    own_xor(cells, 9u, v);
    __syncthreads();
    return words(own_cell(cells, 4u), own_cell(cells, 8u), own_cell(cells, 9u), 0u);
}

// Whatever the order: what was given back and what stays is what was put in.
static __device__ quad exchanged(u32 *cells, u32 lane, u32 a) {
    const u32 before = own_exchange(cells, 10u, mixed(a, lane));
    own_add(cells, 11u, before);
    __syncthreads();
    return words(own_cell(cells, 10u) + own_cell(cells, 11u), 0u, 0u, 0u);
}

// One lane finds the 0 and the others what it left; then each adds until nobody came between.
static __device__ quad compared(u32 *cells, u32 lane, u32 a) {
    const u32 before = own_compare_exchange(cells, 12u, 0u, lane + 1u);
    if (before == 0u) {
        own_add(cells, 13u, 1u);
    }
    u32 seen = own_add(cells, 14u, 0u);
    while (true) {
        const u32 found = own_compare_exchange(cells, 14u, seen, seen + a + lane);
        if (found == seen) {
            break;
        }
        seen = found;
    }
    __syncthreads();
    const u32 winner = own_cell(cells, 12u);
    if (before != 0u && before != winner) {
        own_add(cells, 13u, 256u);
    }
    __syncthreads();
    return words(own_cell(cells, 13u), own_cell(cells, 14u), u32(winner - 1u < LANES), 0u);
}

// Lanes count in bins that they share; what follows in memory outside the workgroup leaves them alone.
static __device__ quad histogram(u32 *cells, u32 lane, u32 a, u32 b) {
    own_add(cells, (lane * a + b) & 15u, 1u);
    __syncthreads();
    return words(own_cell(cells, lane & 15u), 0u, 0u, 0u);
}

// What no lane has written yet.
static __device__ quad zeroed(u32 *fresh, u32 lane) {
    return words(fresh[lane], fresh[63u - lane], fresh[lane + 64u], 0u);
}

static __device__ quad operation(u32 *tile, u32 *cells, i32 *levels, u32 *fresh, u32 op, u32 lane, u32 a, u32 b, u32 c, u32 d) {
    switch (op) {
        case 0u: { return handed_over(tile, lane, a, b); }  // handed_over
        case 1u: { return between(tile, lane, a, b); }  // between
        case 2u: { return from_last(tile, lane, a); }  // from_last
        case 3u: { return used_twice(tile, lane, a, b); }  // used_twice
        case 4u: { return words(in_loop(tile, lane, a, d), 0u, 0u, 0u); }  // in_loop
        case 5u: { return words(in_loop(tile, lane, a, 4u), 0u, 0u, 0u); }  // in_unrolled_loop
        case 6u: { return in_branch(tile, lane, a, b, c); }  // in_branch
        case 7u: { return scanned(tile, lane, a); }  // scanned
        case 8u: { return added(cells, lane, a, b); }  // added
        case 9u: { return bounded(cells, levels, lane, a, c); }  // bounded_cells
        case 10u: { return of_bits(cells, lane, a); }  // of_bits
        case 11u: { return exchanged(cells, lane, a); }  // exchanged
        case 12u: { return compared(cells, lane, a); }  // compared
        case 13u: { return histogram(cells, lane, a, b); }  // histogram
        case 14u: { return zeroed(fresh, lane); }  // zeroed
        default: { return words(0u, 0u, 0u, 0u); }
    }
}

extern "C" __global__ void probe(
    const u32 *params,
    const u32 *ops,
    const u32 *operands,
    u32 *results,
    u32 *receipt) {
    __shared__ u32 tile[LANES];
    __shared__ u32 cells[CELLS];
    __shared__ i32 levels[CELLS];
    __shared__ u32 fresh[SHARES];
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 row = group.x;
    if (row + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    const u32 at = row << 2u;
    const u32 op = ops[row];
    const u32 d = operands[at + 3u];
    if (op < 14u) {
        if (lane.x < CELLS) {
            own_begin(cells, levels, lane.x, d * u32((op == 9u || op == 10u) && (lane.x == 4u || lane.x == 6u)));
        }
        __syncthreads();
    }
    const quad r = operation(tile, cells, levels, fresh, op, lane.x, operands[at], operands[at + 1u], operands[at + 2u], d);
    __syncthreads();
    fresh[lane.x] = r.x;
    fresh[LANES + lane.x] = r.y;
    fresh[LANES * 2u + lane.x] = r.z;
    fresh[LANES * 3u + lane.x] = r.w;
    __syncthreads();
    if (lane.x < 4u) {
        u32 sum = 0u;
        for (u32 i = 0u; i < LANES; i++) {
            sum = sum * 31u + fresh[lane.x * LANES + i];
        }
        results[at + lane.x] = sum ^ (KNOWN_BAD * u32(lane.x == 0u));
    }
}
