"""Data distributions of the `linear_*` kernels: block bytes W and Q16 activations X [M,K] as int64.

Generated data stays inside the contracts of dyadic-q16: |x| < 2^47, each term and sum below 2^62.
"""

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.folders import data_file
from harness.inputs import random_integers
from harness.models import tensor_bytes

BLOCK = 32

Scales = npt.NDArray[np.uint16]
Quants = npt.NDArray[np.int8]
Activations = npt.NDArray[np.int64]
Parts = tuple[Scales, Quants, Activations]

SCALE_BITS = 24
"""Generated scales are below 1, that is 2^24 in Q24: fp16 exponent fields 0 to 14, subnormals included."""


def activation_bits(k: int) -> int:
    """Bits b such that K terms of |q| <= 2^7, |s| < 2^24, |x| < 2^b stay below 2^62."""
    return min(47, 62 - 7 - SCALE_BITS - (k - 1).bit_length())


def _scales(case: Case, n: int, blocks: int) -> Scales:
    magnitude = random_integers(f"{case.id}/scale", n * blocks, 0, (15 << 10) - 1)
    sign = random_integers(f"{case.id}/sign", n * blocks, 0, 1)
    return (magnitude | sign << 15).astype(np.uint16).reshape(n, blocks)


def _quants(case: Case, n: int, k: int, low: int = -128, high: int = 127) -> Quants:
    return random_integers(f"{case.id}/q", n * k, low, high).astype(np.int8).reshape(n, k)


def _activations(case: Case, m: int, k: int) -> Activations:
    top = 2 ** activation_bits(k) - 1
    return random_integers(f"{case.id}/x", m * k, -top, top).reshape(m, k)


def _full(case: Case, m: int, n: int, k: int) -> Parts:
    """Every fp16 scale below 1 of both signs, every int8, activations up to the bound for K."""
    return _scales(case, n, k // BLOCK), _quants(case, n, k), _activations(case, m, k)


def _small(case: Case, m: int, n: int, k: int) -> Parts:
    """Scale 2^-14, q and x / 2^13 in -8..7: sums are multiples of 2^23, so half of all outputs are exact rounding ties."""
    x = random_integers(f"{case.id}/x", m * k, -8, 7).reshape(m, k) * 2**13
    return np.full((n, k // BLOCK), 0x0400, np.uint16), _quants(case, n, k, -8, 7), x


def _zeros(case: Case, m: int, n: int, k: int) -> Parts:
    """Scales +0 and -0: a sign of zero that leaks, stale accumulators."""
    sign = random_integers(f"{case.id}/sign", n * (k // BLOCK), 0, 1).reshape(n, -1)
    return (sign << 15).astype(np.uint16), _quants(case, n, k), _activations(case, m, k)


def _one_hot(case: Case, m: int, n: int, k: int) -> Parts:
    """One activation of 1.0 (2^16) in each row: the output is one weight, rounded by 8 bits; wrong indices show."""
    x = np.zeros((m, k), np.int64)
    x[np.arange(m), random_integers(f"{case.id}/x", m, 0, k - 1)] = 2**16
    return _scales(case, n, k // BLOCK), _quants(case, n, k), x


def _identity(case: Case, m: int, n: int, k: int) -> Parts:
    """Row t has 2^24 at k = t mod K: the output is the exact Q24 weight, so scale decoding is seen bare."""
    x = (np.arange(m)[:, None] % k == np.arange(k)[None, :]).astype(np.int64) * 2**24
    return _scales(case, n, k // BLOCK), _quants(case, n, k), x


def _rails(case: Case, m: int, n: int, k: int, q: Quants, sign: Activations) -> Parts:
    scales = np.full((n, k // BLOCK), (15 << 10) - 1, np.uint16)
    return scales, q, sign * (2 ** activation_bits(k) - 1)


def _rails_min(case: Case, m: int, n: int, k: int) -> Parts:
    """q = -128, largest scale below 1, largest negative x: the largest positive sums."""
    return _rails(case, m, n, k, np.full((n, k), -128, np.int8), np.full((m, k), -1, np.int64))


def _rails_max(case: Case, m: int, n: int, k: int) -> Parts:
    """q = -128 against the largest positive x: the largest negative sums."""
    return _rails(case, m, n, k, np.full((n, k), -128, np.int8), np.ones((m, k), np.int64))


def _rails_alternating(case: Case, m: int, n: int, k: int) -> Parts:
    """q = -128, 127 in turn against x of alternating sign: borrow and carry through both limbs at each step."""
    q = np.where(np.arange(n * k) % 2, 127, -128).astype(np.int8).reshape(n, k)
    sign = np.where(np.arange(m * k) % 3 % 2, -1, 1).astype(np.int64).reshape(m, k)
    return _rails(case, m, n, k, q, sign)


DISTRIBUTIONS: dict[str, Callable[[Case, int, int, int], Parts]] = {
    "full": _full,
    "small": _small,
    "zeros": _zeros,
    "one_hot": _one_hot,
    "identity": _identity,
    "rails_min": _rails_min,
    "rails_max": _rails_max,
    "rails_alternating": _rails_alternating,
}


def pack_q8_0(scales: Scales, quants: Quants) -> npt.NDArray[np.uint8]:
    """Q8_0 rows as bytes [N, K/32*34]: each block an fp16 scale (little-endian bits) and 32 int8."""
    n, blocks = scales.shape
    rows = np.empty((n, blocks, 2 + BLOCK), np.uint8)
    rows[:, :, :2] = scales.astype("<u2").view(np.uint8).reshape(n, blocks, 2)
    rows[:, :, 2:] = quants.view(np.uint8).reshape(n, blocks, BLOCK)
    return rows.reshape(n, -1)


def hidden_row() -> Activations:
    """The final hidden row (Q16, [1,576]) of position 3 of the dyadic-q16 test vector."""
    row = json.loads(data_file("smollm2-hidden-row.json").read_text("utf-8"))["row"]
    return np.array([row], np.int64)


def linear_q8_0_inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`w` u8 [N, K/32*34] and `x` i64 [M,K]; weights of `dist=real` are the model's released bytes."""
    m, n, k = (case.dims[d] for d in "mnk")
    if case.dist == "real":
        extra = dict(case.extra)
        return {"w": tensor_bytes(extra["model"], extra["tensor"]), "x": hidden_row()}
    scales, quants, x = DISTRIBUTIONS[case.dist](case, m, n, k)
    return {"w": pack_q8_0(scales, quants), "x": x}
