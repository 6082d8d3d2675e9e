// probe_bits: shifts, rotates, bit fields and counts of bits, an operation a row;
// the reference is cpu_ref/probe.py.
//
// A row names an operation and its four operand words; it gets four words back. The variant `literal` writes the
// operands of known rows into this text in place of a, b, c, d, so that compilers compute them.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

// The low half or byte as a signed integer.
fn s16(a: u32) -> i32 {
    return i32(a << 16u) >> 16u;
}

fn s8(a: u32) -> i32 {
    return i32(a << 24u) >> 24u;
}

// WGSL lets no constant expression shift set bits out, so operands of `<<` come as arguments.
fn shl(a: u32, n: u32) -> u32 {
    return a << n;
}

fn rotl(a: u32, n: u32) -> u32 {
    return (a << n) | (a >> ((32u - n) & 31u));
}

fn rotr(a: u32, n: u32) -> u32 {
    return (a >> n) | (a << ((32u - n) & 31u));
}

// The lowest `count` bits, count at most 32.
fn mask(count: u32) -> u32 {
    if (count == 0u) {
        return 0u;
    }
    return 0xffffffffu >> (32u - count);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

fn own_rotl(a: u32, b: u32) -> u32 {
    return (a << b) | (a >> ((32u - b) & 31u));
}

fn own_rotr(a: u32, b: u32) -> u32 {
    return (a >> b) | (a << ((32u - b) & 31u));
}

fn own_funnel_l(a: u32, b: u32, c: u32) -> u32 {
    return (a << c) | ((b >> 1u) >> (31u - c));
}

fn own_funnel_r(a: u32, b: u32, c: u32) -> u32 {
    return (b >> c) | ((a << 1u) << (31u - c));
}

fn own_shl_16(a: u32, b: u32) -> u32 {
    return (a << b) & 0xffffu;
}

fn own_shr_16(a: u32, b: u32) -> u32 {
    return (a & 0xffffu) >> b;
}

fn own_sar_16(a: u32, b: u32) -> u32 {
    return u32(s16(a) >> b);
}

fn own_shl_8(a: u32, b: u32) -> u32 {
    return (a << b) & 0xffu;
}

fn own_shr_8(a: u32, b: u32) -> u32 {
    return (a & 0xffu) >> b;
}

fn own_sar_8(a: u32, b: u32) -> u32 {
    return u32(s8(a) >> b);
}

fn own_shift_left(values: quad, counts: quad) -> quad {
    return values << counts;
}

fn own_shift_right(values: quad, counts: quad) -> quad {
    return values >> counts;
}

fn own_shift_right_s(values: quad, counts: quad) -> quad {
    return quad(vec4<i32>(values) >> counts);
}

fn own_extract_u(a: u32, b: u32, c: u32) -> u32 {
    return extractBits(a, b, c);
}

fn own_extract_s(a: u32, b: u32, c: u32) -> u32 {
    return u32(extractBits(i32(a), b, c));
}

fn own_insert(a: u32, d: u32, b: u32, c: u32) -> u32 {
    return insertBits(a, d, b, c);
}

fn own_clz(a: u32) -> u32 {
    return countLeadingZeros(a);
}

fn own_ctz(a: u32) -> u32 {
    return countTrailingZeros(a);
}

fn own_popcount(a: u32) -> u32 {
    return countOneBits(a);
}

fn own_reverse(a: u32) -> u32 {
    return reverseBits(a);
}

fn own_first_leading_u(a: u32) -> u32 {
    return firstLeadingBit(a);
}

fn own_first_leading_s(a: u32) -> u32 {
    return u32(firstLeadingBit(i32(a)));
}

fn own_first_trailing(a: u32) -> u32 {
    return firstTrailingBit(a);
}

fn own_shl_wide(a: u32, b: u32) -> u32 {
    return a << b;
}

fn own_shr_wide(a: u32, b: u32) -> u32 {
    return a >> b;
}

fn own_sar_wide(a: u32, b: u32) -> u32 {
    return u32(i32(a) >> b);
}

fn both_right(values: quad, counts: quad) -> quad {
    let u: quad = own_shift_right(values, counts);
    let s: quad = own_shift_right_s(values, counts);
    return words(u.x, u.y, s.z, s.w);
}

fn operation(op: u32, a: u32, b: u32, c: u32, d: u32) -> quad {
    switch (op) {
        case 0u: { return words(shl(a, b), a >> b, u32(i32(a) >> b), 0u); }  // shift
        case 1u: { return words(own_rotl(a, b), own_rotr(a, b), rotl(a, b), rotr(a, b)); }  // rotate
        case 2u: { return words(own_funnel_l(a, c, b), own_funnel_r(a, c, b), 0u, 0u); }  // funnel
        case 3u: { return words(own_shl_16(a, b), own_shr_16(a, b), own_sar_16(a, b), 0u); }  // shift_16
        case 4u: { return words(own_shl_8(a, b), own_shr_8(a, b), own_sar_8(a, b), 0u); }  // shift_8
        case 5u: { return own_shift_left(words(a, a, b, b), words(c, d, c, d)); }  // shift_vector
        case 6u: { return both_right(words(a, a, b, b), words(c, d, c, d)); }  // shift_vector_right
        case 7u: { return words(own_extract_u(a, b, c), own_extract_s(a, b, c), own_insert(a, d, b, c), 0u); }  // field
        case 8u: { return words(own_clz(a), own_ctz(a), own_popcount(a), own_reverse(a)); }  // count
        case 9u: { return words(own_first_leading_u(a), own_first_leading_s(a), own_first_trailing(a), 0u); }  // first_bit
        case 10u: { return words(own_shl_wide(a, b), own_shr_wide(a, b), own_sar_wide(a, b), 0u); }  // shift_wide
        default: { return words(0u, 0u, 0u, 0u); }
    }
}

// rows, first literal
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ops: array<u32>;
@group(0) @binding(2) var<storage, read> operands: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn probe(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[0] = NONCE;
    }
    if (row < params[0]) {
        let at = row << 2u;
        let r: quad = operation(
            ops[row] | (KNOWN_BAD * 0xffffffffu), operands[at], operands[at + 1u], operands[at + 2u], operands[at + 3u]);
        results[at] = r.x;
        results[at + 1u] = r.y;
        results[at + 2u] = r.z;
        results[at + 3u] = r.w;
    }
}
