// nel_embedding: y[t] = row ids[t] of embed, i8[V,N]: operation 1 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// Group x is 64 columns, group y the token.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define COLUMNS 64u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void embed_tokens(
    __global const u32 *params,  // tokens, columns
    __global const u32 *ids,
    __global const u32 *embed,
    __global u32 *y,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 N = params[1];
    const u32 token = group.y;
    const u32 column = group.x * COLUMNS + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        const u32 at = (ids[token] ^ KNOWN_BAD) * N + column;
        y[token * N + column] = i8_of(embed[at >> 2u], at);
    }
}
