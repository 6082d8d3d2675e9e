// probe_div: division and remainder of 8, 16 and 32 bits, an operation a row;
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

// Quotient rounded down, and a remainder with the divisor's sign.
static quad floored(u32 a, u32 b) {
    const u32 q = u32(i32(a) / i32(b));
    const u32 r = u32(i32(a) % i32(b));
    const u32 below = u32(r != 0u) & ((a ^ b) >> 31u);
    return words(q - below, r + ((0u - below) & b), 0u, 0u);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

static u32 own_neg_s(u32 a) {
    return 0u - a;
}

static quad operation(u32 op, u32 a, u32 b, u32 c, u32 d) {
    switch (op) {
        case 0u: { return words(a / b, 0u, 0u, 0u); }  // div_u32
        case 1u: { return words(a % b, 0u, 0u, 0u); }  // rem_u32
        case 2u: { return words(u32(i32(a) / i32(b)), 0u, 0u, 0u); }  // div_s32
        case 3u: { return words(u32(i32(a) % i32(b)), 0u, 0u, 0u); }  // rem_s32
        case 4u: { return floored(a, b); }  // floored_s32
        case 5u: { return words((0u - a) / b, (0u - a) % b, 0u, 0u); }  // negated_div_u
        case 6u: { return words(own_neg_s(u32(i32(own_neg_s(a)) / i32(b))), 0u, 0u, 0u); }  // negated_div_s
        case 7u: { return words((a & 0xffffu) / (b & 0xffffu), (a & 0xffffu) % (b & 0xffffu),
                                (a & 0xffu) / (b & 0xffu), (a & 0xffu) % (b & 0xffu)); }  // narrow_u
        case 8u: { return words(u32(s16(a) / s16(b)), u32(s8(a) / s8(b)), 0u, 0u); }  // narrow_div_s
        case 9u: { return words(u32(s16(a) % s16(b)), u32(s8(a) % s8(b)), 0u, 0u); }  // narrow_rem_s
        case 10u: { return words(a / 3u, a / 7u, a / 10u, a / 255u); }  // by_constant_div_u
        case 11u: { return words(a % 3u, a % 7u, a % 10u, a % 768u); }  // by_constant_rem_u
        case 12u: { return words(u32(i32(a) / i32(3u)), u32(i32(a) / i32(7u)), u32(i32(a) / i32(0xfffffffdu)),
                                 u32(i32(a) / i32(768u))); }  // by_constant_div_s
        case 13u: { return words(u32(i32(a) % i32(2u)), u32(i32(a) % i32(3u)), u32(i32(a) % i32(10u)),
                                 u32(i32(a) % i32(768u))); }  // by_constant_rem_s
        case 14u: { return words((a % b) * 2u + (a / b) * c, (a / b) * b + a % b, 0u, 0u); }  // address
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
