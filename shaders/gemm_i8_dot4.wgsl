// gemm_i8_dot4: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int8, four to a word, the first in the
// lowest byte, rows not padded; the reference is cpu_ref/gemm.py.
//
// Products of four bytes at a time by the device's packed dot product, of signed or of unsigned bytes: add_dot of the
// prelude before it, dot4_signed or dot4_unsigned; gemm_i8 is its scalar twin.
//
// A workgroup makes 16 x 16 outputs, one a lane, from tiles of 32 terms in workgroup memory, four terms to a word.
// Under the schedule tree it makes 16 outputs of one row: 16 lanes take turns at the words, then their sums are added
// pairwise. Under split_k group z is the part; entry point combine adds the parts, group y a row.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const REVERSE: u32 = 1u;
const SPLIT_K: u32 = 2u;
const TILED_SHUFFLED: u32 = 3u;
const TREE: u32 = 4u;

const PARTS: u32 = 8u;
const SIDE: u32 = 16u;
const TILE: u32 = 32u;
const WORDS: u32 = 8u;

// Byte i of a tensor, out of the word that holds it.
fn byte_of(word: u32, i: u32) -> u32 {
    return (word >> ((i & 3u) << 3u)) & 255u;
}

// M, N, K, first row of the band, terms in a part
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> c: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> tile_a: array<array<u32, WORDS>, SIDE>;
var<workgroup> tile_b: array<array<u32, SIDE>, WORDS>;
var<workgroup> lanes: array<array<u32, SIDE>, SIDE>;

@compute @workgroup_size(16, 16, 1)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let K = params[2];
    let terms = K - KNOWN_BAD;
    let column = group.x * SIDE + lane.x;
    if (group.x + group.y + group.z + lane.x + lane.y == 0u) {
        receipt[0] = NONCE;
    }

    if (SCHEDULE == TREE) {
        let row = params[3] + group.y;
        var sum = 0u;
        if (row < M && column < N) {
            for (var first = lane.y << 2u; first < terms; first += SIDE << 2u) {
                var from_a = 0u;
                var from_b = 0u;
                for (var i = 0u; i < 4u; i++) {
                    let k = first + i;
                    if (k < terms) {
                        let a_at = row * K + k;
                        let b_at = k * N + column;
                        from_a |= byte_of(a[a_at >> 2u], a_at) << (i << 3u);
                        from_b |= byte_of(b[b_at >> 2u], b_at) << (i << 3u);
                    }
                }
                sum = add_dot(sum, from_a, from_b);
            }
        }
        lanes[lane.y][lane.x] = sum;
        workgroupBarrier();
        for (var reach = SIDE >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.y < reach) {
                lanes[lane.y][lane.x] += lanes[lane.y + reach][lane.x];
            }
            workgroupBarrier();
        }
        if (lane.y == 0u && row < M && column < N) {
            c[row * N + column] = lanes[0][lane.x];
        }
        return;
    }

    // The terms begin .. end - 1, in tiles; what a tile has beyond end counts as zero.
    let row = params[3] + group.y * SIDE + lane.y;
    var begin = 0u;
    var end = terms;
    if (SCHEDULE == SPLIT_K) {
        begin = group.z * params[4];
        if (begin > terms) {
            begin = terms;
        }
        if (end - begin > params[4]) {
            end = begin + params[4];
        }
    }
    var tiles = (end - begin + TILE - 1u) >> 5u;
    if (SCHEDULE == TILED_SHUFFLED) {
        tiles = (K + TILE - 1u) >> 5u;
    }
    var sum = 0u;
    for (var t = 0u; t < tiles; t++) {
        var start = begin + t * TILE;
        if (SCHEDULE == REVERSE) {
            start = begin + (tiles - 1u - t) * TILE;
        }
        if (SCHEDULE == TILED_SHUFFLED) {
            start = order[t] * TILE;
        }
        if (lane.x < WORDS) {
            var from_a = 0u;
            for (var i = 0u; i < 4u; i++) {
                let k = start + (lane.x << 2u) + i;
                if (row < M && k < end) {
                    let at = row * K + k;
                    from_a |= byte_of(a[at >> 2u], at) << (i << 3u);
                }
            }
            tile_a[lane.y][lane.x] = from_a;
        }
        if (lane.y < WORDS) {
            var from_b = 0u;
            for (var i = 0u; i < 4u; i++) {
                let k = start + (lane.y << 2u) + i;
                if (column < N && k < end) {
                    let at = k * N + column;
                    from_b |= byte_of(b[at >> 2u], at) << (i << 3u);
                }
            }
            tile_b[lane.y][lane.x] = from_b;
        }
        workgroupBarrier();
        for (var i = 0u; i < WORDS; i++) {
            var word = i;
            if (SCHEDULE == REVERSE) {
                word = WORDS - 1u - i;
            }
            sum = add_dot(sum, tile_a[lane.y][word], tile_b[word][lane.x]);
        }
        workgroupBarrier();
    }
    if (row < M && column < N) {
        if (SCHEDULE == SPLIT_K) {
            scratch[(group.z * M + row) * N + column] = sum;
        } else {
            c[row * N + column] = sum;
        }
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let row = params[3] + group.y;
    let column = group.x * 64u + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (row < M && column < N) {
        var sum = 0u;
        for (var part = PARTS; part > 0u; part--) {
            sum += scratch[((part - 1u) * M + row) * N + column];
        }
        c[row * N + column] = sum;
    }
}
