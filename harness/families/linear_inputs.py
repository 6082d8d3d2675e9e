"""Data distributions of the `linear_*` kernels: block bytes W, Q16 activations X [M,K] and a Q40 bias [N] as int64.

Generated data stays inside the contracts of dyadic-q16: |x| < 2^47, bias, each term and each sum below 2^62.
`docs/data.md` says which fault each distribution alone catches.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.folders import data_file
from harness.inputs import random_integers
from harness.models import tensor_bytes

BLOCK = 32

Halves = npt.NDArray[np.uint16]
Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

TINY, TWO_TO_MINUS_14, ONE, EIGHT = 0x0001, 0x0400, 0x3C00, 0x4800
"""Halves: 2^-24, which is 1 in Q24; the least normal one; 1.0; 8.0."""

NEGATIVE = 0x8000
"""The sign of a half."""


@dataclass(frozen=True)
class Block:
    """The quants of a block type, and whether its blocks have a min. A quant is stored with `low` taken off it."""

    low: int
    high: int
    has_min: bool

    @property
    def reach(self) -> int:
        """r such that no weight is more than 2^r times the larger of its block's scale and min in magnitude."""
        return (max(-self.low, self.high + self.has_min) - 1).bit_length()


BLOCKS: Mapping[str, Block] = {
    "linear_q8_0": Block(-128, 127, False),
    "linear_q4_1": Block(0, 15, True),
    "linear_q4_0": Block(-8, 7, False),
}


class Parts(NamedTuple):
    """Scale and min of each block as the bits of a half [N, K/32], quants [N,K], activations [M,K]."""

    scales: Halves
    mins: Halves
    quants: Int64
    x: Int64


def activation_bits(block: Block, k: int, scale_bits: int = 24) -> int:
    """Bits b such that K terms with scales below 2^scale_bits in Q24 and |x| < 2^b stay below 2^62, and a bias fits too."""
    return min(47, 62 - block.reach - scale_bits - (k - 1).bit_length())


def _random(case: Case, name: str, rows: int, columns: int, low: int, high: int) -> Int64:
    return random_integers(f"{case.id}/{name}", rows * columns, low, high).reshape(rows, columns)


def _signs(case: Case, name: str, rows: int, columns: int) -> Int64:
    return 1 - 2 * _random(case, name, rows, columns, 0, 1)


def _scales(case: Case, name: str, n: int, blocks: int) -> Halves:
    """Every half below 1, of both signs: exponents 0 to 14, subnormals included."""
    magnitude = _random(case, name, n, blocks, 0, (15 << 10) - 1)
    sign = _random(case, "sign" if name == "scale" else f"{name}/sign", n, blocks, 0, 1)
    return (magnitude | sign << 15).astype(np.uint16)


def _quants(case: Case, n: int, k: int) -> Int64:
    block = BLOCKS[case.kernel]
    return _random(case, "q", n, k, block.low, block.high)


def _activations(case: Case, m: int, k: int, scale_bits: int = 24) -> Int64:
    top = 2 ** activation_bits(BLOCKS[case.kernel], k, scale_bits) - 1
    return _random(case, "x", m, k, -top, top)


