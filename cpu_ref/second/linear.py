"""Op 2 of dyadic-q16, second implementation: by blocks where no sum can overflow, else column by column in halves."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cpu_ref.second.blocks import BLOCK, Blocks
from cpu_ref.second.contracts import TERM, hold, join
from cpu_ref.second.errors import RangeContract
from cpu_ref.second.gguf_tensor import Bytes
from cpu_ref.second.halves import BAND, Int64, column_stream

ROWS = 4096
"""Rows of weights that are decoded at one time."""

MARGIN = 1.0 + 1e-6
"""More than what rounding can take from a float64 sum of positive numbers."""


def linear(op: str, w: Blocks, x: Int64, bias: list[int] | None = None) -> Int64:
    """y = round_shift(b + W x, 24), i64[m,n], of x i64[m,k] below 2^47 and b in Q40 [n].

    RangeContract names `op`.bias, `op`.term, `op`.sum. With |W| <= |s| max|q| + |m| and the L1 norm of a block of x, one
    product of floats bounds the sum of all magnitudes. Below 2^62, no partial sum of any order leaves int64.
    """
    b = hold(f"{op}.bias", TERM, bias) if bias is not None else np.zeros(w.rows, np.int64)
    bound = _bound(w, x) + np.abs(b)
    acc = _by_blocks(w, x) + b if (bound * MARGIN < 2.0**TERM).all() else _exact(op, w, x, b)
    y: Int64 = (acc + (1 << 23)) >> 24  # below 2^39 in magnitude: its own contract, 2^47, follows
    return y


def linear_exact(kind: str, w: Bytes, x: Int64, bias: Int64, name: str = "w") -> Int64:
    """y = round_shift(b + W x, 24), i64[m,n]: w is u8[n, bytes of K weights], x i64[m,K], b i64[n]; sums in halves."""
    blocks = Blocks(kind, w, name)
    acc = _exact("linear", blocks, hold("linear.x", 47, x), hold("linear.bias", TERM, bias))
    y: Int64 = (acc + (1 << 23)) >> 24
    return y


def _bound(w: Blocks, x: Int64) -> npt.NDArray[np.float64]:
    """A float64 bound of sum_k |W_k x_k|, [m,n]."""
    largest = {"Q8_0": 128.0, "Q4_0": 8.0, "Q4_1": 15.0}[w.kind]
    norms = np.abs(x).reshape(len(x), -1, BLOCK).astype(np.float64).sum(axis=2)
    parts = [np.abs(w.part(start, start + ROWS)[:2]) for start in range(0, w.rows, ROWS)]
    return np.concatenate([norms @ (s * largest + m).T for s, m in parts], axis=1)


def _by_blocks(w: Blocks, x: Int64) -> Int64:
    """sum_b s_b * (sum_i q_i x_i) + m_b * (sum_i x_i): no weight is ever formed."""
    tokens = np.ascontiguousarray(x.reshape(len(x), -1, BLOCK).transpose(1, 2, 0))
    plain = tokens.sum(axis=1)
    bands = []
    for start in range(0, w.rows, ROWS):
        s, m, q = w.part(start, start + ROWS)
        acc = m @ plain
        for block in range(w.blocks):
            acc += s[:, block, None] * (q[:, block] @ tokens[block])
        bands.append(acc.T)
    return np.concatenate(bands, axis=1)


def _exact(op: str, w: Blocks, x: Int64, b: Int64) -> Int64:
    """The checked sums [m,n] of any weights, terms checked before they are formed."""
    _hold_terms(op, w, x)
    columns = np.ascontiguousarray(x.T)
    rows = max(1, min(BAND // len(x), ROWS))
    parts = [column_stream(columns, band, np.uint64) for _, band in _columns(w, rows)]
    high, low = (np.concatenate([part[i] for part in parts], axis=1) for i in (1, 2))
    return join(f"{op}.sum", high + (b >> 32), low + (b & 0xFFFFFFFF))


def _columns(w: Blocks, rows: int) -> Iterator[tuple[int, Int64]]:
    """(first row, weights [K, rows] in Q24)."""
    for start in range(0, w.rows, rows):
        yield start, np.ascontiguousarray(w.weights(start, start + rows).T)


def _hold_terms(op: str, w: Blocks, x: Int64) -> None:
    """|W_k * x_k| < 2^62, without a product that could overflow: |W_k| <= floor((2^62 - 1) / |x_k|)."""
    limits = ((1 << TERM) - 1) // np.maximum(np.abs(x), 1)
    smallest = limits.min(axis=0)[:, None]
    if not any((np.abs(band) > smallest).any() for _, band in _columns(w, ROWS)):
        return
    for t, limit in enumerate(limits):
        for start, band in _columns(w, ROWS):
            broken = np.argwhere((np.abs(band) > limit[:, None]).T)
            if len(broken):
                r, k = broken[0]
                raise RangeContract(f"{op}.term", (t, start + r, k), int(band[k, r]) * int(x[t, k]), TERM)
