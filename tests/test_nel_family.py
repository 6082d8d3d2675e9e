"""The kernels of nel-mini-w8a8: what their cases plant, and what is refused."""

import json

import numpy as np
import pytest

import cpu_ref.second.worker
import cpu_ref.worker
from cpu_ref import nel_mini_w8a8 as profile
from cpu_ref.nel_mini_kernels import OPERATIONS
from harness import presets, profiles
from harness.cases import parse_case
from harness.errors import UsageError
from harness.families import nel, nel_inputs, nel_stages

WORKERS = [cpu_ref.worker, cpu_ref.second.worker]


def inputs(case_id):
    return {name: values.astype(np.int64) for name, values in nel_inputs.nel_inputs(parse_case(case_id)).items()}


def quick(kernel, dist):
    """Inputs of every `quick` case of a kernel under one distribution."""
    return [inputs(c.id) for c in nel.cases("quick", 0) if c.kernel == kernel and c.dist == dist]


def both_signs(sums, k):
    """Whether sums holds exact ties of round_shift by k, positive and negative."""
    ties = sums[sums % (1 << k) == 1 << (k - 1)]
    return (ties > 0).any() and (ties < 0).any()


@pytest.mark.parametrize("shift", [1, 8, 11, 12, 15, 23])
def test_requant_meets_ties_of_both_signs_and_both_neighbours(shift):
    """Every result from -128 to 127, exact and one step beside; the sums stay below 2^31 where the contract has it."""
    acc = inputs(f"nel_requant;m=64;n=64;shift={shift};dist=ties;seed=0")["acc"]
    assert both_signs(acc, shift)
    at = acc[acc % (1 << shift) == 1 << (shift - 1)]
    assert set(range(-128, 128)) <= set((at >> shift).tolist())
    if shift > 1:
        assert set((at + 1).tolist()) & set(acc.ravel().tolist()) and set((at - 1).tolist()) & set(acc.ravel().tolist())


