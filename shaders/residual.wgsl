// residual: z[m,n] = x[m,n] + y[m,n], Q16 in 64 bits: op 10 of profile dyadic-q16; the reference is
// cpu_ref/dyadic_q16.py.
//
// Integers are pairs of words by the prelude int64_limbs. A lane makes one output: group x is 64 columns, group y the
// row.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;

// M rows, N columns, first row of the band
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> y: array<u32>;
@group(0) @binding(3) var<storage, read_write> z: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let N = params[1];
    let row = params[2] + group.y;
    let column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        let at = (row * N + column) << 1u;
        var sum: limbs = i64_make(x[at], x[at + 1u]);
        if (KNOWN_BAD == 0u) {
            sum = i64_add(sum, i64_make(y[at], y[at + 1u]));
        }
        z[at] = sum.x;
        z[at + 1u] = sum.y;
    }
}
