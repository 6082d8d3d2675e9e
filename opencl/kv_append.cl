// kv_append: cache[past + r,:] = rows[r,:], keys or values of 64 bits, what profile dyadic-q16 keeps of a position; the
// reference is cpu_ref/layers.py.
//
// A lane copies one element: group x is 64 columns, group y the row.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define LANES 64u

typedef uint u32;

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void append(
    __global const u32 *params,  // W columns, first row of rows, first row of the cache
    __global const u32 *rows,
    __global u32 *cache,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 W = params[0];
    const u32 column = group.x * LANES + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < W) {
        const u32 source = ((params[1] + group.y) * W + column) << 1u;
        const u32 at = ((params[2] + group.y) * W + column) << 1u;
        cache[at] = rows[source] ^ KNOWN_BAD;
        cache[at + 1u] = rows[source + 1u];
    }
}
