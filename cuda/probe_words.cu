// probe_words: found[i] from words of given that are reached by indices in several ways, by dispatches of any extent;
// the reference is cpu_ref/probe_memory.py.
//
// The option way says which: page reads its neighbours where these are inside the tensor, wrapped takes indices past
// 2^31 and 2^32 and back, unaligned reads across the bounds of words. Entry point never spoils all; it is dispatched
// with no workgroup at all.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define PAGE 0u
#define WRAPPED 1u

typedef unsigned int u32;

// own_*: what this language has built in; else by hand.

// Four bytes from a byte offset that need not be a multiple of 4.
static __device__ u32 own_bytes(const u32 *given, u32 offset) {
    const unsigned char *at = (const unsigned char *)given + offset;
    return at[0u] | (at[1u] << 8u) | (at[2u] << 16u) | ((u32)at[3u] << 24u);
}

// Four words from an index that need not be a multiple of 4, the last turned over.
static __device__ u32 own_four(const u32 *given, u32 i) {
    return given[i] + given[i + 1u] * 3u + given[i + 2u] * 5u + (~given[i + 3u]) * 7u;
}

// A word inside the tensor, else 7.
static __device__ u32 own_guarded(const u32 *given, u32 i, u32 n) {
    return i < n ? given[i] : 7u;
}

static __device__ u32 at_page_end(const u32 *given, u32 i, u32 n) {
    u32 sum = given[i] * 3u + own_guarded(given, i + 1u, n);
    if (i > 0u) {
        sum -= given[i - 1u];
    }
    if (i + 64u < n) {
        sum ^= given[i + 64u];
    }
    return sum;
}

static __device__ u32 wrapped(const u32 *given, u32 i, u32 n, u32 base, u32 pitch) {
    const u32 at = base + i;
    const u32 top = n - 1u + base;
    return (given[at - base] ^ at) + given[top - at] * 3u + given[i * pitch - i * (pitch - 1u)] * 5u;
}

static __device__ u32 unaligned(const u32 *given, u32 i, u32 n) {
    u32 sum = given[i];
    const u32 offset = i * 3u + 1u;
    if (offset + 4u <= n << 2u) {
        sum ^= own_bytes(given, offset);
    }
    if (i + 4u <= n) {
        sum += own_four(given, i);
    }
    return sum;
}

extern "C" __global__ void probe(
    const u32 *params,  // n, way, workgroups in x and y, base, pitch
    const u32 *given,
    u32 *found,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 n = params[0];
    const u32 i = ((group.z * params[3] + group.y) * params[2] + group.x) * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < n) {
        u32 value = 0u;
        if (params[1] == PAGE) {
            value = at_page_end(given, i, n);
        } else if (params[1] == WRAPPED) {
            value = wrapped(given, i, n, params[4], params[5]);
        } else {
            value = unaligned(given, i, n);
        }
        found[i] = value ^ KNOWN_BAD;
    }
}

extern "C" __global__ void never(
    const u32 *params,
    const u32 *given,
    u32 *found,
    u32 *receipt) {
    const auto group = blockIdx;
    const auto lane = threadIdx;
    const u32 i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < params[0]) {
        found[i] = 0u;
    }
}
