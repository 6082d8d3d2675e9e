"""Op 2 of dyadic-q16: `acc = b + sum_k W_k * x_k` (Q24 times Q16: Q40, exact), `y = round_shift(acc, 24)`.

Contracts, checked on the true integers in this order: every b, every term and then every sum below 2^62 in magnitude.
The first broken element, in row-major order, is raised as `RangeContract`. (The profile's abs(y) < 2^47 follows: a sum
inside gives abs(y) <= 2^38.)
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from flint import fmpz_mat

from cpu_ref.contracts import Place
from cpu_ref.errors import RangeContract
from cpu_ref.products import FEW_COLUMNS, exact_dots, exact_product
from cpu_ref.rounding import round_shift
from cpu_ref.weights import BLOCK, BlockType, Weights

ACTIVATION_BITS = 47
SUM_BITS = 62
BAND = 1 << 20
"""Weights that are Python ints at one time, so that a vocabulary of rows fits in memory."""


class Matrix:
    """Weights to multiply by. With `keep`, the matrices of FLINT are built once and stay (8 bytes a weight or more)."""

    def __init__(self, weights: Weights, *, keep: bool) -> None:
        self.weights, self.keep = weights, keep
        self._bounds: list[int] = []
        self._built: list[fmpz_mat] = []

    def sums(self, tokens: Sequence[Sequence[int]]) -> list[list[int]]:
        """`sum_k W_k * x_k` of each token and row, exact: [m][n]."""
        m = len(tokens)
        if m <= FEW_COLUMNS and not self.keep:
            by_row: Iterator[list[int]] = (exact_dots(row, tokens) for row in self.weights.rows())
        else:
            right = fmpz_mat([list(token) for token in tokens]).transpose()
            products = ([int(v) for v in exact_product(band, right)] for band in self._bands())
            by_row = (flat[i : i + m] for flat in products for i in range(0, len(flat), m))
        return [list(column) for column in zip(*by_row, strict=True)]

    def check_terms(self, op: str, tokens: Sequence[Sequence[int]]) -> None:
        """Every |W_k * x_k| < 2^62; the error's element is (token, row, k).

        In a column of blocks no term exceeds (bound of its weights) * (largest |x|). Where that proves too little, the
        largest weight of each of its columns decides exactly.
        """
        limit = 1 << SUM_BITS
        self._bounds = self._bounds or self.weights.bounds()
        reach = [max(abs(v) for v in column) for column in zip(*tokens, strict=True)]
        columns = [c for c, x in enumerate(reach) if self._bounds[c // BLOCK] * x >= limit]
        if not columns:
            return
        heaviest = dict.fromkeys(columns, 0)
        for row in self.weights.rows():
            for c in columns:
                heaviest[c] = max(heaviest[c], abs(row[c]))
        for t, token in enumerate(tokens):
            broken = [c for c in columns if heaviest[c] * abs(token[c]) >= limit]
            if broken:
                terms = ((r, c, row[c] * token[c]) for r, row in enumerate(self.weights.rows()) for c in broken)
                r, c, value = next(term for term in terms if abs(term[2]) >= limit)
                raise RangeContract(op, (t, r, c), value, SUM_BITS)

    def _bands(self) -> Iterator[fmpz_mat]:
        if self._built:
            yield from self._built
            return
        weights, step = self.weights, max(1, BAND // self.weights.k)
        for start in range(0, weights.count, step):
            built = fmpz_mat(min(step, weights.count - start), weights.k, weights.band(start, step))
            if self.keep:
                self._built.append(built)
            yield built


def apply(
    place: Place, matrix: Matrix, tokens: Sequence[Sequence[int]], bias: Sequence[int] | None = None
) -> list[list[int]]:
    """`Linear(W, b, x)`, Q16 [m][n]: tokens are Q16 [m][k], the bias Q40 [n]. RangeContract names the bias, term or sum."""
    if bias is not None:
        place.hold("bias", SUM_BITS, (len(bias),), bias)
    matrix.check_terms(f"{place.op}.term", tokens)
    acc = matrix.sums(tokens)
    if bias is not None:
        acc = [[b + v for b, v in zip(bias, row, strict=True)] for row in acc]
    place.hold("sum", SUM_BITS, (len(acc), len(acc[0])), list(chain.from_iterable(acc)))
    return [[round_shift(v, 24) for v in row] for row in acc]


def linear(
    kind: BlockType,
    w: bytes | memoryview,
    x: Sequence[int],
    k: int,
    name: str = "w",
    bias: Sequence[int] | None = None,
) -> list[int]:
    """`Linear(W, b, x)`, row-major i64[m,n]: w is n rows of k weights in blocks, x is i64[m,k], the bias i64[n].

    Here abs(x) < 2^47 is checked too, first. Raises WeightsRefused (with tensor `name`, row and block) and RangeContract.
    """
    weights = Weights(kind, w, k, name)
    place = Place("linear")
    place.hold("x", ACTIVATION_BITS, (len(x) // k, k), x)
    y = apply(place, Matrix(weights, keep=False), [x[i : i + k] for i in range(0, len(x), k)], bias)
    return list(chain.from_iterable(y))
