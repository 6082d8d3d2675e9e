"""Op 2 of dyadic-q16: reference and second against Python ints, contracts broken one by one."""

import operator
import random
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpu_ref.linear as reference
from cpu_ref import errors, second
from cpu_ref.second import errors as second_errors
from cpu_ref.second.linear import linear_exact
from cpu_ref.weights import BLOCK_TYPES, Q8_0

ONE = 0x3C00
"""The half 1.0: 2^24 in Q24."""

TINY = 0x0001
"""The smallest subnormal half: 1 in Q24, so that a weight is its quant."""

HUGE = 0x7BFF
"""The largest finite half, 65504."""


def block(scale, quants=()):
    """One Q8_0 block; missing quants are 0."""
    return struct.pack("<H32b", scale, *quants, *[0] * (32 - len(quants)))


def block_of(kind, halves, quants):
    """One block of `kind`: its halves, then 32 quants, as the profile's document lays them out."""
    if kind == "Q8_0":
        return struct.pack("<H32b", *halves, *quants)
    stored = [q + 8 for q in quants] if kind == "Q4_0" else quants
    return struct.pack(f"<{len(halves)}H", *halves) + bytes(stored[j] + 16 * stored[j + 16] for j in range(16))


def both(w, x, k, kind="Q8_0", bias=None):
    """Reference and second; each a list of values, or the name and message of its refusal."""
    m, n = len(x) // k, len(w) // BLOCK_TYPES[kind].row_bytes(k)
    try:
        first = reference.linear(BLOCK_TYPES[kind], w, x, k, "t", bias)
    except errors.Refused as e:
        first = (type(e).__name__, str(e))
    try:
        array = np.frombuffer(w, np.uint8).reshape(n, -1)
        added = np.array(bias or [0] * n, np.int64)
        other = linear_exact(kind, array, np.array(x, np.int64).reshape(m, k), added, "t").reshape(-1).tolist()
    except second_errors.Refused as e:
        other = (type(e).__name__, str(e))
    return first, other


def schoolbook(w, x, k):
    """y of the profile: exact fractions for the scales, one rounding half up at the end."""
    blocks = [struct.unpack("<e32b", w[i : i + 34]) for i in range(0, len(w), 34)]
    flat = [int(Fraction(d) * (1 << 24)) * q for d, *quants in blocks for q in quants]
    rows = [flat[i : i + k] for i in range(0, len(flat), k)]
    tokens = [x[i : i + k] for i in range(0, len(x), k)]
    sums = [sum(a * b for a, b in zip(row, token, strict=True)) for token in tokens for row in rows]
    return [(s + (1 << 23)) // (1 << 24) for s in sums]


def random_case(seed, m, n, k):
    """Weights and activations well inside the contracts."""
    rng = random.Random(seed)
    scales = [rng.choice([rng.randrange(0x3000), 0x8000 | rng.randrange(0x3000)]) for _ in range(n * k // 32)]
    w = b"".join(block(s, [rng.randint(-128, 127) for _ in range(32)]) for s in scales)
    return w, [rng.randint(-(1 << 30), 1 << 30) for _ in range(m * k)]


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 32), (3, 17, 96), (4, 5, 64), (5, 5, 64), (9, 2, 32)])
def test_a_linear_equals_the_profile_in_python_ints(m, n, k):
    """Few tokens take Python's sums, more take FLINT's: both sides of the border are here."""
    w, x = random_case(m, m, n, k)
    expected = schoolbook(w, x, k)
    assert both(w, x, k) == (expected, expected)


