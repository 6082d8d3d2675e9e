"""Tables of a profile: made with arbitrary precision by mpmath, rounded once to nearest even, never near a tie unseen.

A table is its element type and its entries. Whether its digest has a header is for the profile's document to say.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from fractions import Fraction
from itertools import accumulate, repeat
from operator import mul

import mpmath

from cpu_ref.digest import BYTES, tensor_digest
from cpu_ref.errors import TableRefused
from cpu_ref.rounding import rne

Table = tuple[str, list[int]]
"""Element type and entries."""

DIGITS = 70
"""Decimal digits of a value before it is rounded: 60 are wanted, a running product of 32,769 factors loses 5."""

FRACTION = 128
HALF = 1 << (FRACTION - 1)
"""Values are rounded as integers with that many fraction bits."""

TIE_DISTANCE = (1 << FRACTION) // 10**9
"""No entry that is not exact may lie nearer to a tie: 1e-9 in units of the last place."""


def precision() -> AbstractContextManager[object]:
    """The context in which the values of a table are computed."""
    context: AbstractContextManager[object] = mpmath.workdps(DIGITS)
    return context


def powers(base: mpmath.mpf, count: int) -> Iterator[mpmath.mpf]:
    """base^0, base^1, ..., base^(count - 1), as a running product."""
    return accumulate(repeat(base, count - 1), mul, initial=mpmath.mpf(1))


def rounded(name: str, values: Iterable[mpmath.mpf | Fraction | int]) -> list[int]:
    """`rne` of each value. Fraction and int are exact; TableRefused where an mpf is within TIE_DISTANCE of a tie."""
    entries = []
    with precision():
        for i, value in enumerate(values):
            if isinstance(value, int | Fraction):
                entries.append(rne(value))
                continue
            fixed = int(mpmath.ldexp(value, FRACTION))
            nearest = (fixed + HALF) >> FRACTION
            if HALF - abs(fixed - (nearest << FRACTION)) < TIE_DISTANCE:
                raise TableRefused(
                    f"{name}[{i}] = {mpmath.nstr(value, 30)}: within 1e-9 of a tie, so no rounding is safe"
                )
            entries.append(nearest)
    return entries


def nearest_tie(values: Iterable[mpmath.mpf]) -> float:
    """The smallest distance of a value to a tie, in units of the last place."""
    with precision():
        return float(min(mpmath.mpf("0.5") - abs(v - mpmath.nint(v)) for v in values))


def table_bytes(table: Table) -> bytes:
    """The entries, little-endian; OverflowError where one does not fit the element type."""
    element, entries = table
    return b"".join(v.to_bytes(BYTES[element], "little", signed=element[0] == "i") for v in entries)


def table_digest(table: Table) -> str:
    """SHA-256 of a table as a tensor of one dimension, header included."""
    return tensor_digest(table[0], (len(table[1]),), table_bytes(table))


def checked(tables: Mapping[str, Table], digests: Mapping[str, str]) -> dict[str, list[int]]:
    """The entries of each table; TableRefused where one has not the digest that its document gives."""
    for name, table in tables.items():
        if (found := table_digest(table)) != digests[name]:
            raise TableRefused(f"table {name} has digest {found}, the profile's document says {digests[name]}")
    return {name: entries for name, (_, entries) in tables.items()}
