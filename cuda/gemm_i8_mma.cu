// gemm_i8_mma: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int8, four to a word, the first in the
// lowest byte, rows not padded; the reference is cpu_ref/gemm.py.
//
// Products by the integer matrix unit, in the shape of the prelude before it; gemm_i8 is its scalar twin.
//
// A workgroup is one warp and makes ROWS x 8 outputs, STEP terms at a time, four terms to a word.
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

#define PARTS 8u
#define COLUMNS 8u
#define TILE 32u

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
    const auto group = blockIdx;
    const u32 lane = threadIdx.x;
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    if (group.x + group.y + group.z + lane == 0u) {
        receipt[0] = NONCE;
    }

    // The terms begin .. end - 1, in tiles; what a tile has beyond end counts as zero.
    const u32 row = params[3] + group.y * ROWS + (lane >> 2u);
    const u32 column = group.x * COLUMNS + (lane >> 2u);
    const u32 place = (lane & 3u) << 2u;
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
    u32 sums[WORDS_D] = {};
    for (u32 t = 0u; t < tiles; t++) {
        u32 start = begin + t * TILE;
        if (SCHEDULE == REVERSE) {
            start = begin + (tiles - 1u - t) * TILE;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            start = order[t] * TILE;
        }
        for (u32 step = 0u; step < TILE; step += STEP) {
            u32 from_a[WORDS_A];
            u32 from_b[WORDS_B];
            for (u32 word = 0u; word < WORDS_A; word++) {
                from_a[word] = 0u;
                const u32 r = row + ((word & 1u) << 3u);
                for (u32 i = 0u; i < 4u; i++) {
                    const u32 k = start + step + ((word >> 1u) << 4u) + place + i;
                    if (r < M && k < end) {
                        const u32 at = r * K + k;
                        from_a[word] |= byte_of(a[at >> 2u], at) << (i << 3u);
                    }
                }
            }
            for (u32 word = 0u; word < WORDS_B; word++) {
                from_b[word] = 0u;
                for (u32 i = 0u; i < 4u; i++) {
                    const u32 k = start + step + (word << 4u) + place + i;
                    if (column < N && k < end) {
                        const u32 at = k * N + column;
                        from_b[word] |= byte_of(b[at >> 2u], at) << (i << 3u);
                    }
                }
            }
            multiply_add(sums, from_a, from_b);
        }
    }
    for (u32 word = 0u; word < WORDS_D; word++) {
        const u32 r = row + ((word >> 1u) << 3u);
        const u32 n = group.x * COLUMNS + ((lane & 3u) << 1u) + (word & 1u);
        if (r < M && n < N) {
            if (SCHEDULE == SPLIT_K) {
                scratch[(group.z * M + r) * N + n] = sums[word];
            } else {
                c[r * N + n] = sums[word];
            }
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
