// probe_heap: words of a large buffer that is written and read at a few places only;
// the reference is cpu_ref/probe_memory.py.
//
// Entry point store leaves at each place of the heap what tells it from all others, load brings that back: two places
// that a device takes for one, or one beyond its reach, show.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

typedef uint u32;

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void store(
    __global const u32 *params,  // n
    __global const u32 *places,
    __global u32 *heap,
    __global u32 *found,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[0] = NONCE;
    }
    if (i < params[0]) {
        heap[places[i]] = (places[i] ^ 0xa5a5a5a5u) * 0x9e3779b1u;
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void load(
    __global const u32 *params,
    __global const u32 *places,
    __global u32 *heap,
    __global u32 *found,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 i = group.x * 64u + lane.x;
    if (i == 0u) {
        receipt[1] = NONCE;
    }
    if (i < params[0]) {
        found[i] = heap[places[i]] + i + KNOWN_BAD;
    }
}
