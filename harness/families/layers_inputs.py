"""Data distributions of the kernels in `layers.py`: rows of Q16 activations, within the contracts of dyadic-q16.

Activations are below 2^47, norm gains below 2^40, each product and sum below 2^62 in magnitude.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.families.linear_inputs import BLOCKS, Parts, pack
from harness.inputs import random_integers

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

ACTIVATION = 2**47 - 1
GAIN = 2**40 - 1
PRODUCT = 2**62 - 1
ONE = 2**16
SILU_END = 16 * ONE
EPS32 = 42950
"""An epsilon of 1e-5, as most models have it, in Q32."""
BASE = Fraction(100000)
"""The RoPE base of SmolLM2."""


@cache
def table(name: str) -> Array:
    """E1, E2 or G, Q30 in 32 bits: data whose digest the profile's document states."""
    from cpu_ref import dyadic_q16  # FLINT and mpmath load slowly, and most processes need no table

    return np.array(dyadic_q16.checked_tables()[name], np.int32)


def uniform(case: Case, name: str, shape: tuple[int, ...], low: int, high: int) -> Array:
    """Integers in low..high."""
    return random_integers(f"{case.id}/{name}", int(np.prod(shape)), low, high).reshape(shape)


def symmetric(case: Case, name: str, shape: tuple[int, ...], top: int) -> Array:
    """Integers in -top..top."""
    return uniform(case, name, shape, -top, top)


def signs(case: Case, name: str, shape: tuple[int, ...]) -> Array:
    """-1 or 1."""
    return 2 * uniform(case, name, shape, 0, 1) - 1


def cycled(values: list[int], shape: tuple[int, ...]) -> Array:
    """The values in turn."""
    return np.resize(np.array(values, np.int64), shape)


def _mn(case: Case) -> tuple[int, int]:
    return case.dims["m"], case.dims["n"]


# embedding


