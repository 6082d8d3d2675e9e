"""The layer kernels' references: both against the document's formulas, contracts at their edge, data that plants what it says."""

import math
import os

import numpy as np
import pytest

from cpu_ref.errors import Refused
from cpu_ref.layers import LAYERS
from cpu_ref.second.errors import Refused as SecondRefused
from cpu_ref.second.layers import LAYERS as SECOND
from harness import models, presets
from harness.cases import Case, parse_case
from harness.errors import UsageError
from harness.families import attention, layers, real_activations
from harness.kernels import base

KERNELS = [k.name for k in (*layers.KERNELS, *attention.KERNELS)]


def both(case: Case, arrays: dict[str, np.ndarray]) -> tuple[list[int], list[int]]:
    """The outputs of reference and second."""
    options = base(case.kernel).chosen(case)
    layer, other = LAYERS[case.kernel], SECOND[case.kernel]
    layer.tensors(case.dims)
    values = {n: a.tobytes() if a.dtype == np.uint8 else a.reshape(-1).tolist() for n, a in arrays.items()}
    second = other.answer(case.dims, arrays, options).reshape(-1).tolist()
    return layer.compute(case.dims, values, **options), second


def of(text: str) -> tuple[Case, dict[str, np.ndarray]]:
    """A case by its id, and its inputs."""
    case = parse_case(text)
    return case, base(case.kernel).generate(case)


@pytest.mark.parametrize("case", [c for c in presets.cases("tiny") if c.kernel in KERNELS], ids=lambda c: c.id)
def test_reference_and_second_agree_and_inputs_have_their_types(case: Case) -> None:
    """Every small case; element types and shapes are the catalogue's, the reference's and the second's."""
    arrays = base(case.kernel).generate(case)
    first, second = both(case, arrays)
    assert first == second
    for tensor in base(case.kernel).inputs:
        shape = arrays[tensor.name].shape
        assert LAYERS[case.kernel].tensors(case.dims)[tensor.name] == (tensor.element, shape)
        assert SECOND[case.kernel].inputs(case.dims)[tensor.name] == (tensor.element, shape)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("residual;m=2;n=5;dist=edge;seed=0", "x", 1),
        ("residual;m=2;n=5;dist=full;seed=0", "y", 2**47),
        ("gate;m=1;n=5;dist=edge;seed=0", "up", 2**16),
        ("gate;m=1;n=5;dist=edge;seed=0", "gate", 2**32),
        ("rmsnorm;m=3;n=8;dist=edge;seed=0", "x", 1),
        ("rmsnorm;m=3;n=8;dist=edge;seed=0", "g", 1),
        ("rope;t=2;h=1;hd=64;dist=edge;seed=0", "x", 2**31 + 2**16),
        ("argmax;m=2;n=8;dist=full;seed=0", "x", 2**47),
        ("kv_append;t=2;past=1;w=3;dist=full;seed=0", "rows", 2**47),
        ("scores;t=1;s=2;h=1;kv=1;hd=64;dist=edge;seed=0", "q", 2**15 + 1),
        ("scores;t=1;s=2;h=1;kv=1;hd=64;dist=cancel;seed=0", "k", 2),
        ("mix;t=1;s=1;h=1;kv=1;hd=4;dist=edge;seed=0", "v", 1),
        ("mix;t=1;s=8;h=1;kv=1;hd=4;dist=cancel;seed=0", "v", 1),
        ("softmax;t=1;s=3;h=1;dist=far;seed=0", "z", 2**62),
    ],
)
def test_a_step_past_a_contract_is_refused_by_both(text: str, name: str, value: int) -> None:
    """What the distribution made is inside; a little more on one element is RangeContract."""
    case, arrays = of(text)
    first, second = both(case, arrays)
    assert first == second
    flat = arrays[name].reshape(-1)
    flat[-1] += value if flat[-1] >= 0 else -value
    values = {n: a.reshape(-1).tolist() for n, a in arrays.items()}
    options = base(case.kernel).chosen(case)
    with pytest.raises(Refused, match="must stay below 2\\^") as one:
        LAYERS[case.kernel].compute(case.dims, values, **options)
    with pytest.raises(SecondRefused) as two:
        SECOND[case.kernel].answer(case.dims, arrays, options)
    assert type(one.value).__name__ == type(two.value).__name__ == "RangeContract"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gate;m=1;n=5;dist=full;seed=0", "g"),
        ("softmax;t=1;s=3;h=1;dist=far;seed=0", "e1"),
        ("softmax;t=1;s=3;h=1;dist=far;seed=0", "e2"),
    ],
)
def test_another_table_than_the_profile_s_is_refused_by_both(text: str, name: str) -> None:
    """One entry off by one."""
    case, arrays = of(text)
    arrays[name] = arrays[name].copy()
    arrays[name][100] += 1
    with pytest.raises(Refused, match="table"):
        LAYERS[case.kernel].compute(case.dims, {n: a.reshape(-1).tolist() for n, a in arrays.items()})
    with pytest.raises(SecondRefused, match="table"):
        SECOND[case.kernel].answer(case.dims, arrays, {})


