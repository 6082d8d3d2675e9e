"""Tables by ball arithmetic (python-flint's arb): each value is an interval, so a safe rounding is proved, not assumed."""

import hashlib
from collections.abc import Iterable
from functools import cache

import flint
import numpy as np
from flint import arb, fmpq

from cpu_ref.second.errors import TableRefused
from cpu_ref.second.halves import Int64

Table = tuple[str, list[int]]
"""Element type and entries."""

BITS = 300
"""Working precision, about 90 decimal digits."""


def rounded(name: str, balls: Iterable[arb]) -> list[int]:
    """The nearest integer of each ball; TableRefused where it is not certain, or a tie lies within 1e-9."""
    entries = []
    for i, ball in enumerate(balls):
        nearest = (ball + fmpq(1, 2)).floor().unique_fmpz()
        if nearest is None or not abs(ball - nearest) < fmpq(1, 2) - fmpq(1, 10**9):
            raise TableRefused(f"{name}[{i}] is {ball}, too near to a tie")
        entries.append(int(nearest))
    return entries


def exponential(name: str, step: int, count: int, one: int) -> Table:
    """rne(one * exp(-i / step)), i below `count`."""
    with flint.ctx.workprec(BITS):
        return "i64", rounded(name, (one * arb(fmpq(-i, step)).exp() for i in range(count)))


def logistic(name: str, step: int, count: int, one: int) -> Table:
    """rne(one / (1 + exp(-i / step))), i below `count`."""
    with flint.ctx.workprec(BITS):
        return "i64", rounded(name, (one / (1 + arb(fmpq(-i, step)).exp()) for i in range(count)))


@cache
def rotation(base: float, head_width: int, position: int, one: int) -> tuple[Int64, Int64]:
    """rne(one * cos) and rne(one * sin) of position * base^(-2i / head_width), i64[head_width / 2] each."""
    with flint.ctx.workprec(BITS):
        angles = [position * arb(base) ** arb(fmpq(-2 * i, head_width)) for i in range(head_width // 2)]
        sines, cosines = zip(*(angle.sin_cos() for angle in angles), strict=True)
        cos, sin = rounded("C", (one * c for c in cosines)), rounded("S", (one * s for s in sines))
    return np.array(cos, np.int64), np.array(sin, np.int64)


def inverse_root(n: int, one: int) -> int:
    """rne(one / sqrt(n))."""
    with flint.ctx.workprec(BITS):
        return rounded("c", [one / arb(n).sqrt()])[0]


def digest(table: Table) -> str:
    """SHA-256 of header, zero byte and entries of an i64 table."""
    element, entries = table
    return hashlib.sha256(f"{element}[{len(entries)}]\0".encode() + np.array(entries, "<i8").tobytes()).hexdigest()
