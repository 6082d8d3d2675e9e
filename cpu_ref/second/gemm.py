"""The integer `gemm_*` kernels, second implementation: residues by wrapping words, range counts by exact halves."""

from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref.second.halves import BAND, column_stream

Matrix = npt.NDArray[Any]


def gemm_i32(a: Matrix, b: Matrix) -> tuple[Matrix, int]:
    """C = A B modulo 2^32 as int32, and how many true values are no int32. A and B are int32, or narrower."""
    return _gemm(a, b, np.uint32, np.int32)


def gemm_i32_i64(a: Matrix, b: Matrix) -> tuple[Matrix, int]:
    """C = A B modulo 2^64 as int64, and how many true values are no int64."""
    return _gemm(a, b, np.uint64, np.int64)


def _gemm(
    a: Matrix, b: Matrix, word: type[np.uint32] | type[np.uint64], out: type[np.int32] | type[np.int64]
) -> tuple[Matrix, int]:
    """Products of int32 stay below 2^63, so each is exact; sums are kept in the word, and in halves beside it."""
    m, n = len(a), b.shape[1]
    right = b.astype(np.int64)
    c: Matrix = np.empty((m, n), out)
    leaves = 0
    rows = max(1, BAND // n)
    for start in range(0, m, rows):
        band = np.ascontiguousarray(a[start : start + rows].T).astype(np.int64)
        modular, high, low = column_stream(band, right, word)
        c[start : start + rows] = modular.view(out)
        if out is np.int32:
            inside = ((high == 0) & (low < 1 << 31)) | ((high == -1) & (low >= 1 << 31))
        else:
            inside = (high >= -(1 << 31)) & (high < 1 << 31)
        leaves += inside.size - int(np.count_nonzero(inside))
    return c, leaves
