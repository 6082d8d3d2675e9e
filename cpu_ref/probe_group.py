"""The `probe_group` kernel: what 64 lanes of a workgroup hand to each other; a row is a workgroup.

An operation gives each lane's four words from the row's operand words. The row's results sum them up, place by place.
"""

from collections.abc import Callable, Sequence

from cpu_ref.probe_flow import WORD, Operation, mixed

LANES = range(64)
Lane = Sequence[int]


def _summed(lanes: Callable[..., Sequence[Lane]]) -> Operation:
    """sum of 31^(63 - lane) times the lane's word, of each of the four places."""

    def operation(*operands: int) -> list[int]:
        found = [0, 0, 0, 0]
        for words in lanes(*operands):
            found = [(31 * total + word) % WORD for total, word in zip(found, [*words, 0, 0, 0], strict=False)]
        return found

    return operation


def _signed(word: int) -> int:
    return word - WORD if word >> 31 else word


def _handed_over(a: int, b: int, c: int, d: int) -> list[Lane]:
    tile = [mixed(a, lane) for lane in LANES]
    return [(tile[(lane + b) % 64], tile[63 - lane], tile[0], tile[63]) for lane in LANES]


def _used_twice(a: int, b: int, c: int, d: int) -> list[Lane]:
    x = [a + 63 - lane for lane in LANES]
    tile = [x[lane] * b + lane for lane in LANES]
    return [(x[lane], tile[(lane + 1) % 64]) for lane in LANES]


def _in_loop(a: int, trips: int) -> list[Lane]:
    v = [(a + lane) % WORD for lane in LANES]
    for t in range(trips):
        v = [mixed(v[lane], v[(lane + t + 1) % 64]) for lane in LANES]
    return [(word,) for word in v]


def _in_branch(a: int, b: int, c: int, d: int) -> list[Lane]:
    place = [(lane + c) % 64 for lane in LANES]
    if a > b:
        return [(place[lane], 5, place[lane]) for lane in LANES]
    v = [place.index(lane) + place[lane] for lane in LANES]
    return [(v[lane], v[place.index(lane)], place[lane]) for lane in LANES]


def _scanned(a: int, b: int, c: int, d: int) -> list[Lane]:
    values = [mixed(a, lane) for lane in LANES]
    return [(sum(values[: lane + 1]),) for lane in LANES]


def _added(a: int, b: int, c: int, d: int) -> list[Lane]:
    return [(sum(a * lane for lane in LANES), -sum(b + lane for lane in LANES), 64, sum(n**3 for n in LANES))] * 64


def _bounded(a: int, b: int, c: int, d: int) -> list[Lane]:
    values = [mixed(a, lane) >> c % 32 for lane in LANES]
    signed = [_signed(v) for v in values]
    return [(min(*values, d), max(values), min(*signed, _signed(d)), max(*signed, 0))] * 64


def _of_bits(a: int, b: int, c: int, d: int) -> list[Lane]:
    both, either, odd = d, 0, 0
    for lane in LANES:
        v = mixed(a, lane)
        both, either, odd = both & (v | 1 << lane % 16), either | v & 0x11111111, odd ^ v
    return [(both, either, odd)] * 64


def _histogram(a: int, b: int, c: int, d: int) -> list[Lane]:
    bins = [(lane * a + b) % 16 for lane in LANES]
    return [(bins.count(lane % 16),) for lane in LANES]


GROUP: dict[str, Operation] = {
    "handed_over": _summed(_handed_over),
    "between": _summed(lambda a, b, c, d: [(a, b)] * 64),
    "from_last": _summed(lambda a, b, c, d: [(a,)] * 64),
    "used_twice": _summed(_used_twice),
    "in_loop": _summed(lambda a, b, c, d: _in_loop(a, d)),
    "in_unrolled_loop": _summed(lambda a, b, c, d: _in_loop(a, 4)),
    "in_branch": _summed(_in_branch),
    "scanned": _summed(_scanned),
    "added": _summed(_added),
    "bounded_cells": _summed(_bounded),
    "of_bits": _summed(_of_bits),
    "exchanged": _summed(lambda a, b, c, d: [(sum(mixed(a, lane) for lane in LANES),)] * 64),
    "compared": _summed(lambda a, b, c, d: [(1, sum(a + lane for lane in LANES), 1)] * 64),
    "histogram": _summed(_histogram),
    "zeroed": _summed(lambda a, b, c, d: [()] * 64),
}
"""By name, in the order of their numbers. `in_loop` takes a small d."""

SHARED = range(192)
"""Lanes of the three workgroups that change a row of `probe_atomics` together."""


def _added_by_all(a: int, b: int, c: int, d: int) -> Lane:
    return sum(a * lane for lane in SHARED), -sum(b + lane for lane in SHARED), 192, sum(n**3 for n in SHARED)


def _bounded_by_all(a: int, b: int, c: int, d: int) -> Lane:
    values = [mixed(a, lane) >> c % 32 for lane in SHARED]
    return min(*values, d), max(values)


def _bits_of_all(a: int, b: int, c: int, d: int) -> Lane:
    both, either, odd = d, 0, 0
    for lane in SHARED:
        v = mixed(a, lane)
        both, either, odd = both & (v | 1 << lane % 16), either | v & 0x11111111, odd ^ v
    return both, either, odd


ATOMICS: dict[str, Operation] = {
    "added": _added_by_all,
    "bounded_cells": _bounded_by_all,
    "of_bits": _bits_of_all,
    "exchanged": lambda a, b, c, d: (sum(mixed(a, lane) for lane in SHARED),),
    "compared": lambda a, b, c, d: (1, 1, sum(a + lane for lane in SHARED)),
}
"""Of `probe_atomics`: what the four words of a row hold in the end."""
