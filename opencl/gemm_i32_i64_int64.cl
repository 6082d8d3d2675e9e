// gemm_i32_i64_int64: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^64, on row-major int32, C of 64 bits;
// the reference is cpu_ref/gemm.py.
//
// A workgroup makes 16 x 16 outputs, one a lane, from tiles of 32 terms in workgroup memory. Under the schedule tree it
// makes 16 outputs of one row: 16 lanes take turns at the terms of an output, then their sums are added pairwise.
// Sums are native 64-bit integers.
// Under split_k group z is the part; entry point combine adds the parts, group y a row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define REVERSE 1u
#define SPLIT_K 2u
#define TILED_SHUFFLED 3u
#define TREE 4u

#define PARTS 8u
#define SIDE 16u
#define TILE 32u

typedef uint u32;
typedef ulong u64;

// The word as a signed 32-bit integer, sign extended.
static u64 widen(u32 word) {
    return ((u64)word ^ 0x80000000ul) - 0x80000000ul;
}

__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void multiply(
    __global const u32 *params,  // M, N, K, first row of the band, terms in a part
    __global const u32 *a,
    __global const u32 *b,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *c,
    __global u32 *receipt) {
    __local u32 tile_a[SIDE][TILE];
    __local u32 tile_b[TILE][SIDE];
    __local u64 lanes[SIDE][SIDE];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    const u32 column = group.x * SIDE + lane.x;
    if (group.x + group.y + group.z + lane.x + lane.y == 0u) {
        receipt[0] = NONCE;
    }

    if (SCHEDULE == TREE) {
        const u32 row = params[3] + group.y;
        u64 sum = 0ul;
        if (row < M && column < N) {
            for (u32 k = lane.y; k < terms; k += SIDE) {
                sum += widen(a[row * K + k]) * widen(b[k * N + column]);
            }
        }
        lanes[lane.y][lane.x] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (u32 reach = SIDE >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.y < reach) {
                lanes[lane.y][lane.x] += lanes[lane.y + reach][lane.x];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (lane.y == 0u && row < M && column < N) {
            sum = lanes[0][lane.x];
            const u32 at = (row * N + column) << 1u;
            c[at] = (u32)sum;
            c[at + 1u] = (u32)(sum >> 32u);
        }
        return;
    }

    // The terms begin .. end - 1, in tiles; what a tile has beyond end counts as zero.
    const u32 row = params[3] + group.y * SIDE + lane.y;
    u32 begin = 0u;
    u32 end = terms;
    if (SCHEDULE == SPLIT_K) {
        begin = group.z * params[4];
        if (begin > terms) {
            begin = terms;
        }
        if (end - begin > params[4]) {
            end = begin + params[4];
        }
    }
    u32 tiles = (end - begin + TILE - 1u) >> 5u;
    if (SCHEDULE == TILED_SHUFFLED) {
        tiles = (K + TILE - 1u) >> 5u;
    }
    u64 sum = 0ul;
    for (u32 t = 0u; t < tiles; t++) {
        u32 start = begin + t * TILE;
        if (SCHEDULE == REVERSE) {
            start = begin + (tiles - 1u - t) * TILE;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            start = order[t] * TILE;
        }
        for (u32 side = 0u; side < TILE; side += SIDE) {
            const u32 k_of_a = start + side + lane.x;
            u32 from_a = 0u;
            if (row < M && k_of_a < end) {
                from_a = a[row * K + k_of_a];
            }
            tile_a[lane.y][side + lane.x] = from_a;
            const u32 k_of_b = start + side + lane.y;
            u32 from_b = 0u;
            if (k_of_b < end && column < N) {
                from_b = b[k_of_b * N + column];
            }
            tile_b[side + lane.y][lane.x] = from_b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (u32 i = 0u; i < TILE; i++) {
            u32 k = i;
            if (SCHEDULE == REVERSE) {
                k = TILE - 1u - i;
            }
            sum += widen(tile_a[lane.y][k]) * widen(tile_b[k][lane.x]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < M && column < N) {
        if (SCHEDULE == SPLIT_K) {
            const u32 at = ((group.z * M + row) * N + column) << 1u;
            scratch[at] = (u32)sum;
            scratch[at + 1u] = (u32)(sum >> 32u);
        } else {
            const u32 at = (row * N + column) << 1u;
            c[at] = (u32)sum;
            c[at + 1u] = (u32)(sum >> 32u);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *a,
    __global const u32 *b,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *c,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 row = params[3] + group.y;
    const u32 column = group.x * 64u + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M && column < N) {
        u64 sum = 0ul;
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 at = (((part - 1u) * M + row) * N + column) << 1u;
            sum += ((u64)scratch[at + 1u] << 32u) | (u64)scratch[at];
        }
        const u32 at = (row * N + column) << 1u;
        c[at] = (u32)sum;
        c[at + 1u] = (u32)(sum >> 32u);
    }
}
