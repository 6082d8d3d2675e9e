"""Faults that kernels are known to have, planted into small copies of the computation, for `test_distributions`.

A copy gives the output as Python ints or NumPy words; without its fault it is exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.families.linear_inputs import BLOCKS, Parts

Ints = Any  # NumPy arrays of integers or of Python ints
UNWRITTEN = 0x25A5A5A5
"""What the output holds where a kernel writes nothing."""

SUM_BITS = {"gemm_i32": 32, "gemm_i32_i64": 64, "gemm_i8": 32}
MANTISSA = {"gemm_i32": np.float32, "gemm_i32_i64": np.float64, "gemm_i8": np.float32}


def wrapped(true: Ints, bits: int) -> Ints:
    """The residues modulo 2^bits as signed integers."""
    half = 1 << (bits - 1)
    return (true + half) % (2 * half) - half


def exact(kernel: str, a: Ints, b: Ints) -> Ints:
    """The true sums; int8 needs no Python ints."""
    wide = np.int64 if kernel == "gemm_i8" else object
    return (a.astype(wide) @ b.astype(wide)).astype(object)


def right_gemm(kernel: str, a: Ints, b: Ints) -> Ints:
    """No fault."""
    return wrapped(exact(kernel, a, b), SUM_BITS[kernel])


def cross_sum_saturates(kernel: str, a: Ints, b: Ints) -> Ints:
    """Magnitudes are multiplied by pieces of 16 bits, and the two middle products are added with signed saturation."""
    total = np.zeros((len(a), b.shape[1]), np.uint64)
    for left, right in zip(a.T.astype(np.int64), b.astype(np.int64), strict=True):
        x, y = np.abs(left).astype(np.uint64)[:, None], np.abs(right).astype(np.uint64)
        x0, x1, y0, y1 = x & np.uint64(0xFFFF), x >> np.uint64(16), y & np.uint64(0xFFFF), y >> np.uint64(16)
        cross = np.minimum(x1 * y0 + x0 * y1, np.uint64(2**31 - 1))
        product = x0 * y0 + (cross << np.uint64(16)) + (x1 * y1 << np.uint64(32))
        total += np.where((left < 0)[:, None] ^ (right < 0), np.uint64(0) - product, product)
    return wrapped(total.astype(object), SUM_BITS[kernel])


def one_product_is_wrong(kernel: str, a: Ints, b: Ints) -> Ints:
    """A table of products has one wrong entry: -90 times 38 is off by one."""
    hits = (a == -90).astype(np.int64) @ (b == 38).astype(np.int64)
    return wrapped(exact(kernel, a, b) + hits, SUM_BITS[kernel])


def low_byte_is_unsigned(kernel: str, a: Ints, b: Ints) -> Ints:
    """A whole word of A below 256, seen unsigned, is taken for one unsigned byte."""
    flat = np.ones(-(-a.size // 4) * 4, np.int64)
    flat[: a.size] = a.ravel()
    words = flat.reshape(-1, 4)
    single = (words[:, 1:] == 0).all(axis=1)
    words[single, 0] &= 255
    return right_gemm(kernel, flat[: a.size].reshape(a.shape), b)


def bytes_reversed(kernel: str, a: Ints, b: Ints) -> Ints:
    """The first byte of a word is read from its top."""
    flat = np.zeros(-(-a.size // 4) * 4, a.dtype)
    flat[: a.size] = a.ravel()
    return right_gemm(kernel, flat.reshape(-1, 4)[:, ::-1].ravel()[: a.size].reshape(a.shape), b)


def empty_rows_are_skipped(kernel: str, a: Ints, b: Ints) -> Ints:
    """A row of A without a non-zero is not computed, and not stored either."""
    c = right_gemm(kernel, a, b)
    c[~a.any(axis=1)] = UNWRITTEN
    return c


def groups_saturate(kernel: str, a: Ints, b: Ints) -> Ints:
    """Neighbouring products are added, with saturation, in bits that hold them unless all are the largest.

    Two of int32 in 64 bits, as pmaddwd does it for int16; eight of int8, two words, in 18.
    """
    terms = 8 if kernel == "gemm_i8" else 2
    edge = terms * 2 ** (2 * a.dtype.itemsize * 8 - 2)
    c = np.zeros((len(a), b.shape[1]), object)
    wide = np.int64 if kernel == "gemm_i8" else object
    a, b = a.astype(wide), b.astype(wide)
    for k in range(0, a.shape[1], terms):
        c += np.clip(a[:, k : k + terms] @ b[k : k + terms], -edge, edge - 1)
    return wrapped(c, SUM_BITS[kernel])


def least_value_is_clamped(kernel: str, a: Ints, b: Ints) -> Ints:
    """The type is taken for symmetric: its least value comes out as the one above it."""
    least = -(2 ** (SUM_BITS[kernel] - 1))
    c = right_gemm(kernel, a, b)
    return np.where(c == least, least + 1, c)


def float_where_sums_fit(kernel: str, a: Ints, b: Ints) -> Ints:
    """Where no sum can leave the integer type, it is kept as a float of the same width."""
    bound = int(np.abs(a.astype(np.int64)).max()) * int(np.abs(b.astype(np.int64)).max()) * len(b)
    if bound >= 2 ** (SUM_BITS[kernel] - 1):
        return right_gemm(kernel, a, b)
    kind = MANTISSA[kernel]
    c = np.zeros((len(a), b.shape[1]), kind)
    for left, right in zip(a.T.astype(kind), b.astype(kind), strict=True):
        c += left[:, None] * right
    return np.array([int(v) for v in c.flat], object).reshape(c.shape)


GEMM: dict[str, dict[str, Callable[[str, Ints, Ints], Ints]]] = {
    kernel: {
        "full": one_product_is_wrong if kernel == "gemm_i8" else cross_sum_saturates,
        "zeros": empty_rows_are_skipped,
        "rails_min": groups_saturate,
        "edge": least_value_is_clamped,
        "odd_steps": float_where_sums_fit,
        **({"packed_words": low_byte_is_unsigned} if kernel == "gemm_i8" else {}),
    }
    for kernel in SUM_BITS
}
"""By kernel and distribution: the fault that it catches and no other does."""


def half(bits: int) -> int:
    """A half's value in Q24, through Python's own float."""
    return int(float(np.uint16(bits).view(np.float16)) * 2**24)


def weights(scales: Ints, mins: Ints, quants: Ints, has_min: bool) -> Ints:
    """W = s q + m."""
    s, m = (np.repeat(v, 32, axis=1) for v in (scales, mins))
    return s * quants + (m if has_min else 0)


def sums(scales: Ints, mins: Ints, quants: Ints, x: Ints, has_min: bool) -> Ints:
    """sum_k W_k x_k, [M,N]."""
    return x @ weights(scales, mins, quants, has_min).T


def half_up(acc: int) -> int:
    """round_shift(acc, 24)."""
    return (acc + (1 << 23)) >> 24


@dataclass(frozen=True)
class Linear:
    """The steps of op 2, each exact unless replaced."""

    decode: Callable[[int], int] = half
    order: Callable[[Ints], Ints] = lambda quants: quants
    activation: Callable[[int], int] = int
    sums: Callable[[Ints, Ints, Ints, Ints, bool], Ints] = sums
    keep: Callable[[int], int] = int
    round: Callable[[int], int] = half_up
    empty: bool = False

    def run(self, kernel: str, given: Parts, bias: Sequence[int]) -> Ints:
        """y [M,N]."""
        each = np.vectorize(self.decode, otypes=[object])
        scales, mins = each(given.scales), each(given.mins)
        quants = self.order(given.quants.astype(object))
        x = np.vectorize(self.activation, otypes=[object])(given.x)
        has_min = BLOCKS[kernel].has_min
        acc = self.sums(scales, mins, quants, x, has_min) + np.array(bias, object)
        y = np.vectorize(lambda v: self.round(self.keep(v)), otypes=[object])(acc)
        if self.empty:
            skipped = ~(scales.any(axis=1) | (mins.any(axis=1) if has_min else False))
            y[:, skipped.astype(bool)] = UNWRITTEN
        return y


def wraps(bits: int) -> Callable[[int], int]:
    """Keeps `bits` bits, two's complement."""
    return lambda v: wrapped(int(v), bits)


