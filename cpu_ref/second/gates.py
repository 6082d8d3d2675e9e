"""Integers as logic gates make them: arrays bool[rows, bits], lowest bit first; one column of gates a step.

No arithmetic of any library is used, so that this second implementation cannot share a fault with a first one.
"""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


def bits_of(values: npt.NDArray[np.uint32]) -> Bits:
    """u32[rows] to bool[rows, 32]; u32[rows, n] to bool[rows, 32 n], low word first."""
    flat: Bits = np.unpackbits(np.ascontiguousarray(values, "<u4").view("u1"), bitorder="little").astype(bool)
    return flat.reshape(len(values), -1)


def words_of(bits: Bits) -> npt.NDArray[np.uint32]:
    """bool[rows, 32 n] to u32[rows, n]."""
    packed: npt.NDArray[np.uint32] = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    return packed


def number(bits: Bits) -> Numbers:
    """Small unsigned numbers (below 2^32), for use as an index."""
    return sum((bits[:, i].astype(np.int64) << i for i in range(min(32, bits.shape[1]))), np.zeros(len(bits), np.int64))


def constant(value: int, like: Bits) -> Bits:
    """The same number in every row, two's complement in the width of `like`."""
    return np.array([[value >> i & 1 for i in range(like.shape[1])]], bool).repeat(len(like), 0)


def widen(x: Bits, width: int, *, sign: bool) -> Bits:
    """To `width` bits: zeros, or the sign, above; or cut to the low ones."""
    above = np.repeat(x[:, -1:] & sign, max(0, width - x.shape[1]), axis=1)
    return np.concatenate([x, above], axis=1)[:, :width]


def add(x: Bits, y: Bits, carry: bool = False) -> tuple[Bits, Truths]:
    """Sum in the width of `x`, and the carry out: a chain of full adders."""
    out = np.empty_like(x)
    c = np.full(len(x), carry)
    for i in range(x.shape[1]):
        a, b = x[:, i], y[:, i]
        out[:, i] = a ^ b ^ c
        c = (a & b) | (c & (a ^ b))
    return out, c


def sub(x: Bits, y: Bits) -> tuple[Bits, Truths]:
    """Difference, and the borrow."""
    out, carry = add(x, ~y, True)
    return out, ~carry


def neg(x: Bits) -> Bits:
    """Two's complement."""
    return add(~x, np.zeros_like(x), True)[0]


def some(x: Bits) -> Truths:
    """Whether a row has any bit set."""
    found: Truths = np.logical_or.reduce(x, axis=1)
    return found


def pick(truth: Truths, yes: Bits, no: Bits) -> Bits:
    """Row by row one of two."""
    return (truth[:, None] & yes) | (~truth[:, None] & no)


def magnitude(x: Bits) -> Bits:
    """The absolute value; of the most negative number itself, read as unsigned."""
    return pick(x[:, -1], neg(x), x)


def less(x: Bits, y: Bits, *, sign: bool) -> Truths:
    """Whether x < y. Signed order is unsigned order with the sign bits turned."""
    if sign:
        x, y = x.copy(), y.copy()
        x[:, -1] ^= True
        y[:, -1] ^= True
    return sub(x, y)[1]


def mul(x: Bits, y: Bits, *, sign: bool) -> Bits:
    """The whole product, in twice the width: shift and add, on magnitudes where signed."""
    width = x.shape[1]
    a, b = (magnitude(x), magnitude(y)) if sign else (x, y)
    out = np.zeros((len(x), 2 * width), bool)
    for i in range(width):
        part, carry = add(out[:, i : i + width], a & b[:, i : i + 1])
        out[:, i : i + width], out[:, i + width] = part, carry
    return pick(x[:, -1] ^ y[:, -1], neg(out), out) if sign else out


def divide(x: Bits, y: Bits, *, sign: bool) -> tuple[Bits, Bits]:
    """Quotient towards zero and remainder: restoring division; where y is 0, x and 0."""
    a, b = (magnitude(x), magnitude(y)) if sign else (x, y)
    wide = widen(b, b.shape[1] + 1, sign=False)
    rest, quotient = np.zeros_like(wide), np.zeros_like(a)
    for i in reversed(range(a.shape[1])):
        rest = np.concatenate([a[:, i : i + 1], rest[:, :-1]], axis=1)
        smaller, borrow = sub(rest, wide)
        rest, quotient[:, i] = pick(borrow, rest, smaller), ~borrow
    remainder = rest[:, :-1]
    if sign:
        quotient = pick(x[:, -1] ^ y[:, -1], neg(quotient), quotient)
        remainder = pick(x[:, -1], neg(remainder), remainder)
    zero = ~some(y)
    return pick(zero, x, quotient), pick(zero, np.zeros_like(x), remainder)


def shift(x: Bits, left: Numbers, fill: Truths | None = None) -> Bits:
    """Each row moved by its own count, to higher bits or (negative) lower ones; `fill` comes in, else zeros."""
    from_ = np.arange(x.shape[1])[None, :] - left[:, None]
    there = (from_ >= 0) & (from_ < x.shape[1])
    moved: Bits = np.take_along_axis(x, np.where(there, from_, 0), axis=1) & there
    return moved if fill is None else moved | ((from_ >= x.shape[1]) & fill[:, None])


def rotate(x: Bits, left: Numbers) -> Bits:
    """Each row turned by its own count."""
    from_ = (np.arange(x.shape[1])[None, :] - left[:, None]) % x.shape[1]
    turned: Bits = np.take_along_axis(x, from_, axis=1)
    return turned


def highest(x: Bits) -> Numbers:
    """Index of the highest bit that is set, -1 where none is."""
    return np.where(some(x), x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1), -1)


def lowest(x: Bits, none: int) -> Numbers:
    """Index of the lowest bit that is set, else `none`."""
    return np.where(some(x), np.argmax(x, axis=1), none)


def from_number(values: Numbers, width: int) -> Bits:
    """Integers as bits of two's complement, `width` at most 64."""
    return (values[:, None] >> np.arange(width)[None, :] & 1).astype(bool)
