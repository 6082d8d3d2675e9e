"""Faults planted into the layer operations of dyadic-q16: which distributions of `quick` catch each, and which miss it."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from cpu_ref import dyadic_q16 as ops
from cpu_ref import weights
from cpu_ref.contracts import Place
from cpu_ref.errors import RangeContract
from cpu_ref.layers import LAYERS
from cpu_ref.rounding import round_away
from harness import presets
from harness.cases import Case
from harness.kernels import base

Patch = dict[str, object]
"""Name in `cpu_ref.dyadic_q16` -> what stands there instead."""


def output(case: Case) -> list[int] | None:
    """The reference's output of a case; None where a fault breaks a contract."""
    arrays = base(case.kernel).generate(case)
    values = {n: a.tobytes() if a.dtype.itemsize == 1 else a.reshape(-1).tolist() for n, a in arrays.items()}
    try:
        return LAYERS[case.kernel].compute(case.dims, values, **base(case.kernel).chosen(case))
    except RangeContract:
        return None


@cache
def right_outputs(kernel: str) -> dict[Case, list[int] | None]:
    """Of the kernel's cases in `quick`, before anything is planted."""
    return {case: output(case) for case in presets.cases("quick") if case.kernel == kernel}


def half_even(x: int, k: int) -> int:
    """Ties to even."""
    up = (x + (1 << (k - 1))) >> k
    return up - (x % (1 << k) == 1 << (k - 1) and up % 2)


def saturating_dots(place: Place, x: list[int], rows: Sequence[Sequence[int]]) -> list[int]:
    """Sums that saturate at 64 bits after each term."""
    sums = []
    for row in rows:
        acc = 0
        for a, b in zip(x, row, strict=True):
            acc = max(-(2**63), min(2**63 - 1, acc + a * b))
        sums.append(acc)
    return sums


def dots_of(bits: int) -> Callable[[Place, list[int], Sequence[Sequence[int]]], list[int]]:
    """Sums that keep so many bits, two's complement."""

    def dots(place: Place, x: list[int], rows: Sequence[Sequence[int]]) -> list[int]:
        half = 1 << (bits - 1)
        return [(sum(map(int.__mul__, x, row)) + half) % (2 * half) - half for row in rows]

    return dots


def words_norm(bits: int) -> Callable[[list[int], list[int], int], list[int]]:
    """RMSNorm whose sum of squares keeps so many bits."""
    right = ops.rms_norm

    def norm(x: list[int], gain: list[int], eps32: int) -> list[int]:
        ms = (sum(v * v for v in x) % (1 << bits)) // len(x) + eps32
        true = sum(v * v for v in x) // len(x) + eps32
        return right(x, gain, eps32 if ms == true else eps32 + 1 + (true >> 8))

    return norm


def root_above(m: int) -> int:
    """The first integer above the root."""
    return math.isqrt(m) + 1


def sigmoid_of_the_last_entry(x: int) -> int:
    """Beyond the table the last entry stands."""
    s = RIGHT_SIGMOID(max(1 - ops.SILU_END, min(ops.SILU_END - 1, x)))
    return s


RIGHT_SIGMOID = ops.sigmoid


def steps_of_16_bits(z: list[int]) -> list[int]:
    """The steps below the maximum are kept in 16 bits."""
    top = max(z)
    return RIGHT_SOFTMAX([top - (top - v) % (1 << 24) for v in z])


RIGHT_SOFTMAX = ops.softmax


def last_of_equals(row: list[int]) -> int:
    """The largest, the last place among equals."""
    return len(row) - 1 - row[::-1].index(max(row))


def signed_low_words(row: list[int]) -> int:
    """Low words are compared as signed."""
    return max(range(len(row)), key=lambda i: (row[i] >> 32, (row[i] + 2**31) % 2**32 - 2**31, -i))


def lost_carry(x: list[int], y: list[int]) -> list[int]:
    """Low words that add to exactly 2^32 carry nothing."""
    return [a + b - (a % 2**32 and (a % 2**32 + b % 2**32 == 2**32) and 2**32) for a, b in zip(x, y, strict=True)]


FAULTS: dict[tuple[str, str], tuple[Patch, set[str]]] = {
    ("embedding_q8_0", "ties away from zero"): ({"round_shift": round_away}, {"full", "ties"}),
    ("embedding_q4_1", "ties away from zero"): ({"round_shift": round_away}, {"full", "ties"}),
    ("residual", "a carry lost at 2^32"): ({"residual": lambda place, x, y: lost_carry(x, y)}, {"carries"}),
    ("gate", "ties away from zero"): ({"round_shift": round_away}, {"ties"}),
    ("gate", "the last entry beyond the table"): ({"sigmoid": sigmoid_of_the_last_entry}, {"table", "edge"}),
    ("rmsnorm", "ties away from zero"): ({"round_shift": round_away}, {"ties"}),
    ("rmsnorm", "ties to even"): ({"round_shift": half_even}, {"ties"}),
    ("rmsnorm", "sum of squares in 64 bits"): ({"rms_norm": words_norm(64)}, {"magnitudes", "ties", "edge"}),
    ("rmsnorm", "the root above"): ({"isqrt": root_above}, {"magnitudes", "ties", "least", "edge"}),
    ("rope", "ties away from zero"): ({"round_shift": round_away}, {"ties"}),
    ("scores", "sums that saturate"): ({"_dots": saturating_dots}, {"cancel"}),
    ("scores", "sums of 52 bits"): ({"_dots": dots_of(51)}, {"edge"}),
    ("softmax", "weights below 2^7 dropped"): ({"SOFTMAX_END": 4096}, {"cut"}),
    ("softmax", "steps of 16 bits"): ({"softmax": steps_of_16_bits}, {"cut", "far"}),
    ("softmax", "ties to even"): ({"round_shift": half_even}, {"full", "equal"}),
    ("mix", "ties away from zero"): ({"round_shift": round_away}, {"ties"}),
    ("mix", "sums that saturate"): ({"_dots": saturating_dots}, {"cancel"}),
    ("mix", "sums of 62 bits"): ({"_dots": dots_of(62)}, {"edge"}),
    ("argmax", "the last of equals"): ({"greedy": last_of_equals}, {"equals", "words", "edge"}),
    ("argmax", "low words signed"): ({"greedy": signed_low_words}, {"full", "words"}),
}
"""Kernel and fault -> the fault, and the distributions that catch it; all others of the kernel miss it."""


@pytest.mark.parametrize(("kernel", "fault"), FAULTS, ids=lambda v: str(v))
def test_a_planted_fault_is_caught_where_it_is_said_to_be(
    kernel: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the cases of `quick`."""
    patch, where = FAULTS[kernel, fault]
    right = right_outputs(kernel)
    for name, value in patch.items():
        monkeypatch.setattr(ops, name, value)
    assert {case.dist for case, expected in right.items() if output(case) != expected} == where


def test_flushed_subnormals_show_in_an_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ties` has subnormal scales only."""
    cases = [c for c in presets.cases("quick") if c.kernel == "embedding_q8_0" and c.dist == "ties"]
    right = [output(case) for case in cases]
    flushed = [v if bits >> 10 & 31 else 0 for bits, v in enumerate(weights.halves_q24())]
    monkeypatch.setattr(weights, "halves_q24", lambda: flushed)
    assert all(output(case) != expected for case, expected in zip(cases, right, strict=True))
