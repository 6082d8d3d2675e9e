"""Released block bytes to exact integers: every weight of a row as its Q24 value `W_i = s*q_i + m`.

A new block type is one more `BlockType` in `BLOCK_TYPES`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from cpu_ref.errors import WeightsRefused

BLOCK = 32
"""Weights in a block of every type here."""

_LOW = bytes(b & 15 for b in range(256))
_HIGH = bytes(b >> 4 for b in range(256))


def half_q24(bits: int) -> int:
    """The exact value times 2^24 of an IEEE half given by its 16 bits; ValueError for infinities and NaNs.

    A subnormal is fraction * 2^-24, a normal (1024 + fraction) * 2^(exponent - 25).
    """
    sign, exponent, fraction = bits >> 15, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        raise ValueError(f"0x{bits:04x} is infinite or NaN")
    magnitude = fraction if exponent == 0 else (1024 + fraction) << (exponent - 1)
    return -magnitude if sign else magnitude


@cache
def halves_q24() -> list[int]:
    """`half_q24` by the 16 bits of a half; 0 stands where a half has no value."""
    return [0 if bits >> 10 & 31 == 31 else half_q24(bits) for bits in range(1 << 16)]


@dataclass(frozen=True)
class BlockType:
    """How a block's bytes are laid out: `halves` fp16 scales, then the bytes of its quants.

    `values(quants, *scales)` gives the 32 weights, `bound(*scales)` is never below the magnitude of one; scales in Q24.
    """

    name: str
    halves: int
    quants: int
    values: Callable[..., Iterable[int]]
    bound: Callable[..., int]

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return 2 * self.halves + self.quants

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` weights; WeightsRefused where `k` is not a multiple of the block."""
        if k % BLOCK:
            raise WeightsRefused(f"a row of {k} weights: {self.name} rows are multiples of {BLOCK}")
        return k // BLOCK * self.size


def _q8_0(quants: bytes, s: int) -> Iterable[int]:
    return [s * q for q in memoryview(quants).cast("b")]


def _nibbles(quants: bytes, weights: Sequence[int]) -> Iterable[int]:
    """The weight of each nibble: byte j holds number j in its low nibble and number j + 16 in its high one."""
    return map(weights.__getitem__, quants.translate(_LOW) + quants.translate(_HIGH))


def _q4_0(quants: bytes, s: int) -> Iterable[int]:
    return _nibbles(quants, [s * (q - 8) for q in range(16)])


def _q4_1(quants: bytes, s: int, m: int) -> Iterable[int]:
    return _nibbles(quants, [s * q + m for q in range(16)])


Q8_0 = BlockType("Q8_0", 1, 32, _q8_0, lambda s: 128 * abs(s))
Q4_0 = BlockType("Q4_0", 1, 16, _q4_0, lambda s: 8 * abs(s))
Q4_1 = BlockType("Q4_1", 2, 16, _q4_1, lambda s, m: 15 * abs(s) + abs(m))

BLOCK_TYPES = {t.name: t for t in (Q4_0, Q4_1, Q8_0)}
"""The block types that have an exact reference, by GGUF's names."""


class Weights:
    """Rows of k weights in blocks of one kind.

    On construction, WeightsRefused names the tensor (`name`), row and block of a scale without a value, or a wrong length.
    """

    def __init__(self, kind: BlockType, data: bytes | memoryview, k: int, name: str) -> None:
        self.kind, self.data, self.k, self.name = kind, memoryview(data), k, name
        self.blocks = kind.row_bytes(k) // kind.size
        self.count, rest = divmod(len(data), kind.row_bytes(k))
        if rest:
            raise WeightsRefused(f"{name}: {len(data)} bytes are no whole number of rows of {kind.row_bytes(k)} bytes")
        self._refuse_scales()

    def band(self, start: int, count: int) -> list[int]:
        """The weights of up to `count` rows from row `start` on, row-major, as Q24 integers."""
        size, value, weights = self.kind.row_bytes(self.k), halves_q24(), list[int]()
        part = self.data[start * size : (start + count) * size]
        for *halves, quants in struct.iter_unpack(f"<{self.kind.halves}H{self.kind.quants}s", part):
            weights += self.kind.values(quants, *[value[bits] for bits in halves])
        return weights

    def rows(self) -> Iterator[list[int]]:
        """Each row as k Q24 integers."""
        return (self.band(row, 1) for row in range(self.count))

    def bounds(self) -> list[int]:
        """For each column of blocks, a number that no weight's magnitude in it exceeds."""
        value, heaviest = halves_q24(), []
        for h in range(self.kind.halves):
            layout = f"<{2 * h}xH{self.kind.size - 2 * h - 2}x"
            column = [abs(value[bits]) for (bits,) in struct.iter_unpack(layout, self.data)]
            heaviest.append([max(column[j :: self.blocks]) for j in range(self.blocks)])
        return [self.kind.bound(*scales) for scales in zip(*heaviest, strict=True)]

    def _refuse_scales(self) -> None:
        """The exponent's five bits stand in a half's upper byte; all ones are an infinity or a NaN."""
        size, halves = self.kind.size, range(self.kind.halves)
        upper = [bytes(self.data[2 * h + 1 :: size]) for h in halves]
        if not any(b & 0x7C == 0x7C for column in upper for b in set(column)):
            return
        at, h = next((i, h) for i in range(len(upper[0])) for h in halves if upper[h][i] & 0x7C == 0x7C)
        bits = upper[h][at] << 8 | self.data[at * size + 2 * h]
        row, block = divmod(at, self.blocks)
        raise WeightsRefused(f"{self.name}: row {row}, block {block}: the scale 0x{bits:04x} is infinite or NaN")
