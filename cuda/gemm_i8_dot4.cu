// gemm_i8_dot4: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int8, four to a word, the first in the
// lowest byte, rows not padded; the reference is cpu_ref/gemm.py.
//
// Products of four bytes at a time by the device's packed dot product, of signed or of unsigned bytes: add_dot of the
// prelude before it, dot4_signed or dot4_unsigned; gemm_i8 is its scalar twin.
//
// A workgroup makes 16 x 16 outputs, one a lane, from tiles of 32 terms in workgroup memory, four terms to a word.
// Under the schedule tree it makes 16 outputs of one row: 16 lanes take turns at the words, then their sums are added
// pairwise. Under split_k group z is the part; entry point combine adds the parts, group y a row.

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
#define WORDS 8u

// Byte i of a tensor, out of the word that holds it.
static __device__ u32 byte_of(u32 word, u32 i) {
    return (word >> ((i & 3u) << 3u)) & 255u;
}

extern "C" __global__ void multiply(
    const u32 *params,  // M, N, K, first row of the band, terms in a part
    const u32 *a,
    const u32 *b,
    const u32 *order,
    u32 *scratch,
    u32 *c,
    u32 *receipt) {
    __shared__ u32 tile_a[SIDE][WORDS];
    __shared__ u32 tile_b[WORDS][SIDE];
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
            for (u32 first = lane.y << 2u; first < terms; first += SIDE << 2u) {
                u32 from_a = 0u;
                u32 from_b = 0u;
                for (u32 i = 0u; i < 4u; i++) {
                    const u32 k = first + i;
                    if (k < terms) {
                        const u32 a_at = row * K + k;
                        const u32 b_at = k * N + column;
                        from_a |= byte_of(a[a_at >> 2u], a_at) << (i << 3u);
                        from_b |= byte_of(b[b_at >> 2u], b_at) << (i << 3u);
                    }
                }
                sum = add_dot(sum, from_a, from_b);
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
        if (lane.x < WORDS) {
            u32 from_a = 0u;
            for (u32 i = 0u; i < 4u; i++) {
                const u32 k = start + (lane.x << 2u) + i;
                if (row < M && k < end) {
                    const u32 at = row * K + k;
                    from_a |= byte_of(a[at >> 2u], at) << (i << 3u);
                }
            }
            tile_a[lane.y][lane.x] = from_a;
        }
        if (lane.y < WORDS) {
            u32 from_b = 0u;
            for (u32 i = 0u; i < 4u; i++) {
                const u32 k = start + (lane.y << 2u) + i;
                if (column < N && k < end) {
                    const u32 at = k * N + column;
                    from_b |= byte_of(b[at >> 2u], at) << (i << 3u);
                }
            }
            tile_b[lane.y][lane.x] = from_b;
        }
        __syncthreads();
        for (u32 i = 0u; i < WORDS; i++) {
            u32 word = i;
            if (SCHEDULE == REVERSE) {
                word = WORDS - 1u - i;
            }
            sum = add_dot(sum, tile_a[lane.y][word], tile_b[word][lane.x]);
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
