"""The other `gemm_*` kernels: reference and second against a schoolbook product; data at its edges."""

import random
import struct

import numpy as np
import pytest

from cpu_ref import gemm as reference
from cpu_ref.second import gemm as second
from harness.cases import Case
from harness.families import gemm_inputs

# kernel: struct code of A and B, of C, bits of A and B, of C, reference, second
FAMILY = {
    "gemm_i32": ("i", "i", 32, 32, reference.gemm_i32, second.gemm_i32),
    "gemm_i32_i64": ("i", "q", 32, 64, reference.gemm_i32_i64, second.gemm_i32_i64),
    "gemm_i8": ("b", "i", 8, 32, reference.gemm_i8, second.gemm_i32),
}


def of(kernel: str, dist: str, shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """The inputs of a case."""
    return gemm_inputs.gemm_inputs(Case(kernel, tuple(zip("mnk", shape, strict=True)), dist, 0))


def sums(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """The true integers."""
    return tensors["a"].astype(object) @ tensors["b"].astype(object)


@pytest.mark.parametrize("kernel", FAMILY)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (2, 3, 300)])
def test_reference_and_second_equal_the_schoolbook_product(kernel: str, m: int, n: int, k: int) -> None:
    """Random operands with many at the rails; values and the count of those that leave the type."""
    code, out, bits, wide, first, other = FAMILY[kernel]
    rng, low, high = random.Random(m * n * k), -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    a, b = ([rng.choice([rng.randint(low, high), low, high, 1]) for _ in range(c)] for c in (m * k, k * n))
    true = [sum(a[i * k + t] * b[t * n + j] for t in range(k)) for i in range(m) for j in range(n)]
    half = 1 << (wide - 1)
    values = [(v + half) % (2 * half) - half for v in true]
    leaves = sum(v != r for v, r in zip(true, values, strict=True))
    one = first(struct.pack(f"<{m * k}{code}", *a), struct.pack(f"<{k * n}{code}", *b), m, n, k)
    assert (list(struct.unpack(f"<{m * n}{out}", one.c)), one.leaves_type) == (values, leaves)
    c, count = other(np.array(a, code).reshape(m, k), np.array(b, code).reshape(k, n))
    assert (c.reshape(-1).tolist(), count) == (values, leaves)


@pytest.mark.parametrize(("sign", "last", "leaves"), [(1, -1, 0), (1, 0, 1), (-1, 0, 0), (-1, -1, 1), (0, 5, 0)])
def test_a_sum_is_counted_exactly_when_it_is_no_int64(sign: int, last: int, leaves: int) -> None:
    """Four terms of 2^61 and a last one: one step inside the edge of int64, at it, one outside."""
    a, b = [sign * -(2**30)] * 4 + [1], [-(2**31)] * 4 + [last]
    one = reference.gemm_i32_i64(struct.pack("<5i", *a), struct.pack("<5i", *b), 1, 1, 5)
    c, count = second.gemm_i32_i64(np.array([a], "<i4"), np.array([b], "<i4").T)
    value = (sign * 2**63 + last + 2**63) % 2**64 - 2**63
    assert one.leaves_type == count == leaves
    assert struct.unpack("<q", one.c)[0] == c[0, 0] == value


@pytest.mark.parametrize(
    ("kernel", "k", "edge"), [("gemm_i32", 100, 31), ("gemm_i32_i64", 100, 63), ("gemm_i8", gemm_inputs.EDGE_I8, 31)]
)
def test_edge_sums_reach_every_value_around_both_edges_of_the_sum_s_type(kernel: str, k: int, edge: int) -> None:
    """From two below to one above, and the same of the other sign."""
    high = {2**edge - 2, 2**edge - 1, 2**edge, 2**edge + 1}
    assert set(sums(of(kernel, "edge", (2, 4, k))).ravel()) == high | {-v for v in high}


@pytest.mark.parametrize(
    ("kernel", "k", "mantissa", "type_bits"),
    [("gemm_i32", 100, 24, 31), ("gemm_i32", 37, 24, 31), ("gemm_i32_i64", 100, 53, 63), ("gemm_i8", 1501, 24, 31)],
)
def test_odd_steps_pass_the_mantissa_and_stay_in_the_type(kernel: str, k: int, mantissa: int, type_bits: int) -> None:
    """Both signs; every product odd."""
    tensors = of(kernel, "odd_steps", (4, 5, k))
    assert (tensors["a"] % 2).all() and (tensors["b"] % 2).all()
    magnitudes = np.abs(sums(tensors))
    assert (magnitudes > 2**mantissa).all() and (magnitudes < 2**type_bits).all()
    assert {int(v > 0) for v in sums(tensors).ravel()} == {0, 1}
