// probe_heap: words of a large buffer that is written and read at a few places only;
// the reference is cpu_ref/probe_memory.py.
//
// Entry point store leaves at each place of the heap what tells it from all others, load brings that back: two places
// that a device takes for one, or one beyond its reach, show.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

// n
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> places: array<u32>;
@group(0) @binding(2) var<storage, read_write> heap: array<u32>;
@group(0) @binding(3) var<storage, read_write> found: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn store(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        heap[places[i]] = (places[i] ^ 0xa5a5a5a5u) * 0x9e3779b1u;
    }
}

@compute @workgroup_size(64, 1, 1)
fn load(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < params[0]) {
        found[i] = heap[places[i]] + i + KNOWN_BAD;
    }
}
