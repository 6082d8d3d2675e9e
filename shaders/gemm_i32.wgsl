// gemm_i32: C[m,n] = sum over k of A[m,k] * B[k,n] modulo 2^32, on row-major int32; the reference is cpu_ref/gemm.py.
//
// A workgroup makes 16 x 16 outputs, one a lane, from tiles of 32 terms in workgroup memory. Under the schedule tree it
// makes 16 outputs of one row: 16 lanes take turns at the terms of an output, then their sums are added pairwise.
// Under split_k group z is the part; entry point combine adds the parts, group y a row.

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

// M, N, K, first row of the band, terms in a part
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(5) var<storage, read_write> c: array<u32>;
@group(0) @binding(6) var<storage, read_write> receipt: array<u32>;

var<workgroup> tile_a: array<array<u32, TILE>, SIDE>;
var<workgroup> tile_b: array<array<u32, SIDE>, TILE>;
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
            for (var k = lane.y; k < terms; k += SIDE) {
                sum += a[row * K + k] * b[k * N + column];
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
        for (var side = 0u; side < TILE; side += SIDE) {
            let k_of_a = start + side + lane.x;
            var from_a = 0u;
            if (row < M && k_of_a < end) {
                from_a = a[row * K + k_of_a];
            }
            tile_a[lane.y][side + lane.x] = from_a;
            let k_of_b = start + side + lane.y;
            var from_b = 0u;
            if (k_of_b < end && column < N) {
                from_b = b[k_of_b * N + column];
            }
            tile_b[side + lane.y][lane.x] = from_b;
        }
        workgroupBarrier();
        for (var i = 0u; i < TILE; i++) {
            var k = i;
            if (SCHEDULE == REVERSE) {
                k = TILE - 1u - i;
            }
            sum += tile_a[lane.y][k] * tile_b[k][lane.x];
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
