// nel_residual: y = sat8(a + b) of i8 a and b: operation 10 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// Group x is 64 elements.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const ELEMENTS: u32 = 64u;

// number of elements
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn add_residual(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * ELEMENTS + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        y[i] = sat8(i8_of(a[i >> 2u], i) + i8_of(b[i >> 2u], i)) ^ KNOWN_BAD;
    }
}
