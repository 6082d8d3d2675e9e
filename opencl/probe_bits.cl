// probe_bits: shifts, rotates, bit fields and counts of bits, an operation a row;
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

// WGSL lets no constant expression shift set bits out, so operands of `<<` come as arguments.
static u32 shl(u32 a, u32 n) {
    return a << n;
}

static u32 rotl(u32 a, u32 n) {
    return (a << n) | (a >> ((32u - n) & 31u));
}

static u32 rotr(u32 a, u32 n) {
    return (a >> n) | (a << ((32u - n) & 31u));
}

// The lowest `count` bits, count at most 32.
static u32 mask(u32 count) {
    if (count == 0u) {
        return 0u;
    }
    return 0xffffffffu >> (32u - count);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

static u32 own_rotl(u32 a, u32 b) {
    return rotate(a, b);
}

static u32 own_rotr(u32 a, u32 b) {
    return rotate(a, 32u - b);
}

static u32 own_funnel_l(u32 a, u32 b, u32 c) {
    return (a << c) | ((b >> 1u) >> (31u - c));
}

static u32 own_funnel_r(u32 a, u32 b, u32 c) {
    return (b >> c) | ((a << 1u) << (31u - c));
}

static u32 own_shl_16(u32 a, u32 b) {
    return (ushort)(u32((ushort)a) << b);
}

static u32 own_shr_16(u32 a, u32 b) {
    return u32((ushort)a >> b);
}

static u32 own_sar_16(u32 a, u32 b) {
    return u32((short)a >> b);
}

static u32 own_shl_8(u32 a, u32 b) {
    return (uchar)(u32((uchar)a) << b);
}

static u32 own_shr_8(u32 a, u32 b) {
    return u32((uchar)a >> b);
}

static u32 own_sar_8(u32 a, u32 b) {
    return u32((char)a >> b);
}

static quad own_shift_left(quad values, quad counts) {
    return values << counts;
}

static quad own_shift_right(quad values, quad counts) {
    return values >> counts;
}

static quad own_shift_right_s(quad values, quad counts) {
    return as_uint4(as_int4(values) >> as_int4(counts));
}

static u32 own_extract_u(u32 a, u32 b, u32 c) {
    return (a >> b) & mask(c);
}

static u32 own_extract_s(u32 a, u32 b, u32 c) {
    if (c == 0u) {
        return 0u;
    }
    return u32(i32(a << (32u - b - c)) >> (32u - c));
}

static u32 own_insert(u32 a, u32 d, u32 b, u32 c) {
    return (a & ~(mask(c) << b)) | ((d & mask(c)) << b);
}

static u32 own_clz(u32 a) {
    return clz(a);
}

static u32 own_ctz(u32 a) {
    return popcount((a & (0u - a)) - 1u);
}

static u32 own_popcount(u32 a) {
    return popcount(a);
}

static u32 own_reverse(u32 a) {
    a = ((a >> 1u) & 0x55555555u) | ((a & 0x55555555u) << 1u);
    a = ((a >> 2u) & 0x33333333u) | ((a & 0x33333333u) << 2u);
    a = ((a >> 4u) & 0x0f0f0f0fu) | ((a & 0x0f0f0f0fu) << 4u);
    a = ((a >> 8u) & 0x00ff00ffu) | ((a & 0x00ff00ffu) << 8u);
    return (a >> 16u) | (a << 16u);
}

static u32 own_first_leading_u(u32 a) {
    return 31u - clz(a);
}

static u32 own_first_leading_s(u32 a) {
    return 31u - clz(a ^ (0u - (a >> 31u)));
}

static u32 own_first_trailing(u32 a) {
    return a == 0u ? 0xffffffffu : popcount((a & (0u - a)) - 1u);
}

static u32 own_shl_wide(u32 a, u32 b) {
    return a << b;
}

static u32 own_shr_wide(u32 a, u32 b) {
    return a >> b;
}

static u32 own_sar_wide(u32 a, u32 b) {
    return u32(i32(a) >> b);
}

static quad both_right(quad values, quad counts) {
    const quad u = own_shift_right(values, counts);
    const quad s = own_shift_right_s(values, counts);
    return words(u.x, u.y, s.z, s.w);
}

static quad operation(u32 op, u32 a, u32 b, u32 c, u32 d) {
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
