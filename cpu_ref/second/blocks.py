"""Block-quantised rows taken apart by NumPy: W = s*q + m, scales and quants kept as arrays of their own."""

import numpy as np
import numpy.typing as npt

from cpu_ref.second.errors import WeightsRefused
from cpu_ref.second.gguf_tensor import Bytes
from cpu_ref.second.halves import Int64

BLOCK = 32

_LAYOUTS = {"Q8_0": (1, 32), "Q4_0": (1, 16), "Q4_1": (2, 16)}
"""Halves and bytes of quants in a block."""


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


VALUES, FINITE = half_table()


class Blocks:
    """A matrix u8[n, row bytes]; WeightsRefused names tensor, row and block of an infinite or NaN scale."""

    def __init__(self, kind: str, data: Bytes, name: str) -> None:
        halves, quants = _LAYOUTS[kind]
        self.kind, self.name, self.halves = kind, name, halves
        self.rows, row_bytes = data.shape
        self.blocks = row_bytes // (2 * halves + quants)
        self._raw = data.reshape(self.rows, self.blocks, 2 * halves + quants)
        bits = self._bits(self._raw)
        if not FINITE[bits].all():
            row, block, half = np.argwhere(~FINITE[bits])[0]
            pattern = bits[row, block, half]
            raise WeightsRefused(f"{name}: row {row}, block {block}: the scale 0x{pattern:04x} is infinite or NaN")

    def part(self, start: int, stop: int) -> tuple[Int64, Int64, Int64]:
        """Of rows start..stop-1: s and m, Q24 [rows, blocks], and q [rows, blocks, 32]."""
        raw = self._raw[start:stop]
        scales = VALUES[self._bits(raw)]
        packed = np.ascontiguousarray(raw[..., 2 * self.halves :])
        if self.kind == "Q8_0":
            q = packed.view(np.int8).astype(np.int64)
        else:
            q = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int64) - (8 if self.kind == "Q4_0" else 0)
        return scales[..., 0], scales[..., 1] if self.halves == 2 else np.zeros_like(scales[..., 0]), q

    def weights(self, start: int, stop: int) -> Int64:
        """Rows start..stop-1 whole, Q24 [rows, k]: 40 bits of scale times 7 of quant fit an int64."""
        s, m, q = self.part(start, stop)
        return (s[..., None] * q + m[..., None]).reshape(len(s), -1)

    def _bits(self, raw: Bytes) -> npt.NDArray[np.intp]:
        pairs = raw[..., : 2 * self.halves].astype(np.intp)
        return pairs[..., ::2] | pairs[..., 1::2] << 8
