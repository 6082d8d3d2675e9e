// nel_rope: y = the heads of x, i8[M,N], rotated, row t at position start + t: operation 5 of nel-mini-w8a8; the
// reference is cpu_ref/nel_mini_w8a8.py.
//
// A head is 8 columns, i and i + 4 are a pair; cosines and sines are i16, 4 a position. Group x is 64 columns, group y
// the row.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const COLUMNS: u32 = 64u;
const HALF: u32 = 4u;
const SHIFT: u32 = 15u;

// columns, start
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> cosines: array<u32>;
@group(0) @binding(3) var<storage, read> sines: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn turn_heads(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let N = params[0];
    let row = group.y;
    let column = group.x * COLUMNS + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column >= N) {
        return;
    }
    let second = column & HALF;
    let at = row * N + column - second;
    let a = i8_of(x[at >> 2u], at);
    let b = i8_of(x[(at + HALF) >> 2u], at + HALF) * (1u - KNOWN_BAD);
    let angle = (params[1] + row) * HALF + (column & 3u);
    let c = i16_of(cosines[angle >> 1u], angle);
    let s = i16_of(sines[angle >> 1u], angle);
    var sum = a * c - b * s;
    if (second > 0u) {
        sum = a * s + b * c;
    }
    y[row * N + column] = sat8(i32_round_shift(sum, SHIFT));
}
