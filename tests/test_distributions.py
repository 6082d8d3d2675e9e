"""Each distribution is there for a fault that all others of its kernel miss."""

import numpy as np
import planted_faults as faults
import pytest

from harness import presets
from harness.cases import Case
from harness.families import gemm_inputs, linear_inputs

GEMM_KERNELS = list(gemm_inputs.TYPES)
LINEAR_KERNELS = list(linear_inputs.BLOCKS)

SHAPES = {
    "gemm_i32": (33, 65, 100),
    "gemm_i32_i64": (33, 65, 100),
    "gemm_i8": (17, 33, 1501),
    **dict.fromkeys(LINEAR_KERNELS, (3, 65, 96)),
}
"""In which shape the presets have all distributions of a kernel."""


def cases(kernel: str) -> dict[str, Case]:
    """The cases of `full` in that shape by distribution; `full` itself has other shapes there."""
    shape = tuple(zip("mnk", SHAPES[kernel], strict=True))
    found = {c.dist: c for c in presets.cases("full") if c.kernel == kernel and c.shape == shape and not c.extra}
    found["full"] = Case(kernel, shape, "full", 0)
    if kernel == "gemm_i8":  # these two have shapes of their own
        mine = [c for c in presets.cases("full") if c.kernel == kernel]
        found["edge"] = next(c for c in mine if c.dist == "edge")
        found["packed_words"] = next(c for c in mine if c.dist == "packed_words")
    return found


def caught(kernel: str, fault: object) -> set[str]:
    """The distributions under which the faulty copy gives another output."""
    hit = set()
    for dist, case in cases(kernel).items():
        if kernel in gemm_inputs.TYPES:
            tensors = gemm_inputs.gemm_inputs(case)
            a, b = tensors["a"], tensors["b"]
            differs = fault(kernel, a, b) != faults.right_gemm(kernel, a, b)  # type: ignore[operator]
        else:
            given, bias = linear_inputs.parts(case), linear_inputs.bias(case).tolist()
            differs = fault.run(kernel, given, bias) != faults.RIGHT.run(kernel, given, bias)  # type: ignore[attr-defined]
        if np.any(differs):
            hit.add(dist)
    return hit


@pytest.mark.parametrize("kernel", [*GEMM_KERNELS, *LINEAR_KERNELS])
def test_every_distribution_has_a_fault_of_its_own(kernel: str) -> None:
    """No distribution without a planted fault, in the presets or in the catalogue."""
    of = gemm_inputs.distributions(kernel) if kernel in GEMM_KERNELS else linear_inputs.distributions(kernel)
    table = faults.GEMM[kernel] if kernel in GEMM_KERNELS else faults.LINEAR
    assert set(of) == set(cases(kernel)) == {dist for dist in table if kernel == "linear_q4_1" or dist != "cancel"}


@pytest.mark.parametrize(("kernel", "dist"), [(k, d) for k in GEMM_KERNELS for d in faults.GEMM[k]])
def test_a_gemm_fault_is_caught_by_its_distribution_and_missed_by_the_others(kernel: str, dist: str) -> None:
    """At the shapes of the presets."""
    assert caught(kernel, faults.GEMM[kernel][dist]) == {dist}


@pytest.mark.parametrize(("kernel", "dist"), [(k, d) for k in LINEAR_KERNELS for d in linear_inputs.distributions(k)])
def test_a_linear_fault_is_caught_by_its_distribution_and_missed_by_the_others(kernel: str, dist: str) -> None:
    """At the shape of `quick`, in each block type."""
    assert caught(kernel, faults.LINEAR[dist]) == {dist}


def test_orders_of_bytes_and_nibbles_need_no_distribution_of_their_own() -> None:
    """`full` sees each, so a pattern that tells the order would catch nothing that is not caught already."""
    assert "full" in caught("gemm_i8", faults.bytes_reversed)
    for kernel in ("linear_q4_1", "linear_q4_0"):
        assert all("full" in caught(kernel, order) for order in faults.ORDERS)


def test_flushed_subnormals_and_ties_to_even_are_caught_too() -> None:
    """Faults that more than one distribution sees."""
    for kernel in LINEAR_KERNELS:
        flushed, even = faults.Linear(decode=faults.flushed), faults.Linear(round=faults.half_even)
        assert {"halves", "full"} <= caught(kernel, flushed) and caught(kernel, even) == {"ties"}
