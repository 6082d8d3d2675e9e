"""Range contracts on int64 arrays, without a product or a sum that could overflow unseen."""

from collections.abc import Sequence

import numpy as np

from cpu_ref.second.errors import RangeContract
from cpu_ref.second.halves import Int64

TERM = 62
_LIMIT = (1 << TERM) - 1


def hold(op: str, bits: int, values: Int64 | Sequence[int], at: tuple[int, ...] = ()) -> Int64:
    """`values` as int64, every magnitude below 2^bits; `at` are leading indices of the element."""
    limit = 1 << bits
    if not isinstance(values, np.ndarray):
        for i, value in enumerate(values):
            if abs(value) >= limit:
                raise RangeContract(op, (*at, i), value, bits)
        return np.array(values, np.int64)
    broken = (values >= limit) | (values <= -limit)
    if broken.any():
        place = tuple(np.argwhere(broken)[0])
        raise RangeContract(op, (*at, *place), int(values[place]), bits)
    return values


def product(op: str, a: Int64, b: Int64, at: tuple[int, ...] = ()) -> Int64:
    """a * b (broadcast), every magnitude below 2^62: abs(b) <= floor((2^62 - 1) / abs(a)) says so beforehand."""
    broken = np.abs(b) > _LIMIT // np.maximum(np.abs(a), 1)
    if broken.any():
        place = tuple(np.argwhere(broken)[0])
        true = int(np.broadcast_to(a, broken.shape)[place]) * int(np.broadcast_to(b, broken.shape)[place])
        raise RangeContract(op, (*at, *place), true, TERM)
    return a * b


def total(op: str, terms: Int64, at: tuple[int, ...] = ()) -> Int64:
    """The sum over the last axis, its magnitude below 2^62, by two halves of each term that cannot overflow."""
    high, low = (terms >> 32).sum(axis=-1), (terms & 0xFFFFFFFF).sum(axis=-1)
    return join(op, high, low, at)


def join(op: str, high: Int64, low: Int64, at: tuple[int, ...] = ()) -> Int64:
    """high * 2^32 + low (low of any size from 0 on), its magnitude below 2^62."""
    high, low = high + (low >> 32), low & 0xFFFFFFFF
    broken = (high < -(1 << 30)) | (high >= 1 << 30) | ((high == -(1 << 30)) & (low == 0))
    if broken.any():
        place = tuple(np.argwhere(broken)[0])
        raise RangeContract(op, (*at, *place), (int(high[place]) << 32) + int(low[place]), TERM)
    sums: Int64 = high << 32 | low
    return sums
