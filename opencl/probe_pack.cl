// probe_pack: packed bytes and halves, fp16 by integers, vectors beside scalars, an operation a row;
// the reference is cpu_ref/probe.py.
//
// A row names an operation and its four operand words; it gets four words back. The variant `literal` writes the
// operands of known rows into this text in place of a, b, c, d, so that compilers compute them.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

// The low half or byte as a signed integer.
static i32 s16(u32 a) {
    return i32(a << 16u) >> 16u;
}

static i32 s8(u32 a) {
    return i32(a << 24u) >> 24u;
}

// A finite fp16 as a float's bits, by integers: a subnormal is shifted until its first bit leads.
static u32 half_as_float(u32 h) {
    const u32 sign = (h & 0x8000u) << 16u;
    const u32 exponent = (h >> 10u) & 31u;
    const u32 fraction = h & 1023u;
    if (exponent != 0u) {
        return sign | ((exponent + 112u) << 23u) | (fraction << 13u);
    }
    if (fraction == 0u) {
        return sign;
    }
    u32 place = 10u;
    while ((fraction >> place) == 0u) {
        place -= 1u;
    }
    return sign | ((place + 103u) << 23u) | ((fraction << (23u - place)) & 0x7fffffu);
}

// A finite fp16 times 2^24, as a 64-bit integer: low and high word.
static quad half_as_q24(u32 h) {
    const u32 exponent = (h >> 10u) & 31u;
    u32 low = h & 1023u;
    u32 high = 0u;
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

static u32 clamped(u32 a, i32 least, i32 most) {
    return u32(min(max(i32(a), least), most));
}

static u32 bytes(u32 a, u32 b, u32 c, u32 d) {
    return (a & 255u) | ((b & 255u) << 8u) | ((c & 255u) << 16u) | (d << 24u);
}

// The same component by component.
static u32 arithmetic(u32 a, u32 b) {
    return a * b + (a ^ b) - (b >> 3u);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

static quad own_unpack_s8(u32 a) {
    const char4 v = as_char4(a);
    return words(u32(i32(v.x)), u32(i32(v.y)), u32(i32(v.z)), u32(i32(v.w)));
}

static quad own_unpack_u8(u32 a) {
    const uchar4 v = as_uchar4(a);
    return words(v.x, v.y, v.z, v.w);
}

static u32 own_pack_s8(quad v) {
    return as_uint((char4)((char)v.x, (char)v.y, (char)v.z, (char)v.w));
}

static u32 own_pack_u8(quad v) {
    return as_uint((uchar4)((uchar)v.x, (uchar)v.y, (uchar)v.z, (uchar)v.w));
}

static u32 own_pack_clamp_s8(quad v) {
    return as_uint(convert_char4_sat(as_int4(v)));
}

static u32 own_pack_clamp_u8(quad v) {
    return as_uint(convert_uchar4_sat(v));
}

static quad own_arithmetic(quad v, quad w) {
    return v * w + (v ^ w) - (w >> (quad)(3u));
}

static quad own_least(quad v, quad w) {
    return min(v, w);
}

static quad own_chosen(quad v, quad w) {
    return as_int4(v) < as_int4(w) ? w : v;
}

static u32 own_shift_halves(u32 a, u32 n) {
    const ushort2 v = as_ushort2(a) << (ushort2)((ushort)n);
    return as_uint(v);
}

static quad own_threes(quad v, u32 i) {
    uint3 three[2u] = {v.xyz, v.wxy};
    three[i ^ 1u].y = v.z ^ 5u;
    return words(three[i].x, three[i].y, three[i].z, three[i ^ 1u].y);
}

static quad operation(u32 op, u32 a, u32 b, u32 c, u32 d) {
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

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe(
    __global const u32 *params,  // rows, first literal
    __global const u32 *ops,
    __global const u32 *operands,
    __global u32 *results,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 row = group.x * 64u + lane.x;
    if (row == 0u) {
        receipt[0] = NONCE;
    }
    if (row < params[0]) {
        const u32 at = row << 2u;
        const quad r = operation(
            ops[row] | (KNOWN_BAD * 0xffffffffu), operands[at], operands[at + 1u], operands[at + 2u], operands[at + 3u]);
        results[at] = r.x;
        results[at + 1u] = r.y;
        results[at + 2u] = r.z;
        results[at + 3u] = r.w;
    }
}
