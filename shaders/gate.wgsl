// gate: h[m,n] = round_shift(silu(gate[m,n]) * up[m,n], 16), all Q16 in 64 bits: ops 8 and 9 of profile dyadic-q16; the
// reference is cpu_ref/dyadic_q16.py.
//
// g is the table G, Q30 in 32 bits: the sigmoid at every 2^5 of magnitude, linear between two entries, 1 from 16 on.
// Integers are pairs of words by the prelude int64_limbs. A lane makes one output: group x is 64 columns, group y the
// row.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 64u;
const SILU_END: u32 = 0x100000u;
const ONE: u32 = 0x40000000u;

// M rows, N columns, first row of the band
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> up: array<u32>;
@group(0) @binding(3) var<storage, read> g: array<u32>;
@group(0) @binding(4) var<storage, read_write> h: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn activate(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let N = params[1];
    let row = params[2] + group.y;
    let column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        let at = (row * N + column) << 1u;
        let x: limbs = i64_make(gate[at], gate[at + 1u]);
        var magnitude: limbs = x;
        if (x.y >= 0x80000000u) {
            magnitude = i64_neg(x);
        }
        var s = ONE;
        if (magnitude.y == 0u && magnitude.x < SILU_END) {
            let i = magnitude.x >> 5u;
            // The table rises by less than 2^18 from entry to entry.
            s = g[i] + (((g[i + 1u] - g[i]) * (magnitude.x & 31u) + 16u) >> 5u);
        }
        if (x.y >= 0x80000000u) {
            s = ONE - s;
        }
        var product: limbs = i64_round_shift(i64_mul(x, i64_make(s, 0u)), 30u);
        if (KNOWN_BAD == 0u) {
            product = i64_mul(product, i64_make(up[at], up[at + 1u]));
        }
        let result: limbs = i64_round_shift(product, 16u);
        h[at] = result.x;
        h[at + 1u] = result.y;
    }
}
