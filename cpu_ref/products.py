"""Exact products of integer matrices. Nothing wraps: FLINT's integers, or Python's own, are as long as they must be."""

import os
from collections.abc import Sequence
from operator import mul

import flint
from flint import fmpz, fmpz_mat

FEW_COLUMNS = 4
"""Up to so many columns, Python's own sums beat the way of every matrix entry into FLINT and back."""


def exact_product(left: fmpz_mat, right: fmpz_mat) -> list[fmpz]:
    """The true integers of `left @ right`, row-major, as FLINT's. FLINT may use all cores."""
    flint.ctx.threads = os.cpu_count() or 1
    return (left * right).entries()


def exact_dots(row: Sequence[int], columns: Sequence[Sequence[int]]) -> list[int]:
    """The true integers of one row times each column, by Python ints."""
    return [sum(map(mul, row, column)) for column in columns]
