// gemm_i32_fast: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int32; the reference is
// cpu_ref/gemm.py.
//
// For CPU devices; schedules forward and split_k. A workgroup is one work-item and makes 128 x 32 outputs. It packs 128
// terms of its columns of B into a panel that fits the first-level cache, then takes 8 rows of A at a time through it
// with 8 x 2 vectors of sums in registers. Under split_k group z is the part; entry point combine adds the parts, group
// y a row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define SPLIT_K 2u

#if SCHEDULE != 0u && SCHEDULE != SPLIT_K
#error "gemm_i32_fast has the schedules forward (0) and split_k (2) only"
#endif

#define PARTS 8u
#define ROWS 128u
#define COLUMNS 32u
#define DEPTH 128u
#define STRIP 8u
#define WIDTH 16u

typedef uint u32;

// The columns column .. column + 15 of a row of N words; zero beyond the row's end.
static uint16 load_row(__global const u32 *row, u32 column, u32 N) {
    if (column + WIDTH <= N) {
        return vload16(0, row + column);
    }
    u32 words[WIDTH];
    for (u32 i = 0u; i < WIDTH; i++) {
        words[i] = 0u;
        if (column + i < N) {
            words[i] = row[column + i];
        }
    }
    return vload16(0, words);
}

static void store_row(__global u32 *row, u32 column, u32 N, uint16 value) {
    if (column + WIDTH <= N) {
        vstore16(value, 0, row + column);
        return;
    }
    u32 words[WIDTH];
    vstore16(value, 0, words);
    for (u32 i = 0u; i < WIDTH; i++) {
        if (column + i < N) {
            row[column + i] = words[i];
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void multiply(
    __global const u32 *params,  // M, N, K, first row of the band, terms in a part
    __global const u32 *a,
    __global const u32 *b,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *c,
    __global u32 *receipt) {
    __local uint16 panel[DEPTH][2];
    __local uint16 sums[ROWS][2];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const u32 M = params[0];
    const u32 N = params[1];
    const u32 K = params[2];
    const u32 terms = K - KNOWN_BAD;
    const u32 column = group.x * COLUMNS;
    const u32 first = params[3] + group.y * ROWS;
    u32 rows = 0u;
    if (first < M) {
        rows = min(M - first, ROWS);
    }
    if (group.x + group.y + group.z == 0u) {
        receipt[0] = NONCE;
    }

    u32 begin = 0u;
    u32 end = terms;
    __global u32 *result = c;
    if (SCHEDULE == SPLIT_K) {
        begin = group.z * params[4];
        if (begin > terms) {
            begin = terms;
        }
        if (end - begin > params[4]) {
            end = begin + params[4];
        }
        result = scratch + group.z * M * N;
    }

    for (u32 r = 0u; r < ROWS; r++) {
        sums[r][0] = (uint16)(0u);
        sums[r][1] = (uint16)(0u);
    }
    for (u32 start = begin; start < end; start += DEPTH) {
        const u32 depth = min(end - start, DEPTH);
        for (u32 k = 0u; k < depth; k++) {
            panel[k][0] = load_row(b + (start + k) * N, column, N);
            panel[k][1] = load_row(b + (start + k) * N, column + WIDTH, N);
        }
        for (u32 r = 0u; r < rows; r += STRIP) {
            // Rows beyond the last one repeat it; their sums are not stored.
            __global const u32 *strip[STRIP];
            uint16 left[STRIP];
            uint16 right[STRIP];
            #pragma unroll
            for (u32 i = 0u; i < STRIP; i++) {
                strip[i] = a + (first + min(r + i, rows - 1u)) * K + start;
                left[i] = sums[r + i][0];
                right[i] = sums[r + i][1];
            }
            for (u32 k = 0u; k < depth; k++) {
                const uint16 panel_left = panel[k][0];
                const uint16 panel_right = panel[k][1];
                #pragma unroll
                for (u32 i = 0u; i < STRIP; i++) {
                    left[i] += panel_left * strip[i][k];
                    right[i] += panel_right * strip[i][k];
                }
            }
            #pragma unroll
            for (u32 i = 0u; i < STRIP; i++) {
                sums[r + i][0] = left[i];
                sums[r + i][1] = right[i];
            }
        }
    }
    for (u32 r = 0u; r < rows; r++) {
        store_row(result + (first + r) * N, column, N, sums[r][0]);
        store_row(result + (first + r) * N, column + WIDTH, N, sums[r][1]);
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
        u32 sum = 0u;
        for (u32 part = PARTS; part > 0u; part--) {
            sum += scratch[((part - 1u) * M + row) * N + column];
        }
        c[row * N + column] = sum;
    }
}
