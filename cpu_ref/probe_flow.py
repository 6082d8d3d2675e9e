"""The `probe_flow` kernel: loops, branches and switches, a function of a row's operand words to four result words.

What a loop counts and sums is written down as the kernel's contract says it, with Python's own loops on integers modulo 2^32.
"""

from collections.abc import Callable, Sequence
from itertools import count

Operation = Callable[..., Sequence[int]]
"""Operand words to result words: shorter results are filled with zeros."""

WORD = 1 << 32
TRIPS = 8
ROUNDS = 16
GOLDEN = 0x9E3779B9
HASH_HALF = (0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)


def mixed(s: int, x: int) -> int:
    """What a loop does in a round."""
    return ((s ^ x) * 0x9E3779B1 + (s >> 15)) % WORD


def _all_mixed(s: int, values: Sequence[int]) -> int:
    for x in values:
        s = mixed(s, x % WORD)
    return s


def _rotr(x: int, n: int) -> int:
    return (x >> n | x << 32 - n) % WORD


def _two_exits(a: int, b: int, c: int, d: int) -> tuple[int, int, int]:
    s = b
    for i in range(a):
        s = mixed(s, i)
        if s & c == d & c:
            return s, i, 1
    return s, a, 0


def _nested(a: int, b: int, c: int, d: int) -> tuple[int, int]:
    s, inner = b, 0
    for i in range(a):
        for j in range(i + 1):
            if (i ^ j ^ b) & 3:
                s = mixed(s, 16 * i + j)
                inner += 1
                if s & c == c:
                    break
    return s, inner


def _endless(a: int, b: int, c: int, d: int) -> tuple[int, int, int]:
    outer = max(b, 1)
    multiples = [i for i in range(a + 1, a + 1 + 3 * outer) if i % WORD % 3 == 0]
    return multiples[outer - 1], multiples[outer - 1] - a, outer


def _switched(a: int, b: int) -> int:
    s = b
    for t in range(TRIPS):
        chosen = a >> 4 * t & 7
        if chosen != 2:
            s = {0: s + 1, 1: s ^ t, 5: 3 * s}.get(chosen, 5 * s + 2) + 7
            s %= WORD
    return s


def _two_selectors(a: int, b: int) -> int:
    s = b
    for t in range(4):
        s = (s + 1, 5 * s + 2, 5 * s + 2, s ^ t)[a >> 2 * t & 3] % WORD
    return s


def _rolled(a: int, b: int, trips: int) -> int:
    return _all_mixed(a, range(b, b + trips))


def _hash(v: Sequence[int], rounds: int) -> tuple[int, ...]:
    a, b, c, d = v
    e, f, g, h = HASH_HALF
    for i in range(rounds):
        total = h + (_rotr(e, 6) ^ _rotr(e, 11) ^ _rotr(e, 25)) + (e & f ^ ~e & g) + i * GOLDEN
        most = (_rotr(a, 2) ^ _rotr(a, 13) ^ _rotr(a, 22)) + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = (total + most) % WORD, a, b, c, (d + total) % WORD, e, f, g
    return a, d, e, h


def _clamped(*table: int) -> tuple[int, int]:
    found = [table[0], *table, table[3]]
    return _all_mixed(0, found), sum(found)


def _bounded(a: int, b: int, c: int, d: int) -> tuple[int, int, int]:
    for trips in range(4):
        i = (a + trips * b) % WORD
        if i < 10:
            return 1 << i, trips, i
    return 0, 4, i


def _sought(table: Sequence[int], n: int) -> int:
    return next(i for i in count() if i == 4 or table[i] == n)


def _returned(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    s = b
    for i in range(a):
        for j in range(i + 1):
            s = mixed(s, i + j)
            if s & c == d & c:
                return s, i, j, 1
    return s, 0, 0, 0


FLOW: dict[str, Operation] = {
    "two_exits": _two_exits,
    "nested": _nested,
    "endless": _endless,
    "switch_in_loop": lambda a, b, c, d: (_switched(a, b), _two_selectors(a, b)),
    "unrolled": lambda a, b, c, d: (_rolled(a, b, d), _rolled(a, b, TRIPS), _rolled(a, b, TRIPS)),
    "hash_rolled": lambda a, b, c, d: _hash((a, b, c, a ^ b), d),
    "hash_unrolled": lambda *v: _hash(v, ROUNDS),
    "dead_branch": lambda a, b, c, d: (_rolled(a, b, TRIPS),) * 2,
    "guarded": lambda a, b, c, d: (min(a + 1, 16),) * 2,
    "clamped": _clamped,
    "bounded": _bounded,
    "sought": lambda a, b, c, d: (_sought((a, b, c, d), d), _sought((d, c, b, b), a)),
    "returned": _returned,
}
"""By name, in the order of their numbers. Loop counts are small, `dead_branch` takes d below 2^16."""
