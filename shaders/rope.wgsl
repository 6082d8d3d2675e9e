// rope: y[t,h,:] = x[t,h,:], each pair (a, b) made round_shift(a * c - b * s, 30) and round_shift(a * s + b * c, 30), x and
// y Q16 in 64 bits, c and s Q30 in 32: op 4 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// A pair is elements (2i, 2i + 1) where pairing is 0, (i, i + hd / 2) where it is 1. Integers are pairs of words by the
// prelude int64_limbs. A lane turns one pair: group x is 32 pairs of a head, group y the token, group z the head.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const LANES: u32 = 32u;

// T tokens, H heads, head width, pairing, first token of the band
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> c: array<u32>;
@group(0) @binding(3) var<storage, read> s: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(32, 1, 1)
fn turn(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let H = params[1];
    let width = params[2];
    let pairs = width >> 1u;
    let token = params[4] + group.y;
    let pair = group.x * LANES + lane.x;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (pair < pairs) {
        var first = pair << 1u;
        var apart = 1u;
        if (params[3] == 1u) {
            first = pair;
            apart = pairs;
        }
        let at = ((token * H + group.z) * width + first) << 1u;
        let other = at + (apart << 1u);
        let a: limbs = i64_make(x[at], x[at + 1u]);
        let b: limbs = i64_make(x[other], x[other + 1u]);
        let cosine: limbs = i64_from_i32(c[token * pairs + pair]);
        let sine: limbs = i64_from_i32(s[token * pairs + pair]);
        var p: limbs = i64_mul(a, cosine);
        var q: limbs = i64_mul(a, sine);
        if (KNOWN_BAD == 0u) {
            p = i64_sub(p, i64_mul(b, sine));
            q = i64_add(q, i64_mul(b, cosine));
        }
        p = i64_round_shift(p, 30u);
        q = i64_round_shift(q, 30u);
        y[at] = p.x;
        y[at + 1u] = p.y;
        y[other] = q.x;
        y[other + 1u] = q.y;
    }
}
