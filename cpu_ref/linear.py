"""Op 2 of dyadic-q16: `acc = sum_k W_k * x_k` (Q24 times Q16: Q40, exact), `y = round_shift(acc, 24)`.

Contracts, checked on the true integers in this order: abs(x) < 2^47, every term and then every sum below 2^62 in
magnitude. The first broken element, in row-major order, is raised as `RangeContract`. (The profile's abs(y) < 2^47
follows: a sum inside gives abs(y) <= 2^38.)
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from flint import fmpz_mat

from cpu_ref.errors import RangeContract
from cpu_ref.products import FEW_COLUMNS, exact_dots, exact_product
from cpu_ref.rounding import round_shift
from cpu_ref.weights import BLOCK, BlockType, Weights

ACTIVATION_BITS = 47
SUM_BITS = 62
BAND = 1 << 20
"""Weights that are Python ints at one time, so that a vocabulary of rows fits in memory."""


def linear(kind: BlockType, w: bytes | memoryview, x: Sequence[int], k: int, name: str = "w") -> list[int]:
    """`Linear(W, x)` without a bias, row-major i64[m,n]: w is n rows of k weights in blocks, x is i64[m,k].

    Raises WeightsRefused (with tensor `name`, row and block) and RangeContract (operation, element, value).
    """
    weights = Weights(kind, w, k, name)
    tokens = [x[i : i + k] for i in range(0, len(x), k)]
    _check("linear.x", x, k, ACTIVATION_BITS)
    _check_terms(weights, tokens)
    acc = _sums(weights, tokens)
    _check("linear.sum", acc, len(acc) // len(tokens), SUM_BITS)
    return [round_shift(v, 24) for v in acc]


def _check(op: str, values: Sequence[int], row: int, bits: int) -> None:
    """Every magnitude below 2^bits; the error gives the place in rows of length `row`."""
    bound = 1 << bits
    if -bound < min(values) and max(values) < bound:
        return
    i = next(i for i, v in enumerate(values) if abs(v) >= bound)
    raise RangeContract(op, divmod(i, row), values[i], bits)


def _check_terms(weights: Weights, tokens: Sequence[Sequence[int]]) -> None:
    """Every |W_k * x_k| < 2^62; the error's element is (token, row, k).

    In a column of blocks no term exceeds (bound of its weights) * (largest |x|). Where that proves too little, the
    largest weight of each of its columns decides exactly.
    """
    limit = 1 << SUM_BITS
    columns = [
        c
        for j, bound in enumerate(weights.bounds())
        for c in range(BLOCK * j, BLOCK * (j + 1))
        if bound * max(abs(token[c]) for token in tokens) >= limit
    ]
    if not columns:
        return
    largest = dict.fromkeys(columns, 0)
    for row in weights.rows():
        for c in columns:
            largest[c] = max(largest[c], abs(row[c]))
    for t, token in enumerate(tokens):
        broken = [c for c in columns if largest[c] * abs(token[c]) >= limit]
        if broken:
            terms = ((r, c, row[c] * token[c]) for r, row in enumerate(weights.rows()) for c in broken)
            r, c, value = next(term for term in terms if abs(term[2]) >= limit)
            raise RangeContract("linear.term", (t, r, c), value, SUM_BITS)


def _sums(weights: Weights, tokens: Sequence[Sequence[int]]) -> list[int]:
    """The exact sums, row-major [m,n]."""
    few = len(tokens) <= FEW_COLUMNS
    by_row = list(_sums_by_python(weights, tokens) if few else _sums_by_flint(weights, tokens))
    return [sums[t] for t in range(len(tokens)) for sums in by_row]


def _sums_by_python(weights: Weights, tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    return (exact_dots(row, tokens) for row in weights.rows())


def _sums_by_flint(weights: Weights, tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    m, rows = len(tokens), weights.rows()
    right = fmpz_mat([list(token) for token in tokens]).transpose()
    while band := list(islice(rows, max(1, BAND // weights.k))):
        flat = [int(v) for v in exact_product(fmpz_mat(band), right)]
        yield from (flat[i : i + m] for i in range(0, len(flat), m))
