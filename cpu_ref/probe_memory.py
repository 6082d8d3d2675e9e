"""The kernels that try memory: indices and extents (`probe_words`), large buffers (`probe_heap`), many arguments."""

from collections.abc import Mapping, Sequence

WORD = 1 << 32
BASE = WORD - 5
"""Where the indices of the way `wrapped` begin: they pass 2^32 after five words."""

WAYS = ("page", "wrapped", "unaligned")
ARGUMENTS = tuple(f"x{j}" for j in range(12))
"""Input tensors of `probe_arguments`."""


def _page(x: Sequence[int], i: int) -> int:
    following = x[i + 1] if i + 1 < len(x) else 7
    before = x[i - 1] if i else 0
    return (3 * x[i] + following - before) % WORD ^ (x[i + 64] if i + 64 < len(x) else 0)


def _wrapped(x: Sequence[int], i: int) -> int:
    return (x[i] ^ (BASE + i) % WORD) + 3 * x[-1 - i] + 5 * x[i]


def _unaligned(x: Sequence[int], i: int, data: bytes) -> int:
    offset = 3 * i + 1
    total = x[i] ^ (int.from_bytes(data[offset : offset + 4], "little") if offset + 4 <= len(data) else 0)
    if i + 4 <= len(x):
        total += x[i] + 3 * x[i + 1] + 5 * x[i + 2] + 7 * (WORD - 1 - x[i + 3])
    return total


def words(given: Sequence[int], way: str) -> list[int]:
    """found u32[n] of given i32[n] or u32[n]."""
    x = [v % WORD for v in given]
    if way == "page":
        found = [_page(x, i) for i in range(len(x))]
    elif way == "wrapped":
        found = [_wrapped(x, i) for i in range(len(x))]
    else:
        data = b"".join(v.to_bytes(4, "little") for v in x)
        found = [_unaligned(x, i, data) for i in range(len(x))]
    return [v % WORD for v in found]


def heap(places: Sequence[int]) -> list[int]:
    """found u32[n]: what a heap gives back at distinct places."""
    return [((place % WORD ^ 0xA5A5A5A5) * 0x9E3779B1 + i) % WORD for i, place in enumerate(places)]


def arguments(inputs: Mapping[str, Sequence[int]]) -> list[int]:
    """y u32[n]."""
    columns = zip(*(inputs[name] for name in ARGUMENTS), strict=True)
    return [sum(pow(31, 11 - j) * v for j, v in enumerate(column)) % WORD for column in columns]
