"""Tables: rounded once, refused near a tie, held to the document's digests; by mpmath and by ball arithmetic."""

import hashlib
import struct
from fractions import Fraction

import flint
import mpmath
import pytest
from flint import arb, fmpq

from cpu_ref import dyadic_q16 as reference
from cpu_ref import tables
from cpu_ref.errors import TableRefused
from cpu_ref.second import dyadic_q16 as second
from cpu_ref.second import tables as balls
from cpu_ref.second.errors import TableRefused as SecondRefused


@pytest.mark.parametrize("distance", ["1e-10", "-1e-10", "9.9e-10", "1e-60", "0"])
def test_a_value_within_a_billionth_of_a_tie_is_refused_by_name_and_place(distance):
    """By both implementations; an mpf that looks exact is no exact value."""
    with tables.precision():
        near = mpmath.mpf("-6.5") + mpmath.mpf(distance)
    with pytest.raises(TableRefused, match=r"^E1\[1\] = -6\.(5|4999).*within 1e-9 of a tie"):
        tables.rounded("E1", [mpmath.mpf(1), near])
    with flint.ctx.workprec(balls.BITS), pytest.raises(SecondRefused, match=r"^E1\[1\]"):
        balls.rounded("E1", [arb(1), arb("-6.5") + arb(distance)])


@pytest.mark.parametrize(("distance", "expected"), [("1.1e-9", -6), ("-1.1e-9", -7), ("0.2", -6), ("-0.5", -7)])
def test_a_value_farther_from_a_tie_is_rounded_to_nearest(distance, expected):
    """Just outside the distance, and far outside it."""
    with tables.precision():
        assert tables.rounded("t", [mpmath.mpf("-6.5") + mpmath.mpf(distance)]) == [expected]
    with flint.ctx.workprec(balls.BITS):
        assert balls.rounded("t", [arb("-6.5") + arb(distance)]) == [expected]


def test_an_exact_tie_goes_to_even():
    """Fractions and ints are exact, so a tie is a tie."""
    assert tables.rounded("t", [Fraction(5, 2), Fraction(7, 2), Fraction(-1, 2), 3]) == [2, 4, 0, 3]


def test_a_ball_too_wide_to_be_rounded_is_refused():
    """Precision that would not do is noticed."""
    with flint.ctx.workprec(20), pytest.raises(SecondRefused):
        balls.rounded("t", [arb(1 << 30) * arb(fmpq(1, 3))])


def test_both_implementations_make_the_same_tables():
    """Element types, entries, and their ends by formula."""
    made = reference.tables()
    assert made == second.tables()
    one = 1 << 30
    assert [(name, len(entries)) for name, (_, entries) in made.items()] == [("E1", 5632), ("E2", 256), ("G", 32769)]
    assert (made["E1"][1][0], made["E2"][1][0], made["G"][1][0]) == (one, one, one // 2)
    assert made["E1"][1][256] == 395007542  # 2^30 / e = 395007542.30...


@pytest.mark.parametrize(("name", "distance"), [("E1", 1.4e-4), ("E2", 5.1e-6), ("G", 1.5e-5)])
def test_the_nearest_ties_are_the_documents(name, distance):
    """To the two digits that it prints."""
    assert float(f"{tables.nearest_tie(reference.exact_tables()[name]):.1e}") == distance


def test_a_table_with_another_digest_is_refused(monkeypatch):
    """One entry off by one: no result of either implementation."""
    made = reference.tables()
    made["G"][1][77] += 1
    with pytest.raises(TableRefused, match=r"^table G has digest [0-9a-f]{64}, the profile's document says 0747e95d"):
        tables.checked(made, reference.TABLE_DIGESTS)
    monkeypatch.setattr(second, "tables", lambda: made)
    second.checked_tables.cache_clear()
    with pytest.raises(SecondRefused, match=r"^table G has digest"):
        second.softmax(second.np.zeros(1, second.np.int64))
    second.checked_tables.cache_clear()


def test_a_digest_covers_element_type_count_and_bytes():
    """Header, zero byte, little-endian values; an entry outside its type is no table."""
    table = ("u16", [1, 65535])
    assert tables.table_digest(table) == hashlib.sha256(b"u16[2]\0" + struct.pack("<2H", 1, 65535)).hexdigest()
    assert tables.table_bytes(("i8", [-1, 127])) == b"\xff\x7f"
    with pytest.raises(OverflowError):
        tables.table_bytes(("u16", [-1]))