def exponent_9_is_8(bits: int) -> int:
    """A table of exponents with one wrong entry."""
    return half(bits - 1024 if bits >> 10 & 31 == 9 else bits)


def flushed(bits: int) -> int:
    """Subnormals are taken for zero."""
    return half(bits if bits >> 10 & 31 else 0)


def half_away(acc: int) -> int:
    """Ties away from zero."""
    return half_up(acc) if acc >= 0 else -half_up(-acc)


def half_even(acc: int) -> int:
    """Ties to even."""
    return half_up(acc) - (acc % (1 << 24) == 1 << 23 and half_up(acc) % 2)


def float_sums(scales: Ints, mins: Ints, quants: Ints, x: Ints, has_min: bool) -> Ints:
    """Sums kept in float64, term after term."""
    w = weights(scales, mins, quants, has_min).astype(np.float64)
    acc = np.zeros((len(x), len(w)))
    for k in range(w.shape[1]):
        acc += x[:, k, None].astype(np.float64) * w[:, k]
    return np.array([int(v) for v in acc.flat], object).reshape(acc.shape)


def saturating_parts(scales: Ints, mins: Ints, quants: Ints, x: Ints, has_min: bool) -> Ints:
    """The sum of s q x and that of m x are kept apart, each saturating at 64 bits after each term."""
    s, m = (np.repeat(v, 32, axis=1) for v in (scales, mins))
    total = 0
    for part in (s * quants, m if has_min else 0 * m):
        acc = np.zeros((len(x), len(part)), object)
        for k in range(part.shape[1]):
            acc = np.clip(acc + np.outer(x[:, k], part[:, k]), -(2**63), 2**63 - 1)
        total = total + acc
    return total


def swapped(quants: Ints) -> Ints:
    """The high nibbles come first."""
    blocks = quants.reshape(len(quants), -1, 2, 16)
    return blocks[:, :, ::-1].reshape(quants.shape)


def neighbours(quants: Ints) -> Ints:
    """A byte holds two neighbours."""
    blocks = quants.reshape(len(quants), -1, 2, 16)
    return blocks.swapaxes(2, 3).reshape(quants.shape)


RIGHT = Linear()
LINEAR: dict[str, Linear] = {
    "full": replace(RIGHT, decode=exponent_9_is_8),
    "zeros": replace(RIGHT, empty=True),
    "ties": replace(RIGHT, round=half_away),
    "halves": replace(RIGHT, decode=lambda bits: wrapped(half(bits), 32)),
    "range": replace(RIGHT, activation=wraps(32)),
    "edge": replace(RIGHT, keep=wraps(62)),
    "odd_steps": replace(RIGHT, sums=float_sums),
    "cancel": replace(RIGHT, sums=saturating_parts),
}
"""By distribution: the fault that it catches and no other does, in each block type that has it."""

ORDERS = [replace(RIGHT, order=order) for order in (swapped, neighbours)]