def test_a_token_outside_the_table_is_refused_by_both() -> None:
    """The first id past the last row."""
    case, arrays = of("embedding_q8_0;t=5;v=7;k=96;dist=full;seed=0")
    arrays["ids"][3] = 7
    with pytest.raises(Refused, match="token id 7"):
        LAYERS[case.kernel].compute(case.dims, {"ids": arrays["ids"].tolist(), "w": arrays["w"].tobytes()})
    with pytest.raises(SecondRefused, match="token id 7"):
        SECOND[case.kernel].answer(case.dims, arrays, {})


def test_softmax_s_data_meet_the_cut_from_both_sides_and_its_ties() -> None:
    """Distances of k = 5631 and 5632; six equal scores make every weight a tie, which goes up."""
    case, arrays = of("softmax;t=3;s=130;h=4;dist=cut;seed=0")
    z = arrays["z"]
    coarse = {int(v) >> 8 for i, row in np.ndindex(4, 3) for v in z[i, row, : 128 + row].max() - z[i, row, : 128 + row]}
    assert {0, 1, 5630, 5631, 5632, 5633, 2**24} <= coarse
    case, arrays = of("softmax;t=9;s=9;h=2;dist=equal;seed=0")
    first, second = both(case, arrays)
    quotient = ((1 << 62) - 1) // (6 << 30)
    assert quotient % 4 == 2 and first == second
    assert first[5 * 9 : 6 * 9] == [quotient // 4 + 1] * 6 + [0] * 3


def test_mix_and_scores_have_ties_of_both_signs() -> None:
    """Half-way sums at the shift by 30 and at the inner one by 16."""
    _, arrays = of("mix;t=3;s=29;h=9;kv=3;hd=64;dist=ties;seed=0")
    p, v = arrays["p"][0, 2].astype(object), arrays["v"][:, 0].astype(object)
    sums = [int(s) for s in p @ v]
    assert {s > 0 for s in sums if s % 2**30 == 2**29} == {True, False}
    _, arrays = of("scores;t=3;s=29;h=9;kv=3;hd=64;dist=ties;seed=0")
    dots = (arrays["q"][2, 0] @ arrays["k"][:, 0].T).tolist()
    assert {s > 0 for s in dots if s % 2**16 == 2**15} == {True, False}


@pytest.mark.parametrize("dist", ["full", "magnitudes", "ties", "edge"])
def test_rmsnorm_is_the_root_mean_square_to_its_accuracy(dist: str) -> None:
    """Within 2^-29 and a rounding of x * g / rms in real numbers, in rows whose mean square is not small itself."""
    case, arrays = of(f"rmsnorm;m=47;n=16;dist={dist};seed=0")
    first, second = both(case, arrays)
    assert first == second
    eps = int(arrays["eps32"][0])
    for i, row in enumerate(arrays["x"].tolist()):
        rms = math.sqrt(sum(v * v for v in row) / len(row) + eps)
        if rms < 2**16:
            continue
        for y, v, g in zip(first[16 * i :], row, arrays["g"].tolist(), strict=False):
            exact = v * g / rms / 2**8
            assert abs(y - exact) <= 1 + abs(exact) * 2**-29


def test_the_norm_s_data_reach_every_length_and_its_ties_are_ties() -> None:
    """b from 1 to past 64, of both parities; half of the products under gains of 2^39 stand half-way."""
    _, arrays = of("rmsnorm;m=94;n=33;dist=magnitudes;seed=0")
    lengths = {(sum(v * v for v in row) // 33 + 1).bit_length() for row in arrays["x"].tolist()}
    assert {b % 2 for b in lengths if b > 64} == {b % 2 for b in lengths if b <= 64} == {0, 1}
    _, least = of("rmsnorm;m=5;n=100;dist=least;seed=0")
    assert min(sum(v * v for v in row) // 100 + 1 for row in least["x"].tolist()) == 1
    case, ties = of("rmsnorm;m=15;n=64;dist=ties;seed=0")
    first, _ = both(case, ties)
    x, g = ties["x"].tolist(), ties["g"].tolist()
    halves = {(v > 0) == (w > 0) for row in x for v, w in zip(row, g, strict=True) if abs(w) == 2**39}
    assert halves == {True, False}
    assert first[0] == (x[0][0] * g[0] * 2**31 + 2**70) >> 71  # a row of magnitude 2^32 - 1: b is 64, inv 2^31


def test_rope_s_pairings_are_one_turn_in_two_orders() -> None:
    """`half` of a head whose halves are interleaved is `interleaved`, halves apart."""
    case, arrays = of("rope;t=2;h=3;hd=6;dist=full;seed=0")
    interleaved, _ = both(case, arrays)
    apart = dict(arrays, x=arrays["x"].reshape(2, 3, 3, 2).swapaxes(2, 3).reshape(2, 3, 6).copy())
    halves, _ = both(parse_case("rope;t=2;h=3;hd=6;dist=full;seed=0;pairing=half"), apart)
    assert np.array(halves).reshape(2, 3, 2, 3).swapaxes(2, 3).reshape(-1).tolist() == interleaved


@pytest.mark.parametrize("dist", ["full", "equals", "words", "edge"])
def test_argmax_is_the_first_of_the_largest(dist: str) -> None:
    """Against Python's own order."""
    case, arrays = of(f"argmax;m=9;n=257;dist={dist};seed=0")
    first, second = both(case, arrays)
    assert first == second == [max(range(257), key=lambda i, row=row: (row[i], -i)) for row in arrays["x"].tolist()]


@pytest.mark.parametrize(
    "text",
    [
        "scores;t=2;s=1;h=1;kv=1;hd=4;dist=full;seed=0",
        "mix;t=1;s=1;h=3;kv=2;hd=4;dist=full;seed=0",
        "softmax;t=2;s=1;h=1;dist=full;seed=0",
        "kv_append;t=2;past=3;w=1;dist=full;seed=0",
        "rope;t=1;h=1;hd=3;dist=full;seed=0",
        "rope;t=1;h=1;hd=2;dist=full;seed=0;pairing=both",
    ],
)
def test_sizes_that_do_not_fit_together_are_refused_in_one_line(text: str) -> None:
    """By the harness, before any device sees the case."""
    with pytest.raises(UsageError) as error:
        parse_case(text)
    assert "\n" not in str(error.value)


def test_real_cases_are_the_stages_of_the_forward_pass() -> None:
    """What the reference makes of each real case is the stage that its id names (where SAMEBITS_MODELS holds the model)."""
    if not os.environ.get("SAMEBITS_MODELS") or not models.location(real_activations.MODEL).is_file():
        pytest.skip("SAMEBITS_MODELS holds no model")
    real = [c for c in presets.cases("full") if c.dist == "real" and c.kernel in KERNELS]
    assert {c.kernel for c in real} == real_activations.KERNELS
    _, stages = real_activations.forward_pass(real_activations.MODEL)
    for case in real:
        first, second = both(case, base(case.kernel).generate(case))
        assert first == second == stages[dict(case.extra)["tensor"]].reshape(-1).tolist(), case.id
