"""Released block bytes to exact integers: every weight of a row as its Q24 value `W_i = s*q_i + m`.

A new block type is one more `BlockType` in `BLOCK_TYPES`.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from cpu_ref.errors import WeightsRefused

BLOCK = 32
"""Weights in a block of every type here."""


@cache
def half_q24(bits: int) -> int:
    """The exact value times 2^24 of an IEEE half given by its 16 bits; ValueError for infinities and NaNs.

    A subnormal is fraction * 2^-24, a normal (1024 + fraction) * 2^(exponent - 25).
    """
    sign, exponent, fraction = bits >> 15, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        raise ValueError(f"0x{bits:04x} is infinite or NaN")
    magnitude = fraction if exponent == 0 else (1024 + fraction) << (exponent - 1)
    return -magnitude if sign else magnitude


@dataclass(frozen=True)
class BlockType:
    """How a block's bytes are laid out: `halves` fp16 scales, then quants.

    `quants` is the struct of a block whose scales are skipped. `values(scales, quants)` gives the 32 weights,
    `bound(scales)` is never below the magnitude of one.
    """

    name: str
    halves: int
    quants: str
    values: Callable[[tuple[int, ...], tuple[int, ...]], list[int]]
    bound: Callable[[tuple[int, ...]], int]

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return struct.calcsize("<" + self.quants)

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` weights; WeightsRefused where `k` is not a multiple of the block."""
        if k % BLOCK:
            raise WeightsRefused(f"a row of {k} weights: {self.name} rows are multiples of {BLOCK}")
        return k // BLOCK * self.size


def _q8_0(scales: tuple[int, ...], quants: tuple[int, ...]) -> list[int]:
    s = scales[0]
    return [s * q for q in quants]


Q8_0 = BlockType("Q8_0", 1, "2x32b", _q8_0, lambda scales: abs(scales[0]) * 128)

BLOCK_TYPES = {t.name: t for t in (Q8_0,)}
"""The block types that have an exact reference, by GGUF's names."""


class Weights:
    """Rows of k weights in blocks of one kind; the scales are decoded once, on construction.

    WeightsRefused names the tensor (`name`), row and block of a scale without a value, or a wrong length.
    """

    def __init__(self, kind: BlockType, data: bytes | memoryview, k: int, name: str) -> None:
        self.kind, self.data, self.k = kind, data, k
        self.blocks = kind.row_bytes(k) // kind.size
        if len(data) % kind.row_bytes(k):
            raise WeightsRefused(f"{name}: {len(data)} bytes are no whole number of rows of {kind.row_bytes(k)} bytes")
        rest = kind.size - 2 * kind.halves
        self.scales: list[tuple[int, ...]] = []
        try:
            for halves in struct.iter_unpack(f"<{kind.halves}H{rest}x", data):
                self.scales.append(tuple(map(half_q24, halves)))
        except ValueError as e:
            row, block = divmod(len(self.scales), self.blocks)
            raise WeightsRefused(f"{name}: row {row}, block {block}: the scale {e}") from None

    def rows(self) -> Iterator[list[int]]:
        """Each row as k Q24 integers."""
        k, values = self.k, self.kind.values
        row: list[int] = []
        for scales, quants in zip(self.scales, struct.iter_unpack("<" + self.kind.quants, self.data), strict=True):
            row += values(scales, quants)
            if len(row) == k:
                yield row
                row = []

    def bounds(self) -> list[int]:
        """For each column of blocks, a number that no weight's magnitude in it exceeds."""
        bound, blocks = self.kind.bound, self.blocks
        return [max(map(bound, self.scales[j::blocks])) for j in range(blocks)]
