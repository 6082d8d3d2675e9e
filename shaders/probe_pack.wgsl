// probe_pack: packed bytes and halves, fp16 by integers, vectors beside scalars, an operation a row;
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

// A finite fp16 as a float's bits, by integers: a subnormal is shifted until its first bit leads.
fn half_as_float(h: u32) -> u32 {
    let sign = (h & 0x8000u) << 16u;
    let exponent = (h >> 10u) & 31u;
    let fraction = h & 1023u;
    if (exponent != 0u) {
        return sign | ((exponent + 112u) << 23u) | (fraction << 13u);
    }
    if (fraction == 0u) {
        return sign;
    }
    var place = 10u;
    while ((fraction >> place) == 0u) {
        place -= 1u;
    }
    return sign | ((place + 103u) << 23u) | ((fraction << (23u - place)) & 0x7fffffu);
}

// A finite fp16 times 2^24, as a 64-bit integer: low and high word.
fn half_as_q24(h: u32) -> quad {
    let exponent = (h >> 10u) & 31u;
    var low = h & 1023u;
    var high = 0u;
    if (exponent > 0u) {
        low = (1024u | low) << (exponent - 1u);
        high = ((1024u | (h & 1023u)) >> 1u) >> (32u - exponent);
    }
    if ((h & 0x8000u) != 0u) {
        low = 0u - low;
        high = ~high + u32(low == 0u);
    }
    return words(low, high, half_as_float(h & 0xffffu), 0u);
}

fn clamped(a: u32, least: i32, most: i32) -> u32 {
    return u32(min(max(i32(a), least), most));
}

fn bytes(a: u32, b: u32, c: u32, d: u32) -> u32 {
    return (a & 255u) | ((b & 255u) << 8u) | ((c & 255u) << 16u) | (d << 24u);
}

// The same component by component.
fn arithmetic(a: u32, b: u32) -> u32 {
    return a * b + (a ^ b) - (b >> 3u);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

fn own_unpack_s8(a: u32) -> quad {
    return quad(unpack4xI8(a));
}

fn own_unpack_u8(a: u32) -> quad {
    return unpack4xU8(a);
}

fn own_pack_s8(v: quad) -> u32 {
    return pack4xI8(vec4<i32>(v));
}

fn own_pack_u8(v: quad) -> u32 {
    return pack4xU8(v);
}

fn own_pack_clamp_s8(v: quad) -> u32 {
    return pack4xI8Clamp(vec4<i32>(v));
}

fn own_pack_clamp_u8(v: quad) -> u32 {
    return pack4xU8Clamp(v);
}

fn own_arithmetic(v: quad, w: quad) -> quad {
    return v * w + (v ^ w) - (w >> quad(3u));
}

fn own_least(v: quad, w: quad) -> quad {
    return min(v, w);
}

fn own_chosen(v: quad, w: quad) -> quad {
    return select(v, w, vec4<i32>(v) < vec4<i32>(w));
}

fn own_shift_halves(a: u32, n: u32) -> u32 {
    return ((a << n) & 0xffffu) | (((a >> 16u) << n) << 16u);
}

fn own_threes(v: quad, i: u32) -> quad {
    var three = array<vec3<u32>, 2u>(v.xyz, v.wxy);
    three[i ^ 1u].y = v.z ^ 5u;
    return words(three[i].x, three[i].y, three[i].z, three[i ^ 1u].y);
}

fn operation(op: u32, a: u32, b: u32, c: u32, d: u32) -> quad {
    switch (op) {
        case 0u: { return own_unpack_s8(a); }  // unpack_s8
        case 1u: { return own_unpack_u8(a); }  // unpack_u8
        case 2u: { return words(own_pack_s8(words(a, b, c, d)), own_pack_u8(words(a, b, c, d)),
                                bytes(a, b, c, d), 0u); }  // pack
        case 3u: { return words(own_pack_clamp_s8(words(a, b, c, d)), own_pack_clamp_u8(words(a, b, c, d)),
                                0u, 0u); }  // pack_clamp
        case 4u: { return words(u32(s8(a) + s8(a >> 8u) + s8(a >> 16u) + s8(a >> 24u)),
                                u32(s16(a) + s16(a >> 16u)), 0u, 0u); }  // sum_of_bytes
        case 5u: { return half_as_q24(a); }  // half
        case 6u: { return own_arithmetic(words(a, b, c, d), words(d, c, b, a)); }  // vector_arithmetic
        case 7u: { return words(arithmetic(a, d), arithmetic(b, c), arithmetic(c, b), arithmetic(d, a)); }  // scalar_arithmetic
        case 8u: { return own_least(words(a, b, c, d), words(d, c, b, a)); }  // vector_least
        case 9u: { return own_chosen(words(a, b, c, d), words(d, c, b, a)); }  // vector_chosen
        case 10u: { return words(own_shift_halves(a, b), 0u, 0u, 0u); }  // shift_halves
        case 11u: { return own_threes(words(a, b, c, d), a & 1u); }  // vectors_of_three
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
