// rmsnorm: y[m,n] = round_shift(x[m,n] * g[n] * inv[m], 71 - e / 2) with inv and e of the row's sum of squares, x and y
// Q16, g Q24, eps32 Q32, all of 64 bits: op 3 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// Sums and products are four words by the prelude int128_limbs; root and quotients are made bit by bit, once a row. A
// workgroup makes one row: group x. One lane adds its squares; under the schedule tree 64 lanes take turns at the
// terms, then their sums are added pairwise. Under split_k group z is the part; entry point combine adds the parts.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const PART: u32 = 3u;

fn square(x: limbs) -> wide {
    var magnitude: limbs = x;
    if (x.y >= 0x80000000u) {
        magnitude = i64_neg(x);
    }
    return u64_mul_wide(magnitude, magnitude);
}

// inv of op 3, low, and the shift 71 - e / 2, high.
fn inverse(squares: wide, n: u32, eps32: limbs) -> limbs {
    let zero: limbs = i64_make(0u, 0u);
    let mean: wide = i128_add(u128_div(squares, i128_make(i64_make(n, 0u), zero)), i128_make(eps32, zero));
    // The bit length: of the highest word that is not zero, and of those below it.
    var length = 0u;
    var highest = mean.x;
    if (mean.y > 0u) {
        length = 32u;
        highest = mean.y;
    }
    if (mean.z > 0u) {
        length = 64u;
        highest = mean.z;
    }
    if (mean.w > 0u) {
        length = 96u;
        highest = mean.w;
    }
    for (var bit = 0u; bit < 32u; bit++) {
        if ((highest >> bit) > 0u) {
            length += 1u;
        }
    }
    // A length of 64 - e or 63 - e for an even e; m is the mean times 2^e.
    var m: limbs = zero;
    var shift = 71u;
    if (length <= 64u) {
        let e = ((64u - length) >> 1u) << 1u;
        m = i128_low(i128_shl(mean, e));
        shift -= e >> 1u;
    } else {
        let minus_e = ((length - 63u) >> 1u) << 1u;
        m = i128_low(u128_shr(mean, minus_e));
        shift += minus_e >> 1u;
    }
    let quotient: limbs = u64_div(i64_make(0xffffffffu, 0x7fffffffu), i64_make(u64_isqrt(m), 0u));
    return i64_make(quotient.x, shift);
}

fn scaled(x: limbs, gain: limbs, factor: limbs) -> limbs {
    let product: wide = i128_mul(i128_from_i64(x), i128_from_i64(gain));
    let whole: wide = i128_mul(product, i128_make(i64_make(factor.x, 0u), i64_make(0u, 0u)));
    return i128_low(i128_round_shift(whole, factor.y));
}

// M rows, N columns, first row of the band, terms in a part
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> g: array<u32>;
@group(0) @binding(3) var<storage, read> eps32: array<u32>;
@group(0) @binding(4) var<storage, read> order: array<u32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<u32>;
@group(0) @binding(7) var<storage, read_write> receipt: array<u32>;

var<workgroup> sums: array<wide, LANES>;

@compute @workgroup_size(64, 1, 1)
fn normalise(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let M = params[0];
    let N = params[1];
    let terms = N - KNOWN_BAD;
    let row = params[2] + group.x;
    let part = group.z;
    if (group.x + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    let begin = first_term(SCHEDULE, part, params[PART], terms);
    let end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    var steps = steps_of_terms(SCHEDULE, begin, end, (N + TILE - 1u) >> 5u);
    if (SCHEDULE != TREE && lane.x > 0u) {
        steps = 0u;
    }

    var sum: wide = i128_make(i64_make(0u, 0u), i64_make(0u, 0u));
    for (var step = 0u; step < steps; step++) {
        let column = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (column < end) {
            let at = (row * N + column) << 1u;
            sum = i128_add(sum, square(i64_make(x[at], x[at + 1u])));
        }
    }

    sums[lane.x] = sum;
    workgroupBarrier();
    if (SCHEDULE == TREE) {
        for (var reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] = i128_add(sums[lane.x], sums[lane.x + reach]);
            }
            workgroupBarrier();
        }
    }
    if (SCHEDULE == SPLIT_K) {
        if (lane.x == 0u) {
            let at = (part * M + row) << 2u;
            scratch[at] = sum.x;
            scratch[at + 1u] = sum.y;
            scratch[at + 2u] = sum.z;
            scratch[at + 3u] = sum.w;
        }
        return;
    }
    if (lane.x == 0u) {
        sums[0] = i128_make(inverse(sums[0], N, i64_make(eps32[0], eps32[1])), i64_make(0u, 0u));
    }
    workgroupBarrier();
    let factor: limbs = i128_low(sums[0]);
    for (var column = lane.x; column < N; column += LANES) {
        let g_at = column << 1u;
        let at = (row * N + column) << 1u;
        let result: limbs = scaled(i64_make(x[at], x[at + 1u]), i64_make(g[g_at], g[g_at + 1u]), factor);
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}

@compute @workgroup_size(64, 1, 1)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    let M = params[0];
    let N = params[1];
    let row = params[2] + group.x;
    if (group.x + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (lane.x == 0u) {
        var sum: wide = i128_make(i64_make(0u, 0u), i64_make(0u, 0u));
        for (var part = PARTS; part > 0u; part--) {
            let at = ((part - 1u) * M + row) << 2u;
            let low: limbs = i64_make(scratch[at], scratch[at + 1u]);
            sum = i128_add(sum, i128_make(low, i64_make(scratch[at + 2u], scratch[at + 3u])));
        }
        sums[0] = i128_make(inverse(sum, N, i64_make(eps32[0], eps32[1])), i64_make(0u, 0u));
    }
    workgroupBarrier();
    let factor: limbs = i128_low(sums[0]);
    for (var column = lane.x; column < N; column += LANES) {
        let g_at = column << 1u;
        let at = (row * N + column) << 1u;
        let result: limbs = scaled(i64_make(x[at], x[at + 1u]), i64_make(g[g_at], g[g_at + 1u]), factor);
        y[at] = result.x;
        y[at + 1u] = result.y;
    }
}
