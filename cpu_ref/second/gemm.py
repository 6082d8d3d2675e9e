"""Kernel `gemm_i32`, second implementation: residues by wrapping uint32, range counts by exact halves."""

import numpy as np
import numpy.typing as npt

from cpu_ref.second.halves import BAND, column_stream


def gemm_i32(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], int]:
    """C = A B modulo 2^32 as int32, and how many true values are no int32. Products of int32 stay below 2^63."""
    m, n = len(a), b.shape[1]
    right = b.astype(np.int64)
    c = np.empty((m, n), np.int32)
    leaves = 0
    rows = max(1, BAND // n)
    for start in range(0, m, rows):
        band = np.ascontiguousarray(a[start : start + rows].T).astype(np.int64)
        modular, high, low = column_stream(band, right, np.uint32)
        c[start : start + rows] = modular.view(np.int32)
        inside = ((high == 0) & (low < 1 << 31)) | ((high == -1) & (low >= 1 << 31))
        leaves += inside.size - int(np.count_nonzero(inside))
    return c, leaves
