"""The generator is what its documentation says, and generated data stays inside the contracts."""

import hashlib

import numpy as np
import planted_faults as faults
import pytest

from harness import presets
from harness.cases import Case
from harness.families import gemm_inputs, linear_inputs
from harness.inputs import random_integers, random_words
from harness.kernels import base, dimensions

MASK = 2**64 - 1


def documented_word(name: str, i: int) -> int:
    """Word i of a stream, written from the module's docstring with Python ints."""
    key = int.from_bytes(hashlib.sha256(b"samebits/1/" + name.encode()).digest()[:8], "little")
    z = (key + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def test_the_generator_is_the_documented_function_of_its_counter() -> None:
    """NumPy's arithmetic and plain Python ints give the same words."""
    assert [int(w) for w in random_words("some/stream", 50)] == [documented_word("some/stream", i) for i in range(50)]


def test_ranges_are_inclusive_and_reached() -> None:
    """Both ends of a small range come up, and nothing outside."""
    values = random_integers("range", 2000, -3, 4)
    assert sorted(set(values.tolist())) == list(range(-3, 5))


def test_full_range_int32_reaches_both_signs_and_high_bits() -> None:
    """`full` draws from all of int32."""
    a = gemm_inputs.gemm_inputs(presets.SELF_TEST["gemm_i32"])["a"]
    assert a.min() < -(2**30) and a.max() > 2**30 and a.dtype == np.int32


@pytest.mark.parametrize("case", presets.cases("tiny") + presets.cases("quick"), ids=lambda c: c.id)
def test_inputs_are_a_pure_function_of_the_id_with_the_catalogue_shapes(case: Case) -> None:
    """Twice the same bytes, of the size that the kernel's plan has."""
    kernel = base(case.kernel)
    once, twice = kernel.generate(case), kernel.generate(case)
    for tensor in kernel.inputs:
        assert once[tensor.name].shape == dimensions(tensor, case)
        assert once[tensor.name].tobytes() == twice[tensor.name].tobytes()


def test_edge_sums_reach_every_value_around_both_edges_of_int32() -> None:
    """True sums lie on -2^31-1 .. -2^31+2 and 2^31-2 .. 2^31+1."""
    case = next(c for c in presets.cases("quick") if c.dist == "edge")
    tensors = gemm_inputs.gemm_inputs(case)
    sums = tensors["a"].astype(object) @ tensors["b"].astype(object)
    high = {2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1}
    assert set(sums.ravel()) == high | {-v for v in high}


LINEAR = [c for c in presets.cases("full") if c.kernel in linear_inputs.BLOCKS and c.dist != "real"]


def exact_sums(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Terms' largest magnitude by output, and the sums with their bias, as Python ints [N,M]."""
    given = linear_inputs.parts(case)
    s, m = (np.vectorize(faults.half, otypes=[object])(v).repeat(32, axis=1) for v in (given.scales, given.mins))
    w = s * given.quants + (m if linear_inputs.BLOCKS[case.kernel].has_min else 0)
    x = given.x.astype(object)
    largest = np.array([np.abs(w * token).max() for token in x])
    return largest, w @ x.T + linear_inputs.bias(case).astype(object)[:, None]


@pytest.mark.parametrize("case", [c for c in LINEAR if c.dims["n"] <= 65], ids=lambda c: c.id)
def test_generated_linear_data_keeps_the_contracts(case: Case) -> None:
    """|x| < 2^47, every term, sum and bias below 2^62, by Python ints."""
    largest, sums = exact_sums(case)
    assert np.abs(linear_inputs.parts(case).x).max() < 2**47
    assert largest.max() < 2**62 and np.abs(sums).max() < 2**62


def linear_case(kernel: str, dist: str) -> Case:
    """That distribution in the shape of `quick`."""
    return next(c for c in LINEAR if (c.kernel, c.dist, c.dims["k"]) == (kernel, dist, 96) and not c.extra)


@pytest.mark.parametrize("kernel", linear_inputs.BLOCKS)
def test_distributions_of_a_linear_are_what_they_say(kernel: str) -> None:
    """Ties of both signs; sums at the contract's edge; activations at theirs; sums beside ties past 2^53; zero weights."""
    ties = [v for v in exact_sums(linear_case(kernel, "ties"))[1].flat if v % 2**24 == 2**23]
    assert sum(v > 0 for v in ties) > 10 and sum(v < 0 for v in ties) > 10
    edge = set(exact_sums(linear_case(kernel, "edge"))[1].flat)
    assert edge == {sign * (2**62 - j) for sign in (1, -1) for j in range(1, 5)}
    x = linear_inputs.parts(linear_case(kernel, "range")).x
    assert {x.max(), -x.min()} == {2**47 - 1}
    steps = exact_sums(linear_case(kernel, "odd_steps"))[1]
    assert {v % 2**24 for v in np.abs(steps).flat} == {2**23 - 1, 2**23 + 1} and np.abs(steps).min() > 2**53
    halves = set(linear_inputs.parts(linear_case(kernel, "halves")).scales.ravel().tolist())
    assert halves == {
        0,
        0x8000,
        1,
        0x8001,
        0x3FF,
        0x83FF,
        0x400,
        0x8400,
        0x7BFF,
        0xFBFF,
        0x7800,
        0xF800,
        0x3C00,
        0xBC00,
    }
    if linear_inputs.BLOCKS[kernel].has_min:
        largest, sums = exact_sums(linear_case(kernel, "cancel"))
        assert largest.max() < 2**36 and np.abs(sums).max() < 2**41


@pytest.mark.parametrize("block", linear_inputs.BLOCKS.values(), ids=str)
@pytest.mark.parametrize("k", [32, 64, 576, 1536, 65536])
def test_generated_activations_keep_every_sum_and_bias_below_2_to_62(block: linear_inputs.Block, k: int) -> None:
    """The bound of `activation_bits` is a bound: K terms of the largest weight and activation, and the bias."""
    weight = max(-block.low, block.high + block.has_min) * (2**24 - 2**13)
    assert k * weight * (2 ** linear_inputs.activation_bits(block, k) - 1) + 2**32 - 1 < 2**62