def _alike(n: int, k: int, half: int) -> Halves:
    return np.full((n, k // BLOCK), half, np.uint16)


def _alternating(count: int) -> Int64:
    """1, -1, 1, ... as a column."""
    return 1 - 2 * (np.arange(count, dtype=np.int64)[:, None] % 2)


def _full(case: Case, m: int, n: int, k: int) -> Parts:
    """Every half below 1 as scale and min, every quant, activations to the bound for K: decoding and all carries."""
    blocks = k // BLOCK
    return Parts(
        _scales(case, "scale", n, blocks),
        _scales(case, "min", n, blocks),
        _quants(case, n, k),
        _activations(case, m, k),
    )


def _zeros(case: Case, m: int, n: int, k: int) -> Parts:
    """Scales and mins of +0 and -0: rows that are skipped as empty, a sign of zero that leaks, stale accumulators."""
    scales, mins = (_random(case, name, n, k // BLOCK, 0, 1) << 15 for name in ("scale", "min"))
    return Parts(scales.astype(np.uint16), mins.astype(np.uint16), _quants(case, n, k), _activations(case, m, k))


def _ties(case: Case, m: int, n: int, k: int) -> Parts:
    """Sums are multiples of 2^23, so half of all outputs are exact rounding ties, of both signs: any other rounding."""
    block = BLOCKS[case.kernel]
    low = 0 if block.has_min else -8
    mins = _alike(n, k, 0x1000 | NEGATIVE)  # -8 times the scale
    q = _random(case, "q", n, k, low, low + 15)
    return Parts(_alike(n, k, TWO_TO_MINUS_14), mins, q, _random(case, "x", m, k, -8, 7) << 13)


_SMALL_HALVES = np.array([0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0000, 0x8000], np.uint16)
_LARGE_HALVES = np.array([0x7BFF, 0xFBFF, 0x7800, 0xF800, 0x3C00, 0xBC00], np.uint16)


def _halves(case: Case, m: int, n: int, k: int) -> Parts:
    """Subnormal, least normal, negative, zero and largest halves, activations to match: scales kept in too few bits."""
    blocks, block = k // BLOCK, BLOCKS[case.kernel]
    turn = np.arange(n)[:, None] + np.arange(blocks) // 2
    small = np.arange(blocks) % 2 == 0
    scales, mins = (
        np.where(small, _SMALL_HALVES[(turn + by) % 8], _LARGE_HALVES[(turn + by) % 6]).astype(np.uint16)
        for by in (0, 3)
    )
    x = _activations(case, m, k, 40)  # the largest half is below 2^40 in Q24, a small one below 2^11
    wide = 2 ** min(31, activation_bits(block, k, 11)) - 1
    x = np.where(np.repeat(small, BLOCK), _random(case, "x/wide", m, k, -wide, wide), x)
    return Parts(scales, mins, _quants(case, n, k), x)


def _range(case: Case, m: int, n: int, k: int) -> Parts:
    """Activations next to the range contract, |x| = 2^47 - 1 .. 2^47 - 4, on weights of few bits: x kept in too few bits."""
    block = BLOCKS[case.kernel]
    most = min(15, (2**15 - 1) // k)
    half = (most + 1) // 2
    low = 0 if block.has_min else -half
    q = _random(case, "q", n, k, low, low + most)
    sign = _random(case, "scale", n, k // BLOCK, 0, 1)
    mins = (half | (1 - sign) << 15).astype(np.uint16)  # a weight is q - half, or its opposite
    x = _signs(case, "x", m, k) * (2**47 - 1 - _random(case, "x/less", m, k, 0, 3))
    return Parts((TINY | sign << 15).astype(np.uint16), mins, q, x)


def _edge(case: Case, m: int, n: int, k: int) -> Parts:
    """Sums of 2^62 - 1 - (row mod 4), the sign by token: next to the contract, so an accumulator with too few bits wraps."""
    block = BLOCKS[case.kernel]
    scales, mins = _alike(n, k, TINY), _alike(n, k, 8 | NEGATIVE if block.has_min else 0)
    q, x = _quants(case, n, k), np.zeros((m, k), np.int64)
    q[:, -1] = -1 - np.arange(n) % 4 + (8 if block.has_min else 0)  # a weight of -1 .. -4
    x[:, -1] = 1
    scales[:, 0], mins[:, 0] = EIGHT, 0
    q[:, :9], x[:, :8] = 4, 2**30  # weights of 2^29, eight terms of 2^59
    x[:, 8] = -8 if "bias" in dict(case.extra) else 0  # makes room for it
    return Parts(scales, mins, q, x * _alternating(m))


def _odd_steps(case: Case, m: int, n: int, k: int) -> Parts:
    """Large sums plus odd steps to one below or above a tie, both signs: an accumulator with a float's mantissa rounds."""
    scales, mins = _alike(n, k, ONE), _alike(n, k, 0)
    q = _random(case, "q", n, k, 1, 7)
    x = _random(case, "x", m, k, 1, 2 ** (61 - 27 - (k - 1).bit_length()))
    scales[:, -1] = TINY
    q[:, -BLOCK:] = 1
    q[:, -1] = np.arange(n) % 2
    x[:, -BLOCK:] = 2 * _random(case, "x/steps", m, BLOCK, 2**16, 2**17) + 1
    x[:, -1] = 2
    x[:, -2] = 2**23 - 1 - x[:, -BLOCK:-2].sum(axis=1)
    return Parts(scales, mins, q, x * _alternating(m))


def _cancel(case: Case, m: int, n: int, k: int) -> Parts:
    """Blocks whose scale and min cancel (4096 * 8 - 32768) on |x| = 2^47 - 1: parts of a sum that leave 64 bits apart."""
    scales, mins = _alike(n, k, 0x6C00), _alike(n, k, 0xF800)
    q = np.full((n, k), 8, np.int64)
    x = _signs(case, "x", m, k) * (2**47 - 1)
    scales[:, -1], mins[:, -1] = TINY, 0
    q[:, -BLOCK:] = _quants(case, n, BLOCK)
    x[:, -BLOCK:] = _random(case, "x/last", m, BLOCK, -(2**31), 2**31)
    return Parts(scales, mins, q, x)


COMMON: dict[str, Callable[[Case, int, int, int], Parts]] = {
    "full": _full,
    "zeros": _zeros,
    "ties": _ties,
    "halves": _halves,
    "range": _range,
    "edge": _edge,
    "odd_steps": _odd_steps,
}


def distributions(kernel: str) -> dict[str, Callable[[Case, int, int, int], Parts]]:
    """The distributions of a kernel by name."""
    return COMMON | ({"cancel": _cancel} if BLOCKS[kernel].has_min else {})


def parts(case: Case) -> Parts:
    """The generated tensors before packing. Without a min in its blocks, `mins` means nothing."""
    return distributions(case.kernel)[case.dist](case, *(case.dims[d] for d in "mnk"))


def pack(kernel: str, given: Parts) -> Bytes:
    """Rows as released bytes, [N, bytes a row]: scale, min where there is one, then bytes or pairs of nibbles."""
    n, blocks = given.scales.shape
    block = BLOCKS[kernel]
    quants = given.quants.reshape(n, blocks, BLOCK)
    stored: Bytes
    if block.low == -128:
        stored = quants.astype(np.int8).view(np.uint8)
    else:
        nibbles = quants - block.low
        stored = (nibbles[..., :16] + 16 * nibbles[..., 16:]).astype(np.uint8)
    halves = [given.scales, given.mins] if block.has_min else [given.scales]
    head = np.stack(halves, axis=-1).astype("<u2").view(np.uint8)
    return np.concatenate([head, stored], axis=-1).reshape(n, -1)


def bias(case: Case) -> Int64:
    """Q40 [N]: 33 bits of both signs with `bias=1`, zeros without."""
    n = case.dims["n"]
    if "bias" not in dict(case.extra):
        return np.zeros(n, np.int64)
    return random_integers(f"{case.id}/bias", n, 1 - 2**32, 2**32 - 1)


def hidden_row() -> Int64:
    """The final hidden row (Q16, [1,576]) of position 3 of the dyadic-q16 test vector."""
    row = json.loads(data_file("smollm2-hidden-row.json").read_text("utf-8"))["row"]
    return np.array([row], np.int64)


def linear_inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`w` u8 [N, bytes of K weights], `x` i64 [M,K], `bias` i64 [N]; weights of `dist=real` are a model's released bytes.

    The model's output head meets its own hidden row, its other tensors generated activations of 32 bits.
    """
    if case.dist != "real":
        given = parts(case)
        return {"w": pack(case.kernel, given), "x": given.x, "bias": bias(case)}
    extra = dict(case.extra)
    w = tensor_bytes(extra["model"], extra["tensor"])
    m, k = case.dims["m"], case.dims["k"]
    x = hidden_row() if extra["tensor"] == "token_embd.weight" else _random(case, "x", m, k, 1 - 2**31, 2**31 - 1)
    return {"w": w, "x": x, "bias": bias(case)}
