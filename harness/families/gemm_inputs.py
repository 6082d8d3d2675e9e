"""Data distributions of the `gemm_*` kernels: A [M,K] and B [K,N]. Each docstring says what it can catch.

`docs/data.md` names the fault that each alone catches.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.inputs import random_integers

Matrix = npt.NDArray[Any]
Pair = tuple[Matrix, Matrix]

LOW, HIGH = -(2**31), 2**31 - 1

TYPES: Mapping[str, type[np.signedinteger[Any]]] = {"gemm_i32": np.int32, "gemm_i32_i64": np.int32, "gemm_i8": np.int8}
"""The element type of A and B of each integer kernel."""


def _rails(case: Case) -> tuple[int, int]:
    """The least and the largest element."""
    info = np.iinfo(TYPES[case.kernel])
    return int(info.min), int(info.max)


def _matrix(case: Case, name: str, rows: int, columns: int, low: int | None = None, high: int | None = None) -> Matrix:
    least, largest = _rails(case)
    low, high = least if low is None else low, largest if high is None else high
    values = random_integers(f"{case.id}/{name}", rows * columns, low, high)
    return values.astype(TYPES[case.kernel]).reshape(rows, columns)


def _odd(case: Case, name: str, rows: int, columns: int, low: int, high: int) -> Matrix:
    """Odd integers in low..high, both odd."""
    return _matrix(case, name, rows, columns, low // 2, high // 2) * 2 + 1


def _full(case: Case, m: int, n: int, k: int) -> Pair:
    """Uniform over the type: every carry, wrap, index and byte order; a wrong term shows in nearly every output."""
    return _matrix(case, "a", m, k), _matrix(case, "b", k, n)


def _zeros(case: Case, m: int, n: int, k: int) -> Pair:
    """All zero: rows that are skipped as empty, and with them the store; stale accumulators."""
    kind = TYPES[case.kernel]
    return np.zeros((m, k), kind), np.zeros((k, n), kind)


def _rails_min(case: Case, m: int, n: int, k: int) -> Pair:
    """All the least value: the largest products, the only ones of which 2^n leave the bits that hold 2^n others."""
    kind, low = TYPES[case.kernel], _rails(case)[0]
    return np.full((m, k), low, kind), np.full((k, n), low, kind)


def _edge(case: Case, m: int, n: int, k: int) -> Pair:
    """True sums from 2 below to 1 above the edges of the sum's type, both signs: saturation, the least value itself."""
    return {"gemm_i32": _edge_i32, "gemm_i32_i64": _edge_i64, "gemm_i8": _edge_i8}[case.kernel](case, m, n, k)


def _edge_i32(case: Case, m: int, n: int, k: int) -> Pair:
    """Rows of A are +1 and -1 in turn; column j of B sums to 2^31 - 2 + j mod 4."""
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


def _edge_i64(case: Case, m: int, n: int, k: int) -> Pair:
    """Four terms of 2^61, one of -2 + j mod 4, the rest random and without a sum; all of one sign by row. K >= 7 or cut."""
    terms = max(k, 7)
    a, b = np.ones((m, terms), np.int32), np.empty((terms, n), np.int64)
    a[:, :4] = -(2**30)
    a[1::2] *= -1
    b[:4] = -(2**31)
    b[4] = np.arange(n) % 4 - 2
    span = 2**30 // terms
    b[5:-1] = random_integers(f"{case.id}/b", (terms - 6) * n, -span, span).reshape(-1, n)
    b[-1] = -b[5:-1].sum(axis=0)
    return a[:, :k], b[:k].astype(np.int32)


EDGE_I8 = 2**18 + 1
"""The K of int8 whose sums reach the edge of int32: 2^18 terms of 2^13, and one."""


def _edge_i8(case: Case, m: int, n: int, k: int) -> Pair:
    """All terms 64 * 128 but the last, -2 + j mod 4; all of one sign by row. At K = EDGE_I8 that is the edge."""
    a, b = np.full((m, k), -64, np.int8), np.full((k, n), -128, np.int8)
    a[:, -1] = 1
    a[1::2] *= -1
    b[-1] = np.arange(n) % 4 - 2
    return a, b


def _odd_steps(case: Case, m: int, n: int, k: int) -> Pair:
    """Odd products of one sign by row whose sums pass 2^24 (2^53 of 64-bit sums) and stay in: a float accumulator rounds."""
    sign = np.where(np.arange(m) % 2, -1, 1)[:, None]
    if case.kernel == "gemm_i8":
        return (_odd(case, "a", m, k, 101, 127) * sign).astype(np.int8), _odd(case, "b", k, n, 101, 127)
    if case.kernel == "gemm_i32":
        top = 2**26 // k | 1
        return (_odd(case, "a", m, k, 1, 15) * sign).astype(np.int32), _odd(case, "b", k, n, top // 2 | 1, top)
    top = HIGH // k | 1
    return (_odd(case, "a", m, k, 2**29 + 1, 2**30 - 1) * sign).astype(np.int32), _odd(
        case, "b", k, n, top // 2 | 1, top
    )


INTEGERS: dict[str, Callable[[Case, int, int, int], Pair]] = {
    "full": _full,
    "zeros": _zeros,
    "rails_min": _rails_min,
    "edge": _edge,
    "odd_steps": _odd_steps,
}


PACKED_WORDS = (0x80808080, 0x7F7F7F7F, 0xFF01FF01, 0x01010101, 0xFF00807F, 0x7F80FF01, 0x000000FF, 0xFFFFFFFF)


def _packed_words(case: Case, m: int, n: int, k: int) -> Pair:
    """Each row and each column repeats one of 8 words, at K = 4 a dot product each: wrong signs, sums of 16 bits, saturation."""
    words = np.array(PACKED_WORDS, "<u4").view(np.int8).reshape(-1, 4)
    lines = np.tile(words[np.arange(max(m, n)) % len(words)], (1, -(-k // 4)))
    return lines[:m, :k].copy(), lines[:n, :k].T.copy()


def _magnitudes(case: Case, m: int, n: int, k: int) -> Pair:
    """Float32 of 24 random bits times 2^-12 to 2^12: sums of mixed magnitudes, which round differently in each order."""
    return _floats(case, "a", m, k), _floats(case, "b", k, n)


def _floats(case: Case, name: str, rows: int, columns: int) -> Matrix:
    bits = random_integers(f"{case.id}/{name}", rows * columns, -(2**24), 2**24)
    power = random_integers(f"{case.id}/{name}/power", rows * columns, -12, 12)
    return np.ldexp(bits.astype(np.float32), power - 24).astype(np.float32).reshape(rows, columns)


FLOATS: dict[str, Callable[[Case, int, int, int], Pair]] = {"magnitudes": _magnitudes}


def distributions(kernel: str) -> dict[str, Callable[[Case, int, int, int], Pair]]:
    """The distributions of a kernel by name."""
    if kernel == "gemm_i8":
        return {**INTEGERS, "packed_words": _packed_words}
    return INTEGERS if kernel in TYPES else FLOATS


def gemm_inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`a` [M,K] and `b` [K,N] in the kernel's element type."""
    m, n, k = (case.dims[d] for d in "mnk")
    a, b = distributions(case.kernel)[case.dist](case, m, n, k)
    return {"a": a, "b": b}
