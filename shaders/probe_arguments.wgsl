// probe_arguments: y[i] = sum over j of 31^(11 - j) * xj[i] modulo 2^32, a kernel of fifteen arguments;
// the reference is cpu_ref/probe_memory.py.
//
// WebGPU promises eight buffers to a kernel; many devices take more.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

// n
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x0: array<u32>;
@group(0) @binding(2) var<storage, read> x1: array<u32>;
@group(0) @binding(3) var<storage, read> x2: array<u32>;
@group(0) @binding(4) var<storage, read> x3: array<u32>;
@group(0) @binding(5) var<storage, read> x4: array<u32>;
@group(0) @binding(6) var<storage, read> x5: array<u32>;
@group(0) @binding(7) var<storage, read> x6: array<u32>;
@group(0) @binding(8) var<storage, read> x7: array<u32>;
@group(0) @binding(9) var<storage, read> x8: array<u32>;
@group(0) @binding(10) var<storage, read> x9: array<u32>;
@group(0) @binding(11) var<storage, read> x10: array<u32>;
@group(0) @binding(12) var<storage, read> x11: array<u32>;
@group(0) @binding(13) var<storage, read_write> y: array<u32>;
@group(0) @binding(14) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        var sum = KNOWN_BAD;
        sum = sum * 31u + x0[i];
        sum = sum * 31u + x1[i];
        sum = sum * 31u + x2[i];
        sum = sum * 31u + x3[i];
        sum = sum * 31u + x4[i];
        sum = sum * 31u + x5[i];
        sum = sum * 31u + x6[i];
        sum = sum * 31u + x7[i];
        sum = sum * 31u + x8[i];
        sum = sum * 31u + x9[i];
        sum = sum * 31u + x10[i];
        sum = sum * 31u + x11[i];
        y[i] = sum;
    }
}