def test_rmsnorm_meets_exact_ties_and_every_root():
    """z = 1 with odd products of both signs; mean squares on, below and above z^2 - 1 for z up to 126."""
    ties = quick("nel_rmsnorm", "ties")[0]
    assert ((ties["x"] ** 2).sum(axis=1) // 32 < 3).all()
    assert both_signs((ties["x"] * ties["gain"]).ravel() << 30, 31)
    ms = set(((quick("nel_rmsnorm", "roots")[0]["x"] ** 2).sum(axis=1) // 32).tolist())
    for z in range(2, 127):
        assert {z * z - 2, z * z - 1} <= ms, z
    rails = quick("nel_rmsnorm", "rails")[0]["x"]
    assert {-128, 0, 127} == set(rails.ravel().tolist())


def test_rope_meets_ties_of_both_signs_in_both_halves_and_clips():
    """Of the 64 positions, wherever one has ties."""
    x = inputs("nel_rope;m=64;n=48;p=64;dist=ties;seed=0")["x"].reshape(64, 6, 2, 4)
    tables = nel_inputs.tables()
    cos, sin = (tables[name].reshape(64, 1, 4) for name in ("COS", "SIN"))
    first, second = x[:, :, 0] * cos - x[:, :, 1] * sin, x[:, :, 0] * sin + x[:, :, 1] * cos
    assert both_signs(first.ravel(), 15) and both_signs(second.ravel(), 15)
    rails = inputs("nel_rope;m=64;n=48;p=64;dist=rails;seed=0")["x"].reshape(64, 6, 2, 4)
    assert (abs(rails[:, :, 0] * cos - rails[:, :, 1] * sin) > 129 << 15).any()


def test_scores_reach_the_contract_s_edge():
    """Eight products of -128 by -128."""
    made = inputs("nel_scores;m=5;p=40;d=8;dist=rails;seed=0")
    assert (made["q"][0] * made["k"][0].repeat(2, axis=0)).sum(axis=1).tolist() == [1 << 17] * 4


def test_softmax_reads_every_entry_under_every_power_and_meets_ties():
    """Distances 0 to 1023 and beyond; weights that are exact ties; a row of one key."""
    s = inputs("nel_softmax;m=64;p=64;dist=steps;seed=0")["s"]
    seen = np.tri(64, dtype=bool)
    d = (np.where(seen, s, -(1 << 20)).max(axis=2, keepdims=True) - s)[np.broadcast_to(seen, s.shape)] >> 7
    assert set(range(1024)) <= set(d.tolist()) and (d >= 1024).any()
    rows = inputs("nel_softmax;m=5;p=40;dist=ties;seed=0")["s"]
    powers, met = nel_inputs.tables()["EXP2"], 0
    for h in range(4):
        for t in range(5):
            row = rows[h, t, : 36 + t]
            gaps = (row.max() - row) >> 7
            e = np.where(gaps < 1024, powers[gaps & 63] >> np.minimum(gaps >> 6, 31), 0)
            met += bool((e * ((1 << 30) // int(e.sum())) % (1 << 15) == 1 << 14).any())
    assert met == 20


def test_pairs_are_all_pairs_of_i8():
    """65,536 of them, for Act and for Residual."""
    for kernel, first, second in (("nel_act", "gate", "up"), ("nel_residual", "a", "b")):
        made = quick(kernel, "pairs")[0]
        assert len(set(zip(made[first].ravel().tolist(), made[second].ravel().tolist(), strict=True))) == 65536


def test_every_operation_of_the_profile_has_a_kernel_whose_cases_are_in_tiny_and_quick():
    """Eleven of them, as the profile's entry lists them."""
    for preset in ("tiny", "quick"):
        there = {c.kernel for c in presets.cases(preset)}
        assert {k.name for k in nel.KERNELS} <= there
    listed = [kernel for kernels in profiles.find("nel-mini-w8a8").operations.values() for kernel in kernels]
    assert sorted(listed) == sorted(k.name for k in nel.KERNELS) and len(listed) == 11


@pytest.mark.parametrize(("weight_set", "m"), [("published", 2), ("stress", 17), ("stress", 64)])
def test_the_cases_of_a_prefill_make_every_stage_of_the_pass_out_of_the_stages_before_it(weight_set, m):
    """What the exact operations make of the cases' operands is the forward pass of the whole prompt, row for row."""
    tokens = list(nel_stages.prompt(5))[:m]
    right = {n: np.array(v).reshape(d) for n, d, v in profile.run(profile.load(f"nel-mini:{weight_set}"), tokens)}
    made = {}
    for case in nel_stages.prefill(weight_set, 5, m):
        flat = {name: values.ravel().tolist() for name, values in inputs(case.id).items()}
        stage = dict(case.extra)["stage"]
        made[stage] = OPERATIONS[case.kernel].compute(case.dims, flat)
        assert made[stage] == right[stage].ravel().tolist(), stage
    assert set(made) == set(right)


def test_the_cases_of_decoding_are_the_last_rows_of_the_pass():
    """Rotated at their positions, against all keys before them."""
    tokens = list(nel_stages.prompt(3))[:40]
    right = {n: np.array(v).reshape(d) for n, d, v in profile.run(profile.load("nel-mini:stress"), tokens)}
    for case in nel_stages.decoding("stress", 3, 5, 40):
        flat = {name: values.ravel().tolist() for name, values in inputs(case.id).items()}
        whole = right[dict(case.extra)["stage"]]
        last = whole[:, 35:] if whole.ndim == 3 else whole[35:]
        assert OPERATIONS[case.kernel].compute(case.dims, flat) == last.ravel().tolist(), case.id


def test_tiny_holds_two_short_prompts_and_quick_long_ones_of_both_sets():
    """44 stages each; quick has 1, 17 and 64 tokens at once, and later tokens over a cache."""
    passes = {"tiny": [("published", 2), ("stress", 3)], "quick": [("published", 17), ("stress", 64), ("stress", 1)]}
    for preset, prompts in passes.items():
        there = [(c.dist, c.dims["m"]) for c in presets.cases(preset) if c.dist in nel_stages.SETS]
        for one in prompts:
            assert there.count(one) >= 44


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("nel_act;m=1;n=64;dist=stress;seed=0", "stage= goes with dist=published and dist=stress"),
        ("nel_act;m=1;n=64;dist=pairs;seed=0;stage=l0.act", "stage= goes with dist=published and dist=stress"),
        ("nel_act;m=1;n=32;dist=stress;seed=0;stage=l0.act", "stage l0.act has n=64"),
        ("nel_act;m=1;n=64;dist=stress;seed=0;stage=l2.act", "stage is l0.act or l1.act"),
        ("nel_act;m=65;n=64;dist=stress;seed=0;stage=l0.act", "stage l0.act has n=64"),
        ("nel_rmsnorm;m=1;k=64;dist=full;seed=0", "k is 32 in nel-mini-w8a8"),
        ("nel_scores;m=1;p=1;d=16;dist=full;seed=0", "d is 8 in nel-mini-w8a8"),
        ("nel_softmax;m=5;p=4;dist=full;seed=0", "p is m or more, at most 64"),
        ("nel_mix;m=1;p=65;dist=full;seed=0", "p is m or more, at most 64"),
        ("nel_rope;m=1;n=12;p=1;dist=full;seed=0", "n must be a multiple of 8"),
        ("nel_requant;m=1;n=1;shift=24;dist=full;seed=0", "shift is at most 23"),
    ],
)
def test_a_case_that_the_profile_does_not_define_is_refused(case, said):
    """One line that names what is wrong, before any device sees it."""
    with pytest.raises(UsageError, match=said):
        parse_case(case)


def request(tmp_path, kernel, dims, **arrays):
    paths = {}
    for name, values in arrays.items():
        paths[name] = str(tmp_path / name)
        values.tofile(paths[name])
    asked = {"op": "compute", "id": 1, "kernel": kernel, "dims": dims, "inputs": paths, "out": str(tmp_path / "out")}
    return json.dumps(asked).encode()


@pytest.mark.parametrize("worker", WORKERS)
def test_requests_outside_the_profile_are_refused_by_both_workers(worker, tmp_path):
    """Another width, fewer positions than rows, an id outside, a table that is not the profile's."""
    i8, i32 = np.int8, np.int32
    table = nel_inputs.tables()["SILU"].astype(i8)
    table[3] ^= 1
    asked = [
        ("nel_rmsnorm", {"m": 1, "k": 4}, {"x": np.zeros(4, i8), "gain": np.zeros(4, i8)}, "RequestRefused"),
        ("nel_scores", {"m": 1, "p": 1, "d": 1}, {"q": np.zeros(4, i8), "k": np.zeros(2, i8)}, "RequestRefused"),
        ("nel_mix", {"m": 2, "p": 1}, {"p": np.zeros(8, i32), "v": np.zeros(16, i8)}, "RequestRefused"),
        (
            "nel_embedding",
            {"m": 1, "v": 1, "n": 1},
            {"ids": np.ones(1, i32), "embed": np.zeros(1, i8)},
            "RequestRefused",
        ),
        ("nel_act", {"m": 1, "n": 1}, {"gate": np.zeros(1, i8), "up": np.zeros(1, i8), "silu": table}, "TableRefused"),
        ("nel_softmax", {"m": 1, "p": 1}, {"s": np.full(4, 1 << 20, i32), "powers": power_table()}, "RangeContract"),
        ("nel_mix", {"m": 1, "p": 1}, {"p": np.full(4, -1, i32), "v": np.zeros(16, i8)}, "RangeContract"),
    ]
    for kernel, dims, arrays, error in asked:
        answer = worker.answer(request(tmp_path, kernel, dims, **arrays))
        assert answer.get("error") == error, (kernel, answer)


def power_table():
    return nel_inputs.tables()["EXP2"].astype(np.uint32)


def test_the_reference_of_a_kernel_is_the_operation_of_the_profile(tmp_path):
    """A request's answer, laid out as [head, row, key], is what the profile's function makes of the same rows."""
    made = nel_inputs.nel_inputs(parse_case("nel_scores;m=3;p=5;d=8;dist=full;seed=0"))
    answer = cpu_ref.worker.answer(request(tmp_path, "nel_scores", {"m": 3, "p": 5, "d": 8}, **made))
    found = np.fromfile(tmp_path / "out", np.int32).reshape(4, 3, 5)
    q, k = made["q"].reshape(3, 32).tolist(), made["k"].reshape(5, 16).tolist()
    for t, row in enumerate(profile.scores(q, k)):
        for h in range(4):
            assert found[h, t, : 3 + t].tolist() == row[h] and not found[h, t, 3 + t :].any()
    assert answer["dims"] == (4, 3, 5)
