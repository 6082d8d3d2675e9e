"""Limb arithmetic: reference and second on what the cases plant, and that they plant it."""

import re

import numpy as np
import pytest

from cpu_ref import limbs as first
from cpu_ref.second import limbs as second
from harness.families import limbs, limbs_inputs
from harness.folders import data_root

ALL = 1 << 128


def words(values):
    return np.frombuffer(b"".join(v.to_bytes(16, "little") for v in values), "<i4").reshape(-1, 4)


def inputs(dist, n=1031):
    return limbs_inputs.DISTRIBUTIONS[dist](limbs._case(n, dist, 0))


def both(a, b, shift):
    """Function name -> results; reference and second must agree on each."""
    found = words(first.limbs(a, b, shift)).reshape(len(first.FUNCTIONS), len(a), 4)
    other = second.limbs(words(a), words(b), np.array(shift, np.int32))
    for name, x, y in zip(first.FUNCTIONS, found, other, strict=True):
        assert np.array_equal(x, y), name
    return {
        name: [int.from_bytes(row.tobytes(), "little") for row in rows]
        for name, rows in zip(first.FUNCTIONS, found, strict=True)
    }


@pytest.mark.parametrize("dist", limbs_inputs.DISTRIBUTIONS)
def test_reference_and_second_agree_on_every_distribution(dist):
    """Every function on every planted operand."""
    both(*inputs(dist, limbs_inputs.EDGE_PAIRS if dist == "edges" else 1031))


def test_the_kernel_numbers_the_functions_as_the_reference_does():
    """The constants of the source, in order; both implementations and the catalogue count as many."""
    text = (data_root() / "shaders" / "limbs.wgsl").read_text("utf-8")
    numbered = re.findall(r"^const (\w+_\w+): u32 = (\d+)u;", text, re.M)
    named = [name for name, _ in numbered if name.lower() in first.FUNCTIONS]
    assert [name.lower() for name in named] == list(first.FUNCTIONS)
    assert [int(i) for name, i in numbered if name in named] == list(range(limbs.FUNCTIONS))
    assert len(first.FUNCTIONS) == len(second.FUNCTIONS) == limbs.FUNCTIONS


def test_results_at_the_edges_are_the_known_ones():
    """Overflow, negation of the smallest, division by zero, the largest squares, shifts by 0 and by the whole but one."""
    low = 1 << 63
    found = both([ALL - 1, low, 1 << 127, 7], [ALL - 1, 0, 0, 0], [0, 63, 127, 1])
    ones = (1 << 64) - 1
    assert found["i64_add"] == [ones - 1, low, 0, 7]
    assert found["i64_neg"][1] == low and found["i128_neg"][2] == 1 << 127
    assert found["u64_mul_wide"][0] == ones * ones
    assert found["i128_mul"][0] == 1
    assert found["u64_div"] == [1, ones, ones, ones] and found["u128_div"] == [1, ALL - 1, ALL - 1, ALL - 1]
    assert found["u32_div"][3] == (1 << 32) - 1
    assert found["u32_isqrt"][0] == 65535 and found["u64_isqrt"][0] == (1 << 32) - 1 and found["u128_isqrt"][0] == ones
    assert found["i64_shl"][1] == 0 and found["i64_shr"][1] == ones and found["u64_shr"][1] == 1
    assert found["i128_shr"][2] == ALL - 1 and found["u128_shr"][2] == 1
    assert found["i64_less"] == [0, 1, 0, 0] and found["u64_less"] == [0, 0, 0, 0]
    assert found["i128_less"] == [0, 0, 1, 0]
    assert found["i64_round_shift"][3] == 4 and found["i64_round_away"][3] == 4


@pytest.mark.parametrize(
    ("x", "up", "away"), [(5, 3, 3), (-5, -2, -3), (-1, 0, -1), (1, 1, 1), (-(1 << 63), -(1 << 62), -(1 << 62))]
)
def test_the_roundings_differ_at_negative_ties_only(x, up, away):
    """Halves of odd integers, and the smallest integer of 64 bits, which has no magnitude in its type."""
    found = both([x % ALL], [0], [1])
    for width in (64, 128):
        assert found[f"i{width}_round_shift"] == [up % (1 << width)]
        assert found[f"i{width}_round_away"] == [away % (1 << width)]


def test_ties_stand_at_every_shift_of_both_widths_with_both_signs():
    """a is an odd multiple of 2^(n-1): for i64 at each n below 64, for i128 at each below 128."""
    a, _, shifts = inputs("ties")
    for width in (64, 128):
        planted = {
            (n, v >> (width - 1) & 1)
            for v, n in zip((x % (1 << width) for x in a), shifts, strict=True)
            if n < width and v % (1 << n) == 1 << (n - 1)
        }
        assert {n for n, sign in planted if sign} >= set(range(1, width))
        assert {n for n, sign in planted if not sign} >= set(range(1, width))


def test_the_edges_are_all_pairs_and_meet_every_stated_shift():
    """0, all ones, both sides of each limb's border; the shifts 0, 1, 31, 32, 33, 63, 64, 95, 127."""
    a, b, shifts = inputs("edges", limbs_inputs.EDGE_PAIRS)
    assert len(set(zip(a, b, strict=True))) == limbs_inputs.EDGE_PAIRS
    assert {0, ALL - 1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1 << 96, 1 << 127} <= set(a)
    assert set(shifts) == {0, 1, 31, 32, 33, 63, 64, 95, 127}


def test_carries_go_through_every_limb():
    """In some element, the sum's carry leaves each of the three lower limbs with nothing but ones in between."""
    a, b, _ = inputs("carries")
    through = {
        limb
        for x, y in zip(a, b, strict=True)
        for limb in range(1, 4)
        if (x % (1 << 32 * limb)) + (y % (1 << 32 * limb)) >= 1 << 32 * limb
    }
    assert through == {1, 2, 3}
    assert any(
        (x % (1 << 96)) + (y % (1 << 96)) >= 1 << 96 and y % (1 << 96) < 1 << 32 for x, y in zip(a, b, strict=True)
    )


def test_quotients_stand_at_and_one_below_a_multiple_and_a_square():
    """At each width, both with the exact value and one below it."""
    a, b, _ = inputs("quotients")
    for i, width in enumerate(limbs_inputs.WIDTHS):
        at = [(x, y) for x, y in zip(a[i::3], b[i::3], strict=True) if 1 < y < 1 << width and 0 < x < 1 << width]
        assert sum(x % y == 0 for x, y in at) > 30
        assert sum(x % y == y - 1 for x, y in at) > 30
