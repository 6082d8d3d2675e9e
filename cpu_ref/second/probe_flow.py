"""The second implementation of `probe_flow`: all rows of an operation in lockstep, as a GPU runs them.

Every loop goes on until no row is in it; a row that has left keeps what it has. Words are uint64, cut to 32 bits by hand.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cpu_ref.second.gates import Bits, from_number, number

Words = npt.NDArray[np.uint64]
Truths = npt.NDArray[np.bool_]
Operation = Callable[..., Sequence[Bits]]

LOW = np.uint64(0xFFFFFFFF)
KEY = 0x9E3779B9


def u(value: int) -> np.uint64:
    return np.uint64(value)


def mixed(s: Words, x: Words | np.uint64) -> Words:
    """The product by two halves: no more than 48 bits at once."""
    y = s ^ x
    product = y * u(0x79B1) + ((y * u(0x9E37) & u(0xFFFF)) << u(16))
    mixed_word: Words = product + (s >> u(15)) & LOW
    return mixed_word


def _lockstep(what: Callable[..., Sequence[Words]]) -> Operation:
    """Operands as words of 64 bits, results as bits."""

    def operation(*operands: Bits) -> list[Bits]:
        found = what(*(number(bits).astype(np.uint64) for bits in operands))
        return [from_number((values & LOW).astype(np.int64), 32) for values in found]

    return operation


def _zeros(like: Words) -> Words:
    return np.zeros_like(like)


def _two_exits(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    s, i, found = b, _zeros(b), np.zeros(len(b), bool)
    while (active := (i < a) & ~found).any():
        s = np.where(active, mixed(s, i), s)
        found = found | (active & ((s ^ d) & c == 0))
        i = np.where(active & ~found, i + u(1), i)
    return [s, i, found.astype(np.uint64)]


def _nested(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    s, inner = b, _zeros(b)
    for i in range(int(a.max(initial=0))):
        inside = a > i
        for j in range(i + 1):
            taken = inside & ((b ^ u(i) ^ u(j)) % u(4) != 0)
            s = np.where(taken, mixed(s, u(16 * i + j)), s)
            inner = inner + taken
            inside = inside & ~(taken & (~s & c == 0))
    return [s, inner]


def _endless(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    i, inner, outer = a, _zeros(a), _zeros(a)
    active = np.ones(len(a), bool)
    while active.any():
        i, inner = np.where(active, i + u(1), i), inner + active
        outer = outer + (active & (i % u(3) == 0))
        active = active & ~((i % u(3) == 0) & (outer >= b))
    return [i, inner, outer]


def _switch_in_loop(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    s = b
    for t in range(8):
        case = a // u(16**t) % u(8)
        branches = [s + u(1), s ^ u(t), s, s * u(5) + u(2), s * u(5) + u(2), s * u(3)]
        new = np.choose(np.minimum(case, u(6)).astype(np.int64), [*branches, s * u(5) + u(2)])
        s = np.where(case == 2, s, new + u(7) & LOW)
    r = b
    for t in range(4):
        case = a // u(4**t) % u(4)
        twice = r * u(5) + u(2)
        r = np.choose(case.astype(np.int64), [r + u(1), twice, twice, r ^ u(t)]) & LOW
    return [s, r]


def _rolled(a: Words, b: Words, trips: Words) -> Words:
    s, i = a, _zeros(a)
    while (active := i < trips).any():
        s = np.where(active, mixed(s, b + i & LOW), s)
        i = i + active
    return s


def _eight(a: Words, b: Words) -> Words:
    for i in range(8):
        a = mixed(a, b + u(i) & LOW)
    return a


def _turned(x: Words, *counts: int) -> Words:
    """The exclusive or of rotations to the right, from two copies side by side."""
    both = x | x << u(32)
    turned: Words = np.bitwise_xor.reduce([both >> u(n) & LOW for n in counts])
    return turned


def _hashed(words: Sequence[Words], rounds: Words) -> list[Words]:
    """The state as a list that grows at its front: word i of the two halves i places behind."""
    left = [words[3], words[2], words[1], words[0]]
    right = [_zeros(words[0]) + u(w) for w in (0x5BE0CD19, 0x1F83D9AB, 0x9B05688C, 0x510E527F)]
    kept = [left[-1], left[-4], right[-1], right[-4]]
    for i in range(int(rounds.max(initial=0))):
        e, f, g = right[-1], right[-2], right[-3]
        total = right[-4] + _turned(e, 6, 11, 25) + (g ^ e & (f ^ g)) + u(i * KEY % 2**32)
        a, b, c = left[-1], left[-2], left[-3]
        right.append(left[-4] + total & LOW)
        left.append(total + _turned(a, 2, 13, 22) + (a & b | c & (a | b)) & LOW)
        now = [left[-1], left[-4], right[-1], right[-4]]
        kept = [np.where(i < rounds, new, old) for new, old in zip(now, kept, strict=True)]
    return kept


def _clamped(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    table = np.stack([a, b, c, d])
    s, total = _zeros(a), _zeros(a)
    for place in np.clip(np.arange(-1, 5), 0, 3):
        s, total = mixed(s, table[place]), total + table[place]
    return [s, total]


def _bounded(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    i, written, trips = a, _zeros(a), _zeros(a)
    for trip in range(4):
        hit = (i < 10) & (written == 0) & (trips == trip)
        written = np.where(hit, u(1) << (i & u(31)), written)
        trips = trips + (written == 0)
        i = np.where((written == 0) & (trips < 4), i + b & LOW, i)
    return [written, trips, i]


def _sought(table: Sequence[Words], n: Words) -> Words:
    place = np.full(len(n), 4, np.uint64)
    for i in (3, 2, 1, 0):
        place = np.where(table[i] == n, u(i), place)
    return place


def _returned(a: Words, b: Words, c: Words, d: Words) -> list[Words]:
    s, at, found = b, np.zeros((2, len(b)), np.uint64), np.zeros(len(b), bool)
    for i in range(int(a.max(initial=0))):
        for j in range(i + 1):
            active = (a > i) & ~found
            s = np.where(active, mixed(s, u(i + j)), s)
            new = active & ((s ^ d) & c == 0)
            at[:, new] = [[i], [j]]
            found = found | new
    return [s, at[0], at[1], found.astype(np.uint64)]


FLOW: dict[str, Operation] = {
    "two_exits": _lockstep(_two_exits),
    "nested": _lockstep(_nested),
    "endless": _lockstep(_endless),
    "switch_in_loop": _lockstep(_switch_in_loop),
    "unrolled": _lockstep(lambda a, b, c, d: [_rolled(a, b, d), _eight(a, b), _eight(a, b)]),
    "hash_rolled": _lockstep(lambda a, b, c, d: _hashed((a, b, c, a ^ b), d)),
    "hash_unrolled": _lockstep(lambda a, b, c, d: _hashed((a, b, c, d), np.full(len(a), 16, np.uint64))),
    "dead_branch": _lockstep(lambda a, b, c, d: [_eight(a, b), _eight(a, b)]),
    "guarded": _lockstep(lambda a, b, c, d: [sum((a >= i for i in range(16)), _zeros(a))] * 2),
    "clamped": _lockstep(_clamped),
    "bounded": _lockstep(_bounded),
    "sought": _lockstep(lambda a, b, c, d: [_sought((a, b, c, d), d), _sought((d, c, b, b), a)]),
    "returned": _lockstep(_returned),
}
