"""The generator is what its documentation says, and generated data stays inside the contracts."""

import hashlib

import numpy as np
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


def test_small_linear_data_is_full_of_exact_ties_of_both_signs() -> None:
    """Half of the sums are odd multiples of 2^23, the tie of a shift by 24."""
    case = next(c for c in presets.cases("quick") if c.kernel == "linear_q8_0" and c.dist == "small")
    m, n, k = (case.dims[d] for d in "mnk")
    scales, quants, x = linear_inputs.DISTRIBUTIONS["small"](case, m, n, k)
    assert set(scales.ravel().tolist()) == {0x0400}
    sums = (quants.astype(np.int64) * 2**10) @ x.T
    ties = sums[sums % 2**24 == 2**23]
    assert (ties > 0).sum() > 10 and (ties < 0).sum() > 10


@pytest.mark.parametrize("k", [32, 64, 576, 1536, 65536])
def test_generated_activations_keep_every_sum_below_2_to_62(k: int) -> None:
    """The bound of `activation_bits` is a bound: K terms of the largest weight and activation stay inside."""
    assert k * (128 * (2**24 - 1)) * (2 ** linear_inputs.activation_bits(k) - 1) < 2**62
