"""Kernel `limbs`, second implementation: integers as 16-bit digits, lowest first, in NumPy's int64; shifts by moving bits.

A quotient is found by multiplying, a root by subtracting: the other way round than in the kernel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Digits = npt.NDArray[np.int64]
"""[elements, digits], each 0 to 65535."""

BASE = 1 << 16


def carry(sums: Digits) -> Digits:
    """Digits of sums that may be any int64 below 2^62 in magnitude; what leaves the top is dropped."""
    out = np.empty_like(sums)
    over = np.zeros(len(sums), np.int64)
    for i in range(sums.shape[1]):
        total = sums[:, i] + over
        out[:, i], over = total % BASE, total // BASE
    return out


def widen(a: Digits, digits: int) -> Digits:
    """The same value with more digits."""
    return np.pad(a, ((0, 0), (0, digits - a.shape[1])))


def multiply(a: Digits, b: Digits, digits: int) -> Digits:
    """The lowest digits of the product."""
    sums = np.zeros((len(a), digits), np.int64)
    for i in range(a.shape[1]):
        room = min(b.shape[1], digits - i)
        if room > 0:
            sums[:, i : i + room] += a[:, i : i + 1] * b[:, :room]  # at most 16 products below 2^32 a digit
    return carry(sums)


def below(a: Digits, b: Digits) -> npt.NDArray[np.bool_]:
    """a < b, unsigned: decided at the highest digit that differs."""
    difference = np.sign(a - b)[:, ::-1]
    first = np.argmax(difference != 0, axis=1)
    less: npt.NDArray[np.bool_] = np.take_along_axis(difference, first[:, None], axis=1)[:, 0] < 0
    return less


def negative(a: Digits) -> npt.NDArray[np.bool_]:
    """Whether the top bit is set."""
    top: npt.NDArray[np.bool_] = a[:, -1] >= BASE >> 1
    return top


def moved(a: Digits, by: Digits, fill: npt.NDArray[np.bool_]) -> Digits:
    """Bit i of the result is bit i + by[e] of element e; `fill` above the top, 0 below bit 0."""
    bits = (a[:, :, None] >> np.arange(16) & 1).reshape(len(a), -1)
    width = bits.shape[1]
    source = np.arange(width) + by[:, None]
    found = np.take_along_axis(bits, np.clip(source, 0, width - 1), axis=1)
    found = np.where(source >= width, fill[:, None], np.where(source < 0, 0, found))
    whole: Digits = (found.reshape(len(a), -1, 16) << np.arange(16)).sum(axis=2)
    return whole


def add(a: Digits, b: Digits, _: Digits) -> Digits:
    return carry(a + b)


def subtract(a: Digits, b: Digits, _: Digits) -> Digits:
    return carry(a - b)


def negate(a: Digits, _b: Digits, _n: Digits) -> Digits:
    return carry(-a)


def times(digits: int) -> Callable[[Digits, Digits, Digits], Digits]:
    return lambda a, b, _: multiply(a, b, digits)


def left(a: Digits, _: Digits, n: Digits) -> Digits:
    return moved(a, -n, np.zeros(len(a), np.bool_))


def right(a: Digits, _: Digits, n: Digits) -> Digits:
    return moved(a, n, np.zeros(len(a), np.bool_))


def arithmetic_right(a: Digits, _: Digits, n: Digits) -> Digits:
    return moved(a, n, negative(a))


def less(a: Digits, b: Digits, _: Digits) -> Digits:
    return below(a, b)[:, None].astype(np.int64)


def signed_less(a: Digits, b: Digits, _: Digits) -> Digits:
    return np.where(negative(a) != negative(b), negative(a), below(a, b))[:, None].astype(np.int64)


def round_up(a: Digits, b: Digits, n: Digits) -> Digits:
    """Half of 2^n is added in one digit more than the operand has, so that nothing is lost."""
    n = np.maximum(n, 1)
    digits = a.shape[1]
    longer = np.concatenate([a, np.where(negative(a), BASE - 1, 0)[:, None]], axis=1)
    one = widen(np.ones((len(a), 1), np.int64), digits + 1)
    return arithmetic_right(carry(longer + left(one, one, n - 1)), b, n)[:, :digits]


def round_from_zero(a: Digits, b: Digits, n: Digits) -> Digits:
    """Half up on the magnitude, which may be 2^(width - 1): a digit more holds it."""
    sign = negative(a)[:, None]
    magnitude = widen(np.where(sign, carry(-a), a), a.shape[1] + 1)
    rounded = round_up(magnitude, b, n)[:, : a.shape[1]]
    return np.where(sign, carry(-rounded), rounded)


def quotient(a: Digits, b: Digits, _: Digits) -> Digits:
    """The largest q with q * b <= a, bit by bit; with b = 0 every bit stays."""
    digits = a.shape[1]
    q = np.zeros_like(a)
    whole = widen(a, 2 * digits)
    for bit in range(16 * digits - 1, -1, -1):
        candidate = q.copy()
        candidate[:, bit // 16] += 1 << bit % 16
        fits = ~below(whole, multiply(candidate, b, 2 * digits))
        q = np.where(fits[:, None], candidate, q)
    return q


def root(a: Digits, _b: Digits, _n: Digits) -> Digits:
    """The integer square root: ever smaller squares are subtracted from what is left."""
    found, rest, one = np.zeros_like(a), a, np.ones(len(a), np.int64)
    for bit in range(16 * a.shape[1] - 2, -1, -2):
        step = np.zeros_like(a)
        step[:, bit // 16] = 1 << bit % 16
        trial = carry(found + step)
        fits = ~below(rest, trial)[:, None]
        rest = np.where(fits, carry(rest - trial), rest)
        found = right(found, found, one)
        found = np.where(fits, carry(found + step), found)
    return found


FUNCTIONS: list[tuple[int, Callable[[Digits, Digits, Digits], Digits]]] = [
    (64, add),
    (64, subtract),
    (64, negate),
    (32, times(4)),
    (64, times(4)),
    (64, left),
    (64, arithmetic_right),
    (64, right),
    (64, signed_less),
    (64, less),
    (64, round_up),
    (64, round_from_zero),
    (64, quotient),
    (64, root),
    (32, quotient),
    (32, root),
    (128, add),
    (128, subtract),
    (128, negate),
    (64, times(8)),
    (128, times(8)),
    (128, left),
    (128, arithmetic_right),
    (128, right),
    (128, signed_less),
    (128, less),
    (128, round_up),
    (128, round_from_zero),
    (128, quotient),
    (128, root),
]
"""Operand width and what computes it, in the kernel's order."""


def limbs(a: npt.NDArray[Any], b: npt.NDArray[Any], shift: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """i32[functions, n, 4] of operands i32[n,4] and shifts i32[n]."""
    left_digits, right_digits = (digits_of(v) for v in (a, b))
    results = []
    for bits, function in FUNCTIONS:
        digits = bits // 16
        n = shift.astype(np.int64) % bits
        found = widen(function(left_digits[:, :digits], right_digits[:, :digits], n), 8)
        results.append((found[:, ::2] | found[:, 1::2] << 16).astype(np.uint32).view(np.int32))
    return np.stack(results)


def digits_of(words: npt.NDArray[Any]) -> Digits:
    """The 16-bit digits of little-endian words."""
    return np.ascontiguousarray(words).view("<u2").reshape(len(words), -1).astype(np.int64)
