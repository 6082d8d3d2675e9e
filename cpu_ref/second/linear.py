"""Op 2 of dyadic-q16 on Q8_0 blocks, second implementation: decoded by a table, summed column by column."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cpu_ref.second.errors import RangeContract, WeightsRefused
from cpu_ref.second.halves import BAND, Int64, column_stream

BLOCK, BLOCK_BYTES = 32, 34
ROWS = 4096
"""Rows of weights that are decoded at one time."""

Bytes = npt.NDArray[np.uint8]


def half_table() -> tuple[Int64, npt.NDArray[np.bool_]]:
    """By the 16 bits of an IEEE half: its value times 2^24, and whether it has one.

    Neighbouring halves lie one unit of the last place apart: 1 in the two lowest exponents, then twice as much from
    one exponent to the next. So the magnitudes are running sums of these steps.
    """
    pattern = np.arange(0x8000)
    steps = np.int64(1) << np.maximum((pattern >> 10) - 1, 0)
    magnitude = np.concatenate([[0], np.cumsum(steps)[:-1]])
    finite = pattern < 0x7C00
    magnitude[~finite] = 0
    return np.concatenate([magnitude, -magnitude]), np.concatenate([finite, finite])


def linear_q8_0(w: Bytes, x: Int64, name: str = "w") -> Int64:
    """y = round_shift(W x, 24), i64[m,n]: w is u8[n, K/32*34], x is i64[m,K]."""
    values, finite = half_table()
    _refuse_scales(w, finite, name)
    _hold_activations(x)
    _hold_terms(w, x, values)
    rows = max(1, BAND // len(x))
    columns = np.ascontiguousarray(x.T)
    parts = [column_stream(columns, band, np.uint64) for _, band in _bands(w, values, min(rows, ROWS))]
    high, low = (np.concatenate([part[i] for part in parts], axis=1) for i in (1, 2))
    broken = (high < -(1 << 30)) | (high >= 1 << 30) | ((high == -(1 << 30)) & (low == 0))
    if broken.any():
        t, r = place = np.argwhere(broken)[0]
        raise RangeContract("linear.sum", place, (int(high[t, r]) << 32) + int(low[t, r]), 62)
    acc: Int64 = (high << 32) | low
    y: Int64 = (acc + (1 << 23)) >> 24  # below 2^39 in magnitude: its own contract, 2^47, follows
    return y


def _bands(w: Bytes, values: Int64, rows: int) -> Iterator[tuple[int, Int64]]:
    """(first row, weights [K, rows] in Q24): 40 bits of scale times 7 of quant fit an int64."""
    for start in range(0, len(w), rows):
        blocks = w[start : start + rows].reshape(-1, w.shape[1] // BLOCK_BYTES, BLOCK_BYTES)
        scales = values[_scale_bits(blocks)]
        quants = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
        weights = (scales[..., None] * quants).reshape(len(blocks), -1)
        yield start, np.ascontiguousarray(weights.T)


def _scale_bits(blocks: Bytes) -> npt.NDArray[np.intp]:
    return blocks[..., 0].astype(np.intp) | (blocks[..., 1].astype(np.intp) << 8)


def _refuse_scales(w: Bytes, finite: npt.NDArray[np.bool_], name: str) -> None:
    bits = _scale_bits(w.reshape(len(w), -1, BLOCK_BYTES))
    bad = np.argwhere(~finite[bits])
    if len(bad):
        row, block = bad[0]
        raise WeightsRefused(f"{name}: row {row}, block {block}: the scale 0x{bits[row, block]:04x} is infinite or NaN")


def _hold_activations(x: Int64) -> None:
    broken = (x >= 1 << 47) | (x <= -(1 << 47))
    if broken.any():
        place = np.argwhere(broken)[0]
        raise RangeContract("linear.x", place, int(x[tuple(place)]), 47)


def _hold_terms(w: Bytes, x: Int64, values: Int64) -> None:
    """|W_k * x_k| < 2^62, without a product that could overflow: |W_k| <= floor((2^62 - 1) / |x_k|)."""
    limits = ((1 << 62) - 1) // np.maximum(np.abs(x), 1)
    smallest = limits.min(axis=0)[:, None]
    if not any((np.abs(band) > smallest).any() for _, band in _bands(w, values, ROWS)):
        return
    for t, limit in enumerate(limits):
        for start, band in _bands(w, values, ROWS):
            broken = np.argwhere((np.abs(band) > limit[:, None]).T)
            if len(broken):
                r, k = broken[0]
                raise RangeContract("linear.term", (t, start + r, k), int(band[k, r]) * int(x[t, k]), 62)
