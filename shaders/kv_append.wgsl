// kv_append: cache[past + r,:] = rows[r,:], keys or values of 64 bits, what profile dyadic-q16 keeps of a position; the
// reference is cpu_ref/layers.py.
//
// A lane copies one element: group x is 64 columns, group y the row.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;

// W columns, first row of rows, first row of the cache
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> cache: array<u32>;
@group(0) @binding(3) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn append(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let W = params[0];
    let column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < W) {
        let source = ((params[1] + group.y) * W + column) << 1u;
        let at = ((params[2] + group.y) * W + column) << 1u;
        cache[at] = rows[source] ^ KNOWN_BAD;
        cache[at + 1u] = rows[source + 1u];
    }
}
