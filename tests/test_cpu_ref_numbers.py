"""Digest, roundings and the decoding of fp16 scales, against definitions that share no code with them."""

import hashlib
import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_ref.digest import tensor_digest
from cpu_ref.integers import read_signed, write_residues, write_signed
from cpu_ref.rounding import floor_shift, rne, round_away, round_shift
from cpu_ref.second.blocks import half_table
from cpu_ref.weights import half_q24


def test_a_digest_covers_the_header_a_zero_byte_and_the_values():
    """The bytes that are hashed, written out."""
    data = struct.pack("<3q", 1, -2, 3)
    assert tensor_digest("i64", (1, 3), data) == hashlib.sha256(b"i64[1,3]\0" + data).hexdigest()


def test_data_of_another_length_has_no_digest():
    """A digest never stands for a tensor cut short."""
    with pytest.raises(ValueError, match="takes 8 bytes, not 7"):
        tensor_digest("i32", (2,), bytes(7))


def test_integers_survive_the_way_to_bytes_and_back():
    """Signed rails of both widths, and residues read back as signed."""
    for width in (4, 8):
        top = 1 << (8 * width - 1)
        values = [0, 1, -1, top - 1, -top]
        assert read_signed(write_signed(values, width), width) == values
        assert read_signed(write_residues([v % (2 * top) for v in values], width), width) == values
        assert write_signed([1], width) == b"\1" + bytes(width - 1)
        with pytest.raises(OverflowError):
            write_signed([top], width)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 24, 62])
def test_the_roundings_differ_only_at_negative_ties(k):
    """At each shift: both ties around zero and their neighbours, as common.md defines them."""
    half = 1 << (k - 1)
    for units in (-3, -2, -1, 0, 1, 2):
        tie = (units << k) + half
        assert (floor_shift(tie, k), round_shift(tie, k)) == (units, units + 1)
        assert round_away(tie, k) == (units + 1 if tie > 0 else units)
        assert rne(Fraction(tie, 1 << k)) == (units if units % 2 == 0 else units + 1)
        for rounding in (round_shift, round_away):
            if k > 1:
                assert rounding(tie - 1, k) == units
                assert rounding(tie + 1, k) == units + 1


@given(st.integers(-(1 << 90), 1 << 90), st.integers(1, 70))
def test_each_rounding_is_the_nearest_integer_of_the_exact_quotient(x, k):
    """Against fractions: at most half a unit away, and the floor below."""
    exact = Fraction(x, 1 << k)
    assert 0 <= exact - floor_shift(x, k) < 1
    assert -Fraction(1, 2) < round_shift(x, k) - exact <= Fraction(1, 2)
    assert round_away(-x, k) == -round_away(x, k)
    assert abs(round_away(x, k) - exact) <= Fraction(1, 2)


def test_every_half_is_exact_in_q24_or_has_no_value():
    """All 65,536 patterns by both implementations, against struct's own half and exact fractions."""
    values, finite = half_table()
    for bits in range(1 << 16):
        (real,) = struct.unpack("<e", struct.pack("<H", bits))
        if bits & 0x7C00 == 0x7C00:
            assert not finite[bits]
            with pytest.raises(ValueError, match="infinite or NaN"):
                half_q24(bits)
        else:
            assert finite[bits]
            assert half_q24(bits) == int(values[bits]) == Fraction(real) * (1 << 24)
