"""Data distributions of the `gemm_*` kernels: A [M,K] and B [K,N] as int32. Each docstring says what it can catch."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.inputs import random_integers

Matrix = npt.NDArray[np.int32]
Pair = tuple[Matrix, Matrix]

LOW, HIGH = -(2**31), 2**31 - 1


def _matrix(case: Case, name: str, rows: int, columns: int, low: int = LOW, high: int = HIGH) -> Matrix:
    values = random_integers(f"{case.id}/{name}", rows * columns, low, high)
    return values.astype(np.int32).reshape(rows, columns)


def _full(case: Case, m: int, n: int, k: int) -> Pair:
    """Uniform over all of int32: every carry and wrap; a wrong or missing term shows in nearly every output."""
    return _matrix(case, "a", m, k), _matrix(case, "b", k, n)


def _small(case: Case, m: int, n: int, k: int) -> Pair:
    """-8..7: no wrap at all, so a result that is right here and wrong under `full` points at high bits."""
    return _matrix(case, "a", m, k, -8, 7), _matrix(case, "b", k, n, -8, 7)


def _zeros(case: Case, m: int, n: int, k: int) -> Pair:
    """All zero: stale accumulators, uninitialised workgroup memory, sentinels that survive."""
    return np.zeros((m, k), np.int32), np.zeros((k, n), np.int32)


def _one_hot(case: Case, m: int, n: int, k: int) -> Pair:
    """One 1 in each row of A: the output is a row of B, so a wrong index is seen as a wrong row."""
    a = np.zeros((m, k), np.int32)
    a[np.arange(m), random_integers(f"{case.id}/a", m, 0, k - 1)] = 1
    return a, _matrix(case, "b", k, n)


def _identity(case: Case, m: int, n: int, k: int) -> Pair:
    """A is the identity (cut or repeated to M x K): transposed or shifted reads."""
    a = (np.arange(m)[:, None] % k == np.arange(k)[None, :]).astype(np.int32)
    return a, _matrix(case, "b", k, n)


def _rails_min(case: Case, m: int, n: int, k: int) -> Pair:
    """All -2^31: (-2^31)^2 = 2^62 is 0 modulo 2^32; saturation or a wide float accumulator is not."""
    return np.full((m, k), LOW, np.int32), np.full((k, n), LOW, np.int32)


def _rails_max(case: Case, m: int, n: int, k: int) -> Pair:
    """All 2^31 - 1: each product is 1 modulo 2^32, so the output is K."""
    return np.full((m, k), HIGH, np.int32), np.full((k, n), HIGH, np.int32)


def _rails_alternating(case: Case, m: int, n: int, k: int) -> Pair:
    """-2^31 and 2^31 - 1 in turn by flat index: mixed signs at both ends."""
    a = np.where(np.arange(m * k) % 2, HIGH, LOW).astype(np.int32).reshape(m, k)
    b = np.where(np.arange(k * n) % 2, LOW, HIGH).astype(np.int32).reshape(k, n)
    return a, b


def _edge(case: Case, m: int, n: int, k: int) -> Pair:
    """True sums from 2 below to 1 above the edges of int32, both signs: saturation, and sums kept in too few bits.

    Rows of A are +1 and -1 in turn; column j of B sums to 2^31 - 2 + j mod 4.
    """
    a = np.ones((m, k), np.int32)
    a[1::2] = -1
    target = 2**31 - 2 + np.arange(n, dtype=np.int64) % 4
    if k == 1:
        return a, np.minimum(target, HIGH).astype(np.int32)[None, :]
    b = np.zeros((k, n), np.int64)
    span = min(2**20, 2**29 // k)
    b[1:-1] = random_integers(f"{case.id}/b", (k - 2) * n, -span, span).reshape(k - 2, n)
    b[0] = 2**30
    b[-1] = target - b[:-1].sum(axis=0)
    return a, b.astype(np.int32)


DISTRIBUTIONS: dict[str, Callable[[Case, int, int, int], Pair]] = {
    "full": _full,
    "small": _small,
    "zeros": _zeros,
    "one_hot": _one_hot,
    "identity": _identity,
    "rails_min": _rails_min,
    "rails_max": _rails_max,
    "rails_alternating": _rails_alternating,
    "edge": _edge,
}


def gemm_inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`a` [M,K] and `b` [K,N], int32."""
    m, n, k = (case.dims[d] for d in "mnk")
    a, b = DISTRIBUTIONS[case.dist](case, m, n, k)
    return {"a": a, "b": b}
