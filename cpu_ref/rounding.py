"""The roundings of profiles/common.md on mathematical integers. `k` is at least 1; `>>` is floor."""

from fractions import Fraction


def floor_shift(x: int, k: int) -> int:
    """x / 2^k, rounded toward -infinity."""
    return x >> k


def round_shift(x: int, k: int) -> int:
    """x / 2^k to the nearest integer, ties toward +infinity."""
    return (x + (1 << (k - 1))) >> k


def round_away(x: int, k: int) -> int:
    """x / 2^k to the nearest integer, ties away from zero."""
    magnitude = (abs(x) + (1 << (k - 1))) >> k
    return -magnitude if x < 0 else magnitude


def rne(r: Fraction | int) -> int:
    """The nearest integer to an exact rational, ties to even."""
    return round(Fraction(r))
