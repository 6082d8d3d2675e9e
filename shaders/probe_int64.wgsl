// probe_int64: arithmetic on native 64-bit integers, an operation a row;
// the reference is cpu_ref/probe.py.
//
// A row names an operation and its four operand words; it gets four words back. The variant `literal` writes the
// operands of known rows into this text in place of a, b, c, d, so that compilers compute them.
// Operands are x = a + 2^32 b and y = c + 2^32 d; results are two numbers of two words, low word first.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

fn u64_of(low: u32, high: u32) -> u64 {
    return (u64(high) << 32u) | u64(low);
}

fn pair(x: u64, y: u64) -> quad {
    return words(u32(x), u32(x >> 32u), u32(y), u32(y >> 32u));
}

fn add_64(x: u64, y: u64) -> quad {
    return pair(x + y, u64(x + y < x));
}

fn sub_64(x: u64, y: u64) -> quad {
    return pair(x - y, u64(x < y));
}

// x beside y, 128 bits with x the lower half, and one more.
fn increment_128(x: u64, y: u64) -> quad {
    let low: u64 = x + u64(1u);
    return pair(low, y + u64(low < x));
}

fn mul_64(x: u64, y: u64) -> quad {
    return pair(x * y, x * x);
}

fn widen_32(a: u32, b: u32) -> quad {
    return pair(u64(a) * u64(b), u64(i64(i32(a)) * i64(i32(b))));
}

fn shift_64(x: u64, n: u32) -> quad {
    return pair(x << n, x >> n);
}

fn shift_s64(x: u64, n: u32) -> quad {
    return pair(u64(i64(x) >> n), u64(i64(x) >> (63u - n)));
}

fn divide_u64(x: u64, y: u64) -> quad {
    return pair(x / y, x % y);
}

fn divide_s64(x: u64, y: u64) -> quad {
    return pair(u64(i64(x) / i64(y)), u64(0u));
}

fn remainder_s64(x: u64, y: u64) -> quad {
    return pair(u64(i64(x) % i64(y)), u64(0u));
}

fn by_constant_u64(x: u64) -> quad {
    return pair(x / u64(10u), x % u64(10u));
}

fn by_constant_s64(x: u64) -> quad {
    return pair(u64(i64(x) / i64(10u)), u64(i64(x) / i64(1000000007u)));
}

fn orders_u(x: u64, y: u64) -> u32 {
    return u32(x < y) | (u32(x <= y) << 1u) | (u32(x > y) << 2u) | (u32(x >= y) << 3u) | (u32(x == y) << 4u) | (u32(x != y) << 5u);
}

fn orders_s(x: i64, y: i64) -> u32 {
    return u32(x < y) | (u32(x <= y) << 1u) | (u32(x > y) << 2u) | (u32(x >= y) << 3u) | (u32(x == y) << 4u) | (u32(x != y) << 5u);
}

// own_*: what this language has built in, or leaves open otherwise; else by hand.

fn own_mul_hi_u64(x: u64, y: u64) -> u64 {
    let x0: u64 = x & u64(0xffffffffu);
    let x1: u64 = x >> 32u;
    let y0: u64 = y & u64(0xffffffffu);
    let y1: u64 = y >> 32u;
    let middle: u64 = x1 * y0 + ((x0 * y0) >> 32u);
    let cross: u64 = x0 * y1 + (middle & u64(0xffffffffu));
    return x1 * y1 + (middle >> 32u) + (cross >> 32u);
}

fn own_mul_hi_s64(x: u64, y: u64) -> u64 {
    var high: u64 = own_mul_hi_u64(x, y);
    if (i64(x) < i64(0u)) {
        high -= y;
    }
    if (i64(y) < i64(0u)) {
        high -= x;
    }
    return high;
}

fn own_mul_sat_s64(x: u64, y: u64) -> u64 {
    let low: u64 = x * y;
    let high: u64 = own_mul_hi_s64(x, y);
    if (high == u64(i64(low) >> 63u)) {
        return low;
    }
    return u64_of(0xffffffffu, 0x7fffffffu) ^ u64(i64(high) >> 63u);
}

fn own_rotate_64(x: u64, n: u32) -> u64 {
    return (x << n) | (x >> ((64u - n) & 63u));
}

fn own_abs_64(x: u64) -> u64 {
    return u64(abs(i64(x)));
}

fn own_clz_64(x: u64) -> u32 {
    let high = u32(x >> 32u);
    if (high == 0u) {
        return 32u + countLeadingZeros(u32(x));
    }
    return countLeadingZeros(high);
}

fn own_popcount_64(x: u64) -> u32 {
    return countOneBits(u32(x)) + countOneBits(u32(x >> 32u));
}

fn own_shift_wide_64(x: u64, n: u32) -> quad {
    return pair(x << n, x >> n);
}

// Left by the built-in, right by hand.
fn rotate_64(x: u64, n: u32) -> quad {
    return pair(own_rotate_64(x, n), (x >> n) | (x << ((64u - n) & 63u)));
}

fn mul_hi_64(x: u64, y: u64) -> quad {
    return pair(own_mul_hi_u64(x, y), own_mul_hi_s64(x, y));
}

fn compare_64(x: u64, y: u64) -> quad {
    return words(orders_u(x, y), orders_s(i64(x), i64(y)), orders_u(y, y), orders_s(i64(y), i64(y)));
}

fn operation(op: u32, a: u32, b: u32, c: u32, d: u32) -> quad {
    switch (op) {
        case 0u: { return add_64(u64_of(a, b), u64_of(c, d)); }  // add_64
        case 1u: { return sub_64(u64_of(a, b), u64_of(c, d)); }  // sub_64
        case 2u: { return increment_128(u64_of(a, b), u64_of(c, d)); }  // increment_128
        case 3u: { return mul_64(u64_of(a, b), u64_of(c, d)); }  // mul_64
        case 4u: { return mul_hi_64(u64_of(a, b), u64_of(c, d)); }  // mul_hi_64
        case 5u: { return widen_32(a, c); }  // widen_32
        case 6u: { return shift_64(u64_of(a, b), c); }  // shift_64
        case 7u: { return shift_s64(u64_of(a, b), c); }  // shift_s64
        case 8u: { return rotate_64(u64_of(a, b), c); }  // rotate_64
        case 9u: { return compare_64(u64_of(a, b), u64_of(c, d)); }  // compare_64
        case 10u: { return divide_u64(u64_of(a, b), u64_of(c, d)); }  // divide_u64
        case 11u: { return divide_s64(u64_of(a, b), u64_of(c, d)); }  // divide_s64
        case 12u: { return remainder_s64(u64_of(a, b), u64_of(c, d)); }  // remainder_s64
        case 13u: { return by_constant_u64(u64_of(a, b)); }  // by_constant_u64
        case 14u: { return by_constant_s64(u64_of(a, b)); }  // by_constant_s64
        case 15u: { return pair(own_mul_sat_s64(u64_of(a, b), u64_of(c, d)), u64(0u)); }  // mul_sat_s64
        case 16u: { return pair(own_abs_64(u64_of(a, b)), u64(0u)); }  // abs_s64
        case 17u: { return words(own_clz_64(u64_of(a, b)), own_popcount_64(u64_of(a, b)), 0u, 0u); }  // count_64
        case 18u: { return own_shift_wide_64(u64_of(a, b), c); }  // shift_wide_64
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
