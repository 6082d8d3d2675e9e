"""Data distributions of the kernel `limbs`: 128-bit operands a and b as words [N,4], and shift amounts [N].

Functions of 64 and 32 bits read the lowest words, so every distribution plants its values at each of the three widths.
"""

from collections.abc import Callable, Sequence
from math import gcd

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.inputs import random_integers, random_words

WIDTHS = (32, 64, 128)
SHIFTS = (0, 1, 31, 32, 33, 63, 64, 95, 127)
"""Amounts at and beside the limbs' borders; a function takes them modulo its width."""

_POWERS = sorted({0, 1, 2} | {b + d for b in (31, 32, 63, 64, 95, 96, 127) for d in (0, 1)} - {128})
EDGES = list(
    dict.fromkeys(
        (sign * value) % (1 << 128)
        for p in _POWERS
        for value in (1 << p, (1 << p) - 1, (1 << p) + 1)
        for sign in (1, -1)
    )
)
"""0, all ones, and both neighbours of each power of two at a limb's border, of both signs."""
EDGE_PAIRS = len(EDGES) ** 2

Elements = tuple[list[int], list[int], list[int]]
"""a, b and the shifts."""


def _stream(case: Case, name: str) -> list[int]:
    """One random integer of 128 bits for each element."""
    low, high = random_words(f"{case.id}/{name}", 2 * case.dims["n"]).reshape(2, -1).tolist()
    return [a | b << 64 for a, b in zip(low, high, strict=True)]


def _below(case: Case, name: str, bound: int) -> list[int]:
    return [int(v) for v in random_integers(f"{case.id}/{name}", case.dims["n"], 0, bound - 1)]


def _cycle(values: Sequence[int], n: int) -> list[int]:
    return [values[i % len(values)] for i in range(n)]


def _full(case: Case) -> Elements:
    """All words random, every shift amount: the middle of everything."""
    return _stream(case, "a"), _stream(case, "b"), _below(case, "shift", 128)


def _edges(case: Case) -> Elements:
    """Every pair of 0, all ones and the neighbours of powers of two at limbs' borders: overflow, sign, division by 0."""
    stride = next(s for s in range(len(EDGES) * 5 // 3, EDGE_PAIRS) if gcd(s, EDGE_PAIRS) == 1)
    pairs = [i * stride % EDGE_PAIRS for i in range(case.dims["n"])]
    a, b = [EDGES[p // len(EDGES)] for p in pairs], [EDGES[p % len(EDGES)] for p in pairs]
    return a, b, _cycle(SHIFTS, len(pairs))


def _ties(case: Case) -> Elements:
    """Odd multiples of 2^(n-1), of both signs, at every n, and one step beside: the roundings' ties."""
    a, shifts = [], []
    for i, top in enumerate(_stream(case, "a")):
        width = WIDTHS[1 + i % 2]
        cycle, n = divmod(i // 2, width - 1)
        odd = top % (1 << width - n - 1) | 1
        sign = -1 if (n + cycle) % 2 else 1
        a.append(((sign * odd << n) + (0, 1, -1)[cycle // 2 % 3]) % (1 << 128))
        shifts.append(n + 1)
    return a, _stream(case, "b"), shifts


def _carries(case: Case) -> Elements:
    """Runs of ones from any bit to any other, and a bit that meets them: carries and borrows through every limb."""
    n = case.dims["n"]
    low, length, meets = (_below(case, name, 128) for name in ("low", "length", "meets"))
    a = [((1 << (d + 1)) - 1 << s) % (1 << 128) for s, d in zip(low, length, strict=True)]
    b = [1 << (s if i % 2 else m) for i, (s, m) in enumerate(zip(low, meets, strict=True))]
    return a, [v if i % 3 else -v % (1 << 128) for i, v in enumerate(b)], _cycle(SHIFTS, n)


def _rails(case: Case) -> Elements:
    """Each limb 0 or all ones, and every shift amount: a limb that is lost, doubled or taken from its neighbour."""
    patterns = [sum(0xFFFFFFFF << 32 * j for j in range(4) if i >> j & 1) for i in range(16)]
    n = case.dims["n"]
    return [patterns[i % 16] for i in range(n)], [patterns[i // 16 % 16] for i in range(n)], [i % 128 for i in range(n)]


def _quotients(case: Case) -> Elements:
    """a = q b and one below, and squares and one below them, at widths 32, 64 and 128: the last digit of quotients and roots."""
    bits = _below(case, "bits", 1 << 16)
    a, b = [], []
    for i, (x, y, pick) in enumerate(zip(_stream(case, "q"), _stream(case, "b"), bits, strict=True)):
        width = WIDTHS[i % 3]
        divisor = y % (1 << 1 + pick % width) or 1
        quotient = x % ((1 << width) // divisor)
        root = x >> (128 - width // 2)
        exact = root * root if i // 3 % 2 else quotient * divisor
        a.append((exact - i // 6 % 2) % (1 << 128))
        b.append(divisor)
    return a, b, _below(case, "shift", 128)


DISTRIBUTIONS: dict[str, Callable[[Case], Elements]] = {
    "full": _full,
    "edges": _edges,
    "ties": _ties,
    "carries": _carries,
    "rails": _rails,
    "quotients": _quotients,
}


def _words(values: Sequence[int]) -> npt.NDArray[np.int32]:
    data = b"".join(v.to_bytes(16, "little") for v in values)
    return np.frombuffer(data, "<i4").reshape(-1, 4).astype(np.int32)


def limbs_inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`a` and `b` i32 [N,4], lowest word first, and `shift` i32 [N]."""
    a, b, shifts = DISTRIBUTIONS[case.dist](case)
    return {"a": _words(a), "b": _words(b), "shift": np.array(shifts, np.int32)}
