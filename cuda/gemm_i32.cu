// gemm_i32: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int32; the reference is cpu_ref/gemm.py.
//
// A workgroup makes 16 x 16 outputs, one a lane, from tiles of 32 terms in workgroup memory. Under the schedule tree it
// makes 16 outputs of one row: 16 lanes take turns at the terms of an output, then their sums are added pairwise.
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

typedef unsigned int u32;

extern "C" __global__ void multiply(
    const u32 *params,  // M, N, K, first row of the band, terms in a part
    const u32 *a,
    const u32 *b,
    const u32 *order,
    u32 *scratch,
    u32 *c,
    u32 *receipt) {
    __shared__ u32 tile_a[SIDE][TILE];
    __shared__ u32 tile_b[TILE][SIDE];
    __shared__ u32 lanes[SIDE][SIDE];
    const auto group = blockIdx;
    const auto lane = threadIdx;
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
        u32 sum = 0u;
        if (row < M && column < N) {
            for (u32 k = lane.y; k < terms; k += SIDE) {
                sum += a[row * K + k] * b[k * N + column];
            }
        }
        lanes[lane.y][lane.x] = sum;
        __syncthreads();
        for (u32 reach = SIDE >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.y < reach) {
                lanes[lane.y][lane.x] += lanes[lane.y + reach][lane.x];
            }
            __syncthreads();
        }
        if (lane.y == 0u && row < M && column < N) {
            c[row * N + column] = lanes[0][lane.x];
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
    u32 sum = 0u;
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
        __syncthreads();
        for (u32 i = 0u; i < TILE; i++) {
            u32 k = i;
            if (SCHEDULE == REVERSE) {
                k = TILE - 1u - i;
            }
            sum += tile_a[lane.y][k] * tile_b[k][lane.x];
        }
        __syncthreads();
    }
    if (row < M && column < N) {
        if (SCHEDULE == SPLIT_K) {
            scratch[(group.z * M + row) * N + column] = sum;
        } else {
            c[row * N + column] = sum;
        }
    }
}

extern "C" __global__ void combine(
    const u32 *params,
    const u32 *a,
    const u32 *b,
    const u32 *order,
    u32 *scratch,
    u32 *c,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 row = params[3] + group.y;
    const u32 column = group.x * 64u + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M && column < N) {
        u32 sum = 0u;
        for (u32 part = PARTS; part > 0u; part--) {
            sum += scratch[((part - 1u) * M + row) * N + column];
        }
        c[row * N + column] = sum;
    }
}
