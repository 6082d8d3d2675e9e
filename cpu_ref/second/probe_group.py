"""The second implementation of `probe_group`: arrays [rows, 64] of uint64, a step of all lanes of all rows at a time."""

from collections.abc import Callable, Sequence

import numpy as np

from cpu_ref.second.gates import Bits, from_number, number
from cpu_ref.second.probe_flow import LOW, Operation, Words, mixed, u

LANE = np.arange(64, dtype=np.uint64)[None, :]
POWERS = np.array([[pow(31, 63 - lane, 1 << 32) for lane in range(64)]], np.uint64)


def _lanes(what: Callable[..., Sequence[Words]]) -> Operation:
    """Operands as columns [rows, 1]; each place's words [rows, 64] weighted by powers of 31."""

    def operation(*operands: Bits) -> list[Bits]:
        columns = [number(bits).astype(np.uint64)[:, None] for bits in operands]
        shape = (len(operands[0]), 64)
        found = [np.broadcast_to(words & LOW, shape) for words in what(*columns)]
        # Products of halves stay below 2^48, 64 of them below 2^54.
        sums = [
            (words % u(1 << 16) * POWERS).sum(axis=1) + ((words >> u(16)) * POWERS % u(1 << 16) << u(16)).sum(axis=1)
            for words in found
        ]
        return [from_number((total & LOW).astype(np.int64), 32) for total in sums]

    return operation


def _turned(tile: Words, by: Words) -> Words:
    """Each lane gets the word of the lane `by` places on."""
    return np.take_along_axis(tile, ((LANE + by) % u(64)).astype(np.int64), axis=1)


def _total(values: Words) -> Words:
    total: Words = values.sum(axis=1, keepdims=True)
    return total


def _start(a: Words) -> Words:
    return mixed(np.repeat(a, 64, axis=1), LANE)


def _used_twice(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    x = a + LANE[:, ::-1] & LOW
    return [x, np.roll(x * b + LANE, -1, axis=1)]


def _in_loop(a: Words, trips: Words) -> list[Words]:
    v = a + LANE & LOW
    for t in range(int(trips.max(initial=0))):
        v = np.where(trips > t, mixed(v, np.roll(v, -t - 1, axis=1)), v)
    return [v]


def _in_branch(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    place = (LANE + c) % u(64)
    v = (LANE - c) % u(64) + place
    yes = a <= b
    return [np.where(yes, v, place), np.where(yes, _turned(v, u(64) - c % u(64)), u(5)), place]


def _added(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    """Sums of arithmetic progressions and of cubes in closed form."""
    return [a * u(2016), (~(b * u(64) + u(2016)) & LOW) + u(1), a * u(0) + u(64), a * u(0) + u(2016 * 2016)]


def _bounded(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    values = np.concatenate([_start(a) >> c % u(32), d, d * u(0)], axis=1)
    turned = values ^ u(1 << 31)
    without_zero, without_d = np.arange(65), np.r_[0:64, 65]
    return [
        values[:, without_zero].min(axis=1, keepdims=True),
        values[:, without_d].max(axis=1, keepdims=True),
        turned[:, without_zero].min(axis=1, keepdims=True) ^ u(1 << 31),
        turned[:, without_d].max(axis=1, keepdims=True) ^ u(1 << 31),
    ]


def _of_bits(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    v = _start(a)
    both = np.bitwise_and.reduce(v | u(1) << LANE % u(16), axis=1, keepdims=True) & d
    either = np.bitwise_or.reduce(v, axis=1, keepdims=True) & u(0x11111111)
    return [both, either, np.bitwise_xor.reduce(v, axis=1, keepdims=True)]


def _histogram(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    bins = (LANE * a + b) % u(16)
    return [(bins[:, None, :] == LANE[:, :, None] % u(16)).sum(axis=2, dtype=np.uint64)]


GROUP: dict[str, Operation] = {
    "handed_over": _lanes(
        lambda a, b, c, d: [_turned(_start(a), b), _start(a)[:, ::-1], _start(a)[:, :1], _start(a)[:, 63:]]
    ),
    "between": _lanes(lambda a, b, c, d: [a, b]),
    "from_last": _lanes(lambda a, b, c, d: [a]),
    "used_twice": _lanes(_used_twice),
    "in_loop": _lanes(lambda a, b, c, d: _in_loop(a, d)),
    "in_unrolled_loop": _lanes(lambda a, b, c, d: _in_loop(a, a * u(0) + u(4))),
    "in_branch": _lanes(_in_branch),
    "scanned": _lanes(lambda a, b, c, d: [np.cumsum(_start(a), axis=1)]),
    "added": _lanes(_added),
    "bounded_cells": _lanes(_bounded),
    "of_bits": _lanes(_of_bits),
    "exchanged": _lanes(lambda a, b, c, d: [_total(_start(a))]),
    "compared": _lanes(lambda a, b, c, d: [a * u(0) + u(1), a * u(64) + u(2016), a * u(0) + u(1)]),
    "histogram": _lanes(_histogram),
    "zeroed": _lanes(lambda a, b, c, d: [a * u(0)]),
}

ALL = np.arange(192, dtype=np.uint64)[None, :]


def _cells(what: Callable[..., Sequence[Words]]) -> Operation:
    """Operands as columns [rows, 1], and the four words of a row in the end as such."""

    def operation(*operands: Bits) -> list[Bits]:
        columns = [number(bits).astype(np.uint64)[:, None] for bits in operands]
        return [from_number((words[:, 0] & LOW).astype(np.int64), 32) for words in what(*columns)]

    return operation


def _of_all(a: Words) -> Words:
    return mixed(np.repeat(a, 192, axis=1), ALL)


def _bounded_cells(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    values = np.sort(_of_all(a) >> c % u(32), axis=1)
    return [np.minimum(values[:, :1], d), values[:, -1:]]


def _bits_of_all(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    v = _of_all(a)
    both = np.bitwise_and.reduce(v | u(1) << ALL % u(16), axis=1, keepdims=True) & d
    either = np.bitwise_or.reduce(v, axis=1, keepdims=True) & u(0x11111111)
    return [both, either, np.bitwise_xor.reduce(v, axis=1, keepdims=True)]


ATOMICS: dict[str, Operation] = {
    "added": _cells(
        lambda a, b, c, d: [
            a * u(18336),
            (~(b * u(192) + u(18336)) & LOW) + u(1),
            a * u(0) + u(192),
            a * u(0) + u(18336 * 18336),
        ]
    ),
    "bounded_cells": _cells(_bounded_cells),
    "of_bits": _cells(_bits_of_all),
    "exchanged": _cells(lambda a, b, c, d: [_total(_of_all(a))]),
    "compared": _cells(lambda a, b, c, d: [a * u(0) + u(1), a * u(0) + u(1), a * u(192) + u(18336)]),
}
