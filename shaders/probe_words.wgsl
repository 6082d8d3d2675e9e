// probe_words: found[i] from words of given that are reached by indices in several ways, by dispatches of any extent;
// the reference is cpu_ref/probe_memory.py.
//
// The option way says which: page reads its neighbours where these are inside the tensor, wrapped takes indices past
// 2^31 and 2^32 and back, unaligned reads across the bounds of words. Entry point never spoils all; it is dispatched
// with no workgroup at all.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const PAGE: u32 = 0u;
const WRAPPED: u32 = 1u;

// own_*: what this language has built in; else by hand.

// Four bytes from a byte offset that need not be a multiple of 4.
fn own_bytes(offset: u32) -> u32 {
    let at = offset >> 2u;
    let bits = (offset & 3u) << 3u;
    if (bits == 0u) {
        return given[at];
    }
    return (given[at] >> bits) | (given[at + 1u] << (32u - bits));
}

// Four words from an index that need not be a multiple of 4, the last turned over.
fn own_four(i: u32) -> u32 {
    return given[i] + given[i + 1u] * 3u + given[i + 2u] * 5u + (~given[i + 3u]) * 7u;
}

// A word inside the tensor, else 7.
fn own_guarded(i: u32, n: u32) -> u32 {
    if (i < n) {
        return given[i];
    }
    return 7u;
}

fn at_page_end(i: u32, n: u32) -> u32 {
    var sum = given[i] * 3u + own_guarded(i + 1u, n);
    if (i > 0u) {
        sum -= given[i - 1u];
    }
    if (i + 64u < n) {
        sum ^= given[i + 64u];
    }
    return sum;
}

fn wrapped(i: u32, n: u32, base: u32, pitch: u32) -> u32 {
    let at = base + i;
    let top = n - 1u + base;
    return (given[at - base] ^ at) + given[top - at] * 3u + given[i * pitch - i * (pitch - 1u)] * 5u;
}

fn unaligned(i: u32, n: u32) -> u32 {
    var sum = given[i];
    let offset = i * 3u + 1u;
    if (offset + 4u <= n << 2u) {
        sum ^= own_bytes(offset);
    }
    if (i + 4u <= n) {
        sum += own_four(i);
    }
    return sum;
}

// n, way, workgroups in x and y, base, pitch
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> given: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;
@group(0) @binding(3) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let n = params[0];
    let i = ((group.z * params[3] + group.y) * params[2] + group.x) * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < n) {
        var value = 0u;
        if (params[1] == PAGE) {
            value = at_page_end(i, n);
        } else if (params[1] == WRAPPED) {
            value = wrapped(i, n, params[4], params[5]);
        } else {
            value = unaligned(i, n);
        }
        found[i] = value ^ KNOWN_BAD;
    }
}

@compute @workgroup_size(64, 1, 1)
fn never(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < params[0]) {
        found[i] = 0u;
    }
}
