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

extern "C" __global__ void embed_tokens(
    const u32 *params,  // tokens, columns
    const u32 *ids,
    const u32 *embed,
    u32 *y,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
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
