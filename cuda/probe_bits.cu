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
static __device__ i32 s16(u32 a) {
    return i32(a << 16u) >> 16u;
}

static __device__ i32 s8(u32 a) {
    return i32(a << 24u) >> 24u;
}

// WGSL lets no constant expression shift set bits out, so operands of `<<` come as arguments.
static __device__ u32 shl(u32 a, u32 n) {
    return a << n;
}

static __device__ u32 rotl(u32 a, u32 n) {
    return (a << n) | (a >> ((32u - n) & 31u));
}

static __device__ u32 rotr(u32 a, u32 n) {
    return (a >> n) | (a << ((32u - n) & 31u));
}

// The lowest `count` bits, count at most 32.
static __device__ u32 mask(u32 count) {
    if (count == 0u) {
        return 0u;
    }
    return 0xffffffffu >> (32u - count);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

static __device__ u32 own_rotl(u32 a, u32 b) {
    return __funnelshift_l(a, a, b);
}

static __device__ u32 own_rotr(u32 a, u32 b) {
    return __funnelshift_r(a, a, b);
}

static __device__ u32 own_funnel_l(u32 a, u32 b, u32 c) {
    return __funnelshift_l(b, a, c);
}

static __device__ u32 own_funnel_r(u32 a, u32 b, u32 c) {
    return __funnelshift_r(b, a, c);
}

static __device__ u32 own_shl_16(u32 a, u32 b) {
    return (unsigned short)(u32((unsigned short)a) << b);
}

static __device__ u32 own_shr_16(u32 a, u32 b) {
    return u32((unsigned short)a >> b);
}

static __device__ u32 own_sar_16(u32 a, u32 b) {
    return u32((short)a >> b);
}

static __device__ u32 own_shl_8(u32 a, u32 b) {
    return (unsigned char)(u32((unsigned char)a) << b);
}

static __device__ u32 own_shr_8(u32 a, u32 b) {
    return u32((unsigned char)a >> b);
}

static __device__ u32 own_sar_8(u32 a, u32 b) {
    return u32((signed char)a >> b);
}

static __device__ quad own_shift_left(quad values, quad counts) {
    return words(values.x << counts.x, values.y << counts.y, values.z << counts.z, values.w << counts.w);
}

static __device__ quad own_shift_right(quad values, quad counts) {
    return words(values.x >> counts.x, values.y >> counts.y, values.z >> counts.z, values.w >> counts.w);
}

static __device__ quad own_shift_right_s(quad values, quad counts) {
    return words(u32(i32(values.x) >> counts.x), u32(i32(values.y) >> counts.y), u32(i32(values.z) >> counts.z), u32(i32(values.w) >> counts.w));
}

static __device__ u32 own_extract_u(u32 a, u32 b, u32 c) {
    return (a >> b) & mask(c);
}

static __device__ u32 own_extract_s(u32 a, u32 b, u32 c) {
    if (c == 0u) {
        return 0u;
    }
    return u32(i32(a << (32u - b - c)) >> (32u - c));
}

static __device__ u32 own_insert(u32 a, u32 d, u32 b, u32 c) {
    return (a & ~(mask(c) << b)) | ((d & mask(c)) << b);
}

static __device__ u32 own_clz(u32 a) {
    return u32(__clz(i32(a)));
}

static __device__ u32 own_ctz(u32 a) {
    return a == 0u ? 32u : u32(__ffs(i32(a))) - 1u;
}

static __device__ u32 own_popcount(u32 a) {
    return u32(__popc(a));
}

static __device__ u32 own_reverse(u32 a) {
    return __brev(a);
}

static __device__ u32 own_first_leading_u(u32 a) {
    return 31u - u32(__clz(i32(a)));
}

static __device__ u32 own_first_leading_s(u32 a) {
    return 31u - u32(__clz(i32(a ^ (0u - (a >> 31u)))));
}

static __device__ u32 own_first_trailing(u32 a) {
    return u32(__ffs(i32(a))) - 1u;
}

static __device__ u32 own_shl_wide(u32 a, u32 b) {
    return a << (b & 31u);
}

static __device__ u32 own_shr_wide(u32 a, u32 b) {
    return a >> (b & 31u);
}

static __device__ u32 own_sar_wide(u32 a, u32 b) {
    return u32(i32(a) >> (b & 31u));
}

static __device__ quad both_right(quad values, quad counts) {
    const quad u = own_shift_right(values, counts);
    const quad s = own_shift_right_s(values, counts);
    return words(u.x, u.y, s.z, s.w);
}

static __device__ quad operation(u32 op, u32 a, u32 b, u32 c, u32 d) {
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

extern "C" __global__ void probe(
    const u32 *params,  // rows, first literal
    const u32 *ops,
    const u32 *operands,
    u32 *results,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
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
