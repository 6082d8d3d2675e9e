"""`gemm_i32`: reference and second against a schoolbook product of Python ints."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_ref.gemm import gemm_i32
from cpu_ref.second.gemm import gemm_i32 as second_gemm_i32
from cpu_ref.second.halves import column_stream

LOW, HIGH = -(1 << 31), (1 << 31) - 1


def schoolbook(a, b, m, n, k):
    """True sums, their residues as int32, and how many are none."""
    true = [sum(a[i * k + t] * b[t * n + j] for t in range(k)) for i in range(m) for j in range(n)]
    residues = [(v - LOW) % (1 << 32) + LOW for v in true]
    return residues, sum(v != r for v, r in zip(true, residues, strict=True))


def both(a, b, m, n, k):
    """Reference and second, as (values, count) each."""
    first = gemm_i32(struct.pack(f"<{m * k}i", *a), struct.pack(f"<{k * n}i", *b), m, n, k)
    c, leaves = second_gemm_i32(np.array(a, "<i4").reshape(m, k), np.array(b, "<i4").reshape(k, n))
    return (list(struct.unpack(f"<{m * n}i", first.c)), first.leaves_type), (c.reshape(-1).tolist(), leaves)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 7, 33), (17, 19, 23), (5, 1, 64), (2, 3, 300)])
def test_a_product_equals_the_schoolbook_product(m, n, k):
    """Full-range operands: nearly every true value leaves int32 when k is long."""
    rng = random.Random(m * n * k)
    a = [rng.randint(LOW, HIGH) for _ in range(m * k)]
    b = [rng.randint(LOW, HIGH) for _ in range(k * n)]
    expected = schoolbook(a, b, m, n, k)
    assert both(a, b, m, n, k) == (expected, expected)


@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_reference_second_and_schoolbook_agree_on_small_cases(data, m, n, k):
    """Random operands with many at the rails, where sums cross the edge of the type."""
    value = st.integers(LOW, HIGH) | st.integers(-3, 3) | st.sampled_from([LOW, HIGH, 1 << 16, -(1 << 15)])
    a = data.draw(st.lists(value, min_size=m * k, max_size=m * k))
    b = data.draw(st.lists(value, min_size=k * n, max_size=k * n))
    expected = schoolbook(a, b, m, n, k)
    assert both(a, b, m, n, k) == (expected, expected)


@pytest.mark.parametrize(
    ("true", "leaves"), [(HIGH, 0), (HIGH + 1, 1), (LOW, 0), (LOW - 1, 1), (1 << 32, 1), (-(1 << 32), 1), (0, 0)]
)
def test_a_sum_is_counted_exactly_when_it_is_no_int32(true, leaves):
    """Sums at the edge of int32, one step inside and one outside; 2^32 is counted although its residue is 0."""
    near = max(LOW, min(HIGH, true))
    a, b = [near, true - near, 0], [1, 1, 7]
    if not LOW <= true - near <= HIGH:
        a, b = [1 << 16, 0, 0], [true >> 16, 0, 0]
    (values, count), second = both(a, b, 1, 1, 3)
    assert (values, count) == second == ([(true - LOW) % (1 << 32) + LOW], leaves)


@pytest.mark.parametrize("value", [LOW, HIGH])
def test_all_rails_over_many_terms_are_exact(value):
    """The largest products there are, more of them than an int64 sum could hold."""
    k = 1000
    expected = schoolbook([value] * k, [LOW] * k, 1, 1, k)
    assert both([value] * k, [LOW] * k, 1, 1, k) == (expected, expected)
    assert expected[1] == 1


def test_a_band_of_the_second_ends_inside_the_matrix():
    """More rows than one band holds, the last band short."""
    m, n, k = 70, 1000, 2
    a, b = list(range(-m, m * k - m)), [HIGH - t for t in range(k * n)]
    expected = schoolbook(a, b, m, n, k)
    assert both(a, b, m, n, k) == (expected, expected)


def test_the_halves_give_the_true_sum_where_int64_wraps():
    """Four products of 2^62 make 2^64: the modular sum is 0, the halves are not."""
    column = np.full((4, 1), LOW, np.int64)
    modular, high, low = column_stream(column, column, np.uint64)
    assert (int(modular[0, 0]), int(high[0, 0]), int(low[0, 0])) == (0, 1 << 32, 0)