@pytest.mark.parametrize("kind", BLOCK_TYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 32), (3, 7, 96), (6, 2, 64)])
def test_every_block_type_with_a_bias_equals_the_profile_in_python_ints(kind, m, n, k):
    """Random halves of both signs and quants of the whole type; weights made from values, not from bytes."""
    rng = random.Random(m * n * k)
    low, high, mins = {"Q8_0": (-128, 127, 0), "Q4_1": (0, 15, 1), "Q4_0": (-8, 7, 0)}[kind]
    w, flat = b"", []
    for _ in range(n * k // 32):
        halves = [rng.randrange(0x3000) | rng.choice([0, 0x8000]) for _ in range(1 + mins)]
        quants = [rng.randint(low, high) for _ in range(32)]
        s, m0 = (int(Fraction(*struct.unpack("<e", struct.pack("<H", h))) * (1 << 24)) for h in [*halves, 0][:2])
        flat += [s * q + m0 for q in quants]
        w += block_of(kind, halves, quants)
    x, bias = ([rng.randint(-(1 << 30), 1 << 30) for _ in range(c)] for c in (m * k, n))
    bias[0] = -(1 << 61)
    rows, tokens = ([v[i : i + k] for i in range(0, len(v), k)] for v in (flat, x))
    sums = [b + sum(map(operator.mul, row, token)) for token in tokens for row, b in zip(rows, bias, strict=True)]
    expected = [(s + (1 << 23)) >> 24 for s in sums]
    assert both(w, x, k, kind, bias) == (expected, expected)


@pytest.mark.parametrize("kind", ["Q4_1", "Q4_0"])
def test_the_order_of_nibbles_is_the_profile_s(kind):
    """Quants that tell their place, seen one at a time: byte j holds q_j below and q_(j+16) above."""
    quants = [(5 * i + 3) % 16 - (8 if kind == "Q4_0" else 0) for i in range(32)]
    w = block_of(kind, [ONE, 0][: 1 + (kind == "Q4_1")], quants)
    x = [65536 if i == t else 0 for t in range(32) for i in range(32)]
    assert both(w, x, 32, kind) == ([q << 16 for q in quants],) * 2


def test_a_bad_min_is_refused_as_a_scale_is():
    """The second half of block 1 in row 1."""
    w = block_of("Q4_1", [ONE, ONE], [0] * 32) * 3 + block_of("Q4_1", [ONE, 0xFC00], [0] * 32)
    message = "t: row 1, block 1: the scale 0xfc00 is infinite or NaN"
    assert both(w, [0] * 64, 64, "Q4_1") == (("WeightsRefused", message),) * 2


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_of_2_to_the_62_breaks_its_contract_and_one_inside_can_break_the_sum_s(sign):
    """The bias is looked at before the terms; with it the sum may leave its range or come back."""
    w, zeros = block(TINY, [1]) * 2, [0] * 31
    limit = sign << 62
    assert both(w, [0, *zeros], 32, bias=[0, limit]) == contract("linear.bias", (1,), limit, 62)
    assert both(w, [sign, *zeros], 32, bias=[0, limit - sign]) == contract("linear.sum", (0, 1), limit, 62)
    y = (limit - sign + (1 << 23)) >> 24
    assert both(w, [0, *zeros], 32, bias=[0, limit - sign]) == ([0, y], [0, y])
    x = [sign << 31] * 2 + [0] * 30
    inside = (limit - sign + (1 << 23)) >> 24
    assert both(block(ONE, [64, 64]), x, 32, bias=[-sign]) == ([inside], [inside])


def test_bands_of_rows_join_without_a_seam(monkeypatch):
    """A band of two rows, the last band short."""
    monkeypatch.setattr(reference, "BAND", 64)
    monkeypatch.setattr(second.linear, "ROWS", 2)
    w, x = random_case(1, 6, 7, 32)
    expected = schoolbook(w, x, 32)
    assert both(w, x, 32) == (expected, expected)


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize("tie", [-3, -1, 1, 3])
def test_a_tie_rounds_toward_plus_infinity(tie, tokens):
    """Ties of both signs, and their neighbours one step away: 2^23 times an odd number, weights of 1."""
    x = [[v] + [0] * 31 for v in ((tie << 23) - 1, tie << 23, (tie << 23) + 1)]
    below = (tie - 1) // 2
    for token, expected in zip(x, (below, below + 1, below + 1), strict=True):
        answer = [expected] * tokens
        assert both(block(TINY, [1]), token * tokens, 32) == (answer, answer)


@pytest.mark.parametrize("scale", [0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01])
def test_a_scale_without_a_value_is_refused_with_tensor_row_and_block(scale):
    """Infinities and NaNs in row 1, block 2."""
    w = block(ONE) * 5 + block(scale) + block(ONE) * 3
    message = f"t: row 1, block 2: the scale 0x{scale:04x} is infinite or NaN"
    assert both(w, [0] * 96, 96) == (("WeightsRefused", message),) * 2


def test_subnormal_negative_and_largest_scales_are_exact():
    """One row each of 2^-24, minus zero, minus 2^-24 and 65504."""
    w = b"".join(block(s, [127, -128]) for s in (TINY, 0x8000, 0x8001)) + block(HUGE, [0, 0, 1])
    x = [1 << 20, -(1 << 20), 1 << 20] + [0] * 29
    expected = schoolbook(w, x, 32)
    assert both(w, x, 32) == (expected, expected)
    assert expected == [16, 0, -16, 65504 << 20]


def test_a_row_that_is_no_multiple_of_the_block_is_refused():
    """33 weights are no Q8_0 row, and 35 bytes are no row of 32."""
    with pytest.raises(errors.WeightsRefused, match="33 weights: Q8_0 rows are multiples of 32"):
        reference.linear(Q8_0, bytes(34), [0] * 33, 33)
    with pytest.raises(errors.WeightsRefused, match="35 bytes are no whole number of rows of 34"):
        reference.linear(Q8_0, bytes(35), [0] * 32, 32)


def contract(op, element, value, bound):
    """The answer of both to a broken contract."""
    place = ", ".join(map(str, element))
    return (("RangeContract", f"{op}[{place}] = {value}: its magnitude must stay below 2^{bound}"),) * 2


@pytest.mark.parametrize("sign", [1, -1])
def test_an_activation_of_2_to_the_47_breaks_its_contract(sign):
    """The last value inside passes, the first outside is named by token and element."""
    inside, outside = sign * ((1 << 47) - 1), sign << 47
    zeros = [0] * 31
    assert both(block(TINY), [*zeros, 0, *zeros, inside], 32) == ([0, 0], [0, 0])
    assert both(block(TINY), [*zeros, 0, *zeros, outside], 32) == contract("linear.x", (1, 31), outside, 47)


@pytest.mark.parametrize("x", [(1 << 63) - 1, -(1 << 63)])
def test_the_rails_of_int64_break_the_contract_and_nothing_else(x):
    """The magnitude of -2^63 is no int64."""
    assert both(block(TINY), [x] + [0] * 31, 32) == contract("linear.x", (0, 0), x, 47)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_term_of_2_to_the_62_breaks_its_contract(sign):
    """A weight of 2^28 times x: x = 2^34 - 1 passes, x = 2^34 is one step too far.

    A second weight takes the sum back to where sum and y hold, so that only the term can be at fault.
    """
    quants = [16, -16]
    w = block(ONE) + block(ONE, quants)
    inside, outside = sign * ((1 << 34) - 1), sign << 34
    assert both(w, [inside, inside] + [0] * 30, 32) == ([0, 0], [0, 0])
    assert both(w, [outside, outside] + [0] * 30, 32) == contract("linear.term", (0, 1, 0), sign << 62, 62)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_term_at_the_largest_quant_breaks_its_contract_where_the_bound_just_reaches_it(sign):
    """-128 * 2^24 times 2^31 is 2^62, as is the bound of the whole block; one step less of x passes."""
    w, x = block(ONE, [-128, -128]), sign << 31
    inside = x - sign
    assert both(w, [inside, -inside] + [0] * 30, 32) == ([0], [0])
    assert both(w, [x, -x] + [0] * 30, 32) == contract("linear.term", (0, 0, 0), -(sign << 62), 62)


def test_the_first_broken_term_is_named_in_order_of_token_row_and_column():
    """Token 1 is the first with a broken term; its row 2 breaks in columns 33 and 40."""
    row = block(ONE) + block(ONE, [0, 64] + [0] * 6 + [64])
    w = (block(ONE) * 2) * 2 + row * 2
    x = [0] * 64 * 3
    x[64 + 33] = x[64 + 40] = x[128 + 33] = 1 << 40
    assert both(w, x, 64) == contract("linear.term", (1, 2, 33), 1 << 70, 62)


def test_weights_whose_bound_proves_too_little_are_checked_exactly_and_pass():
    """A scale of 65504 bounds a weight by 2^47, but the quants are 1: every term is inside."""
    x = [1 << 20] + [0] * 31
    expected = [65504 << 20]
    assert both(block(HUGE, [1]), x, 32) == (expected, expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_2_to_the_62_breaks_its_contract(sign):
    """Two terms of 2^61 each; the terms are inside, the sum is not. One step less of x passes."""
    w = block(ONE, [64, 64])
    x = sign << 31
    assert both(w, [x, x] + [0] * 30, 32) == contract("linear.sum", (0, 0), sign << 62, 62)
    y = ((sign << 61) + (64 << 24) * (x - sign) + (1 << 23)) >> 24
    assert y < 1 << 47
    assert both(w, [x, x - sign] + [0] * 30, 32) == ([y], [y])


def test_a_wrapped_sum_is_not_taken_for_a_value_inside():
    """Eight terms of 2^61 make 2^64, whose residue is a harmless 0."""
    w = block(TINY) + block(ONE, [64] * 8)
    assert both(w, [1 << 31] * 8 + [0] * 24, 32) == contract("linear.sum", (0, 1), 1 << 64, 62)


def test_no_sum_inside_its_contract_makes_an_output_outside():
    """The largest sum gives y = 2^38: the contract of y cannot break alone, so nobody checks it."""
    for total in ((1 << 62) - 1, 1 - (1 << 62)):
        assert abs((total + (1 << 23)) >> 24) < 1 << 47


@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_reference_and_second_agree_on_values_and_on_refusals(data, m, n, blocks):
    """Any scale pattern and any int64: equal values, or the same refusal of the same element."""
    scale = st.integers(0, 0xFFFF) | st.sampled_from([0, TINY, ONE, HUGE, 0x83FF, 0x2400])
    quant = st.integers(-128, 127) | st.sampled_from([-128, 127, 0])
    value = st.integers(-(1 << 47), 1 << 47) | st.integers(-(1 << 24), 1 << 24) | st.just(0)
    quants = st.lists(quant, min_size=0, max_size=32)
    w = b"".join(block(data.draw(scale), data.draw(quants)) for _ in range(n * blocks))
    k = 32 * blocks
    sparse = st.dictionaries(st.integers(0, m * k - 1), value, max_size=8)
    x = [0] * (m * k)
    for i, v in data.draw(sparse).items():
        x[i] = v
    first, other = both(w, x, k)
    assert first == other
    if isinstance(first, list):
        assert first == schoolbook(w, x, k)
