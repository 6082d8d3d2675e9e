// nel_act: y = sat8(round_shift(silu[gate & 255] * up, 8)) of i8 gate and up: operation 9 of nel-mini-w8a8; the
// reference is cpu_ref/nel_mini_w8a8.py.
//
// The index is the two's-complement byte of gate. Group x is 64 elements.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const ELEMENTS: u32 = 64u;
const SHIFT: u32 = 8u;

// number of elements
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> up: array<u32>;
@group(0) @binding(3) var<storage, read> silu: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn activate(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        let byte = i8_of(gate[i >> 2u], i) & 255u;
        let product = i8_of(silu[byte >> 2u], byte) * i8_of(up[i >> 2u], i);
        y[i] = sat8(i32_round_shift(product, SHIFT)) ^ KNOWN_BAD;
    }
}
