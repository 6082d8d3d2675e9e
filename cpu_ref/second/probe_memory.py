"""The second implementation of the kernels that try memory: whole arrays of uint64, moved and added."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LOW = np.uint64(0xFFFFFFFF)


def _i32(values: Array) -> Array:
    return (values & LOW).astype("<u4").view("<i4")


def _moved(x: Array, by: int, fill: int) -> Array:
    """x[i + by] where that is, else `fill`."""
    out = np.full(len(x), fill, np.uint64)
    if by > 0:
        out[:-by] = x[by:]
    else:
        out[-by:] = x[:by]
    return out


def words(given: Array, way: str) -> Array:
    """found i32[n] of given i32[n]."""
    x = given.view("<u4").astype(np.uint64)
    if way == "page":
        near = x * np.uint64(3) + _moved(x, 1, 7) + (_moved(x, -1, 0) ^ LOW) + np.uint64(1)
        return _i32((near & LOW) ^ _moved(x, 64, 0))
    places = np.arange(len(x), dtype=np.uint64)
    if way == "wrapped":
        at = places + np.uint64(2**32 - 5) & LOW
        return _i32((x ^ at) + x[::-1] * np.uint64(3) + x * np.uint64(5))
    octets = np.concatenate([np.ascontiguousarray(given).view("u1"), np.zeros(4, "u1")]).astype(np.uint64)
    start = np.minimum(places * np.uint64(3) + np.uint64(1), np.uint64(4 * len(x))).astype(np.int64)
    inside = start + 4 <= 4 * len(x)
    read = sum((octets[np.where(inside, start + k, -1)] << np.uint64(8 * k) for k in range(4)), np.zeros_like(x))
    total = x ^ read
    four = [_moved(x, k, 0) if k else x for k in range(3)]
    turned = _moved(x ^ LOW, 3, 0)
    sums = four[0] + four[1] * np.uint64(3) + four[2] * np.uint64(5) + turned * np.uint64(7)
    sums[-3:] = 0
    return _i32(total + sums)


def heap(places: Array) -> Array:
    """found i32[n]; products by halves, below 2^49."""
    p = places.view("<u4").astype(np.uint64) ^ np.uint64(0xA5A5A5A5)
    high = (p * np.uint64(0x9E37) & np.uint64(0xFFFF)) << np.uint64(16)
    return _i32(p * np.uint64(0x79B1) + high + np.arange(len(p), dtype=np.uint64))


def arguments(columns: Sequence[Array]) -> Array:
    """y i32[n] by Horner's rule."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = total * np.uint64(31) + column.view("<u4").astype(np.uint64) & LOW
    return _i32(total)
