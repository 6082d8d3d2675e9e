"""The five schedules: in which order a reduction over k = 0..K-1 adds its terms.

A schedule is never part of the meaning: all five must give the same bits. Kernels take it as the
compile-time constant SCHEDULE; this module states the same order as an index map, for tests and docs.
"""

from collections.abc import Iterator

from harness.inputs import random_words

FORWARD, REVERSE, SPLIT_K, TILED_SHUFFLED, TREE = range(5)
NAMES = ("forward", "reverse", "split_k", "tiled_shuffled", "tree")

PARTS = 8
"""Parts of `split_k`: contiguous, `part_length` terms each; the last ones may be short or empty."""

TILE = 32
"""Terms in a tile of `tiled_shuffled`."""


def part_length(k: int, parts: int = PARTS) -> int:
    """Terms in each part of `split_k` but the last ones."""
    return -(-k // parts)


def tiles(k: int) -> int:
    """Tiles of k terms; at least one, for a buffer is never empty."""
    return max(1, -(-k // TILE))


def tile_order(k: int, seed: int) -> list[int]:
    """The fixed pseudo-random order of the `tiles(k)` tiles: Fisher-Yates with the case's seed."""
    order = list(range(tiles(k)))
    words = random_words(f"tile-order/{seed}", len(order))
    for i in range(len(order) - 1, 0, -1):
        j = int(words[i]) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def order_bytes(k: int, seed: int) -> bytes:
    """The tile order as the kernels' `order` buffer holds it: 32-bit words, little-endian."""
    return b"".join(tile.to_bytes(4, "little") for tile in tile_order(k, seed))


def accumulators(schedule: str, k: int, seed: int = 0, lanes: int = 64) -> Iterator[list[int]]:
    """The terms that each accumulator adds, in order: one list an accumulator.

    `split_k` has PARTS accumulators, later added last part first; `tree` one a lane, later added pairwise.
    """
    if schedule == "forward":
        yield list(range(k))
    elif schedule == "reverse":
        yield list(range(k - 1, -1, -1))
    elif schedule == "split_k":
        step = part_length(k)
        for part in range(PARTS):
            yield list(range(min(k, part * step), min(k, (part + 1) * step)))
    elif schedule == "tiled_shuffled":
        yield [i for tile in tile_order(k, seed) for i in range(tile * TILE, min(k, (tile + 1) * TILE))]
    elif schedule == "tree":
        for lane in range(lanes):
            yield list(range(lane, k, lanes))
    else:
        raise KeyError(schedule)
