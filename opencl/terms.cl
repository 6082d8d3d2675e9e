// terms: which terms of a reduction over k = 0 .. count - 1 a lane adds, and in which order: the five schedules.
//
// A step is one term; one whose k is not below the end is none. It follows int64_limbs, which names the type of a word.

#define REVERSE 1u
#define SPLIT_K 2u
#define TILED_SHUFFLED 3u
#define TREE 4u

#define PARTS 8u
#define LANES 64u
#define TILE 32u

// Under split_k the first term of a part of so many terms; else 0.
static u32 first_term(u32 schedule, u32 part, u32 length, u32 count) {
    u32 first = 0u;
    if (schedule == SPLIT_K) {
        first = part * length;
    }
    if (first > count) {
        first = count;
    }
    return first;
}

// One past the last term.
static u32 end_of_terms(u32 schedule, u32 first, u32 length, u32 count) {
    u32 end = count;
    if (schedule == SPLIT_K && end - first > length) {
        end = first + length;
    }
    return end;
}

// Steps of a lane: the terms, or whole tiles, or turns of all lanes.
static u32 steps_of_terms(u32 schedule, u32 first, u32 end, u32 tiles) {
    u32 steps = end - first;
    if (schedule == TILED_SHUFFLED) {
        steps = tiles * TILE;
    }
    if (schedule == TREE) {
        steps = (end + LANES - 1u) >> 6u;
    }
    return steps;
}

// The k of a step; tile is the entry of order that holds it.
static u32 term_of(u32 schedule, u32 step, u32 first, u32 end, u32 tile, u32 lane) {
    u32 k = first + step;
    if (schedule == REVERSE) {
        k = end - 1u - step;
    }
    if (schedule == TILED_SHUFFLED) {
        k = tile * TILE + (step & 31u);
    }
    if (schedule == TREE) {
        k = step * LANES + lane;
    }
    return k;
}
