// terms: which terms of a reduction over k = 0 .. count - 1 a lane adds, and in which order: the five schedules.
//
// A step is one term; one whose k is not below the end is none. It follows int64_limbs, which names the type of a word.

const REVERSE: u32 = 1u;
const SPLIT_K: u32 = 2u;
const TILED_SHUFFLED: u32 = 3u;
const TREE: u32 = 4u;

const PARTS: u32 = 8u;
const LANES: u32 = 64u;
const TILE: u32 = 32u;

// Under split_k the first term of a part of so many terms; else 0.
fn first_term(schedule: u32, part: u32, length: u32, count: u32) -> u32 {
    var first = 0u;
    if (schedule == SPLIT_K) {
        first = part * length;
    }
    if (first > count) {
        first = count;
    }
    return first;
}

// One past the last term.
fn end_of_terms(schedule: u32, first: u32, length: u32, count: u32) -> u32 {
    var end = count;
    if (schedule == SPLIT_K && end - first > length) {
        end = first + length;
    }
    return end;
}

// Steps of a lane: the terms, or whole tiles, or turns of all lanes.
fn steps_of_terms(schedule: u32, first: u32, end: u32, tiles: u32) -> u32 {
    var steps = end - first;
    if (schedule == TILED_SHUFFLED) {
        steps = tiles * TILE;
    }
    if (schedule == TREE) {
        steps = (end + LANES - 1u) >> 6u;
    }
    return steps;
}

// The k of a step; tile is the entry of order that holds it.
fn term_of(schedule: u32, step: u32, first: u32, end: u32, tile: u32, lane: u32) -> u32 {
    var k = first + step;
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