def _embedding_arrays(case: Case, halves: Array) -> Arrays:
    """Scales and mins out of `halves` by position, any quants; ids with the first row, the last and a repeated one."""
    t, v, k = (case.dims[d] for d in "tvk")
    kind = case.kernel.replace("embedding", "linear")
    scales, mins = (halves[uniform(case, n, (v, k // 32), 0, len(halves) - 1)] for n in ("scale", "min"))
    q = uniform(case, "q", (v, k), BLOCKS[kind].low, BLOCKS[kind].high)
    ids = uniform(case, "ids", (t,), 0, v - 1)
    ids[: t // 2] = cycled([v - 1, 0, 0], (t // 2,))
    return {"ids": ids.astype(np.int32), "w": pack(kind, Parts(scales, mins, q, np.empty((0, k), np.int64)))}


def _embedding_full(case: Case) -> Arrays:
    """Scales and mins of any finite half, subnormals and both zeros too, any quants: every way to decode a block wrongly."""
    finite = np.arange(0x7C00, dtype=np.uint16)
    return _embedding_arrays(case, np.concatenate([finite, finite | np.uint16(0x8000)]))


def _embedding_ties(case: Case) -> Arrays:
    """Scales and mins of 2^-17 or its negative: weights are multiples of 2^7, half of them exact ties, of both signs."""
    return _embedding_arrays(case, np.array([0x0080, 0x8080], np.uint16))


# residual


def _residual_full(case: Case) -> Arrays:
    """Both addends up to half of the contract, of both signs."""
    return {name: symmetric(case, name, _mn(case), 2**46 - 1) for name in "xy"}


def _residual_carries(case: Case) -> Arrays:
    """Low words at 0, 1 and all ones against each other: carry and borrow between the words, sums of 0 and -1."""
    words = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**33 - 1, 2**31, 2**31 - 1]
    x, y = (cycled(words, _mn(case)) * signs(case, name, _mn(case)) for name in "xy")
    return {"x": x, "y": np.roll(y, 3)}


def _residual_edge(case: Case) -> Arrays:
    """Every sum is 2^47 - 1 or its negative, the last that the contract allows."""
    x = symmetric(case, "x", _mn(case), ACTIVATION)
    return {"x": x, "y": np.where(x < 0, -ACTIVATION - x, ACTIVATION - x)}


# gate


def _gate_arrays(gate: Array, up: Array) -> Arrays:
    return {"gate": gate, "up": up, "g": table("G")}


def _gate_full(case: Case) -> Arrays:
    """Gates up to 32 of both signs, half of them past the table's end; any product within 2^61."""
    return _gate_arrays(symmetric(case, "gate", _mn(case), 2 * SILU_END), symmetric(case, "up", _mn(case), 2**40 - 1))


def _gate_table(case: Case) -> Arrays:
    """Entries of the table, neighbours, ties of the interpolation, the last entry, far beyond it, times 1.0: silu bare."""
    m, n = _mn(case)
    knots = 32 * uniform(case, "knot", (m, n), 0, SILU_END // 32) + cycled([0, 1, -1, 16], (m, n))
    ends = [SILU_END - 1, SILU_END, SILU_END + 1, SILU_END - 32, 0, 1, 2**31, 2**32 - 1, 2**32 - 2**20]
    gate = np.where(uniform(case, "pick", (m, n), 0, 3) > 0, knots, cycled(ends, (m, n)))
    gate *= signs(case, "sign", (m, n))
    gate.flat[0] = -ACTIVATION  # the sigmoid is 0 there: nothing bounds it
    return _gate_arrays(gate, np.full((m, n), ONE, np.int64))


def _gate_ties(case: Case) -> Arrays:
    """Exact ties of both signs in the product with `up`, a multiple of 2^15. No gate makes a tie of silu itself."""
    gate = SILU_END + 1 + 2 * uniform(case, "gate", _mn(case), 0, 2**20)
    up = (2 * uniform(case, "up", _mn(case), 0, 2**15) + 1) * 2**15 * signs(case, "sign", _mn(case))
    return _gate_arrays(gate, up)


def _gate_edge(case: Case) -> Arrays:
    """Products of 2^62 - 1 and its negative, and gates at the edge of their own product."""
    pairs = [(2**31 - 1, 2**31 + 1), (2**31 - 1, -(2**31) - 1), (2**32 - 1, 2**30), (2**32 - 1, -(2**30))]
    gate, up = (cycled([p[i] for p in pairs], _mn(case)) for i in (0, 1))
    return _gate_arrays(gate, up)


# rmsnorm


def _norm_arrays(x: Array, g: Array, eps32: int = EPS32) -> Arrays:
    return {"x": x, "g": g, "eps32": np.array([eps32], np.int64)}


def _norm_full(case: Case) -> Arrays:
    """Activations up to 64, gains up to 2, of both signs: what a model has."""
    return _norm_arrays(symmetric(case, "x", _mn(case), 2**22), symmetric(case, "g", (case.dims["n"],), 2**25))


def _norm_magnitudes(case: Case) -> Arrays:
    """Two rows below each 2^i, i up to 47, one in its upper half: sums of squares of every length b, odd, even, over 64."""
    m, n = _mn(case)
    rows = np.arange(m, dtype=np.int64)[:, None]
    tops = (np.int64(1) << (rows // 2 % 47 + 1)) - 1
    x = uniform(case, "x", (m, n), 0, 2**52) % np.where(rows % 2, tops + 1, tops // 2 + 1)
    x = np.where(rows % 2, x, tops - x)
    return _norm_arrays(x * signs(case, "sign", (m, n)), symmetric(case, "g", (n,), GAIN), 1)


def _norm_ties(case: Case) -> Arrays:
    """Rows of 2^32 - 1 times 2^r, whose inv is 2^31, under gains of 2^39 and 2^38: all or a half of the outputs are ties."""
    m, n = _mn(case)
    powers = np.int64(1) << (np.arange(m, dtype=np.int64)[:, None] % 15)
    x = (2**32 - 1) * powers * signs(case, "x", (m, n))
    return _norm_arrays(x, cycled([2**39, -(2**39), 2**38], (n,)))


def _norm_least(case: Case) -> Arrays:
    """Elements in -1..1, rows of zeros, epsilon of 1: the smallest mean and the largest inv."""
    m, n = _mn(case)
    x = uniform(case, "x", (m, n), -1, 1) * (uniform(case, "rows", (m, 1), 0, 2) > 0)
    return _norm_arrays(x, symmetric(case, "g", (n,), GAIN), 1)


def _norm_edge(case: Case) -> Arrays:
    """Every element and gain at its contract's edge, of both signs; one row with one element only."""
    m, n = _mn(case)
    x = ACTIVATION * signs(case, "x", (m, n))
    x[0, 1:] = 0
    return _norm_arrays(x, GAIN * signs(case, "g", (n,)), 2**31 + 1)


# rope


def _thd(case: Case) -> tuple[int, int, int]:
    return case.dims["t"], case.dims["h"], case.dims["hd"]


def _angles(case: Case) -> tuple[int, int]:
    return case.dims["t"], case.dims["hd"] // 2


def _rope_full(case: Case) -> Arrays:
    """A model's tables, positions from 0, and heads up to 2^30 of both signs."""
    from cpu_ref import dyadic_q16

    t, _, hd = _thd(case)
    rows = [dyadic_q16.rope_row(BASE, hd, position) for position in range(t)]
    c, s = (np.array([row[i] for row in rows], np.int32) for i in (0, 1))
    return {"x": symmetric(case, "x", _thd(case), 2**30), "c": c, "s": s}


def _rope_ties(case: Case) -> Arrays:
    """Tables of odd multiples of 2^29 and zeros, heads of odd integers: ties of both signs in both outputs."""
    c, s = (cycled([0, 1, 1], _angles(case)) * 2**29 * signs(case, n, _angles(case)) for n in "cs")
    x = 2 * symmetric(case, "x", _thd(case), 2**31 - 2) + 1
    return {"x": x, "c": c.astype(np.int32), "s": np.roll(s, 1, axis=1).astype(np.int32)}


def _rope_edge(case: Case) -> Arrays:
    """Tables at -1, 0 and 1: every sum at the edge of 2^62, or a term there that another takes away."""
    c = cycled([2**30, -(2**30), 2**30, 0], _angles(case))
    s = cycled([2**30, 2**30, -(2**30), 2**30], _angles(case))
    x = (2**31 - 1) * signs(case, "x", _thd(case))
    return {"x": x, "c": c.astype(np.int32), "s": s.astype(np.int32)}


# kv_append


def _append_full(case: Case) -> Arrays:
    """Any activation: a row or a word in the wrong place shows."""
    return {"rows": symmetric(case, "rows", (case.dims["t"], case.dims["w"]), ACTIVATION)}


# argmax


def _argmax_full(case: Case) -> Arrays:
    """Any logit: signs and both words decide."""
    return {"x": symmetric(case, "x", _mn(case), ACTIVATION)}


def _argmax_equals(case: Case) -> Arrays:
    """Few values, so that many places share the largest: the lowest must win under every schedule."""
    return {"x": symmetric(case, "x", _mn(case), 2)}


def _argmax_words(case: Case) -> Arrays:
    """Words at 0, 2^31 and all ones under few high words: a signed compare of low words or an unsigned of high ones shows."""
    m, n = _mn(case)
    low = cycled([0, 2**31, 2**32 - 1, 2**31 - 1], (m, n))
    return {"x": np.roll(low, 1) + symmetric(case, "x", (m, n), 1) * 2**32 - (np.arange(m)[:, None] % 2) * 2**34}


def _argmax_edge(case: Case) -> Arrays:
    """All at the least logit but one, which is the last, the first or any; rows where all are the least."""
    m, n = _mn(case)
    x = np.full((m, n), -ACTIVATION, np.int64)
    places = np.where(np.arange(m) % 4 == 0, n - 1, uniform(case, "place", (m,), 0, n - 1))
    places[1::4] = 0
    x[np.arange(m), places] += cycled([1, 2 * ACTIVATION, 1, 0], (m,))
    return {"x": x}


DISTRIBUTIONS: dict[str, dict[str, Callable[[Case], Arrays]]] = {
    **{f"embedding_{block}": {"full": _embedding_full, "ties": _embedding_ties} for block in ("q8_0", "q4_1", "q4_0")},
    "residual": {"full": _residual_full, "carries": _residual_carries, "edge": _residual_edge},
    "gate": {"full": _gate_full, "table": _gate_table, "ties": _gate_ties, "edge": _gate_edge},
    "rmsnorm": {
        "full": _norm_full,
        "magnitudes": _norm_magnitudes,
        "ties": _norm_ties,
        "least": _norm_least,
        "edge": _norm_edge,
    },
    "rope": {"full": _rope_full, "ties": _rope_ties, "edge": _rope_edge},
    "argmax": {"full": _argmax_full, "equals": _argmax_equals, "words": _argmax_words, "edge": _argmax_edge},
    "kv_append": {"full": _append_full},
}


def layer_inputs(case: Case) -> Arrays:
    """The input tensors of a case by name."""
    return DISTRIBUTIONS[case.kernel][case.dist](case)
