"""Data distributions of the `nel_*` kernels: single operations of nel-mini-w8a8 on full-range operands.

The first line of a docstring says what a distribution can catch. Ties are planted wherever an operation rounds.
"""

from collections.abc import Callable
from functools import cache
from math import isqrt

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.families import nel_stages
from harness.inputs import random_integers

Ints = npt.NDArray[np.int64]
Inputs = dict[str, npt.NDArray[np.generic]]
Generator = Callable[[Case], dict[str, Ints]]

FAR = -(1 << 17)
"""The lowest score; from it to the highest the distance is that of the most powers of two, 32."""


@cache
def tables() -> dict[str, Ints]:
    """The profile's tables, their digests checked."""
    from cpu_ref.nel_mini_data import checked_tables  # generates them: only where a case needs one

    return {name: np.array(entries, np.int64) for name, entries in checked_tables().items()}


def _draw(case: Case, name: str, shape: tuple[int, ...], low: int = -128, high: int = 127) -> Ints:
    return random_integers(f"{case.id}/{name}", int(np.prod(shape)), low, high).reshape(shape)


def _size(case: Case, *names: str) -> tuple[int, ...]:
    return tuple(case.dims[name] for name in names)


# Embedding


def _rows(case: Case) -> dict[str, Ints]:
    """Any ids, full-range rows: a wrong row, a wrong byte, a lost sign."""
    m, v, n = _size(case, "m", "v", "n")
    return {"ids": _draw(case, "ids", (m,), 0, v - 1), "embed": _draw(case, "embed", (v, n))}


# Matmul


def _factors(case: Case) -> dict[str, Ints]:
    """Full-range matrices, -128 alone in the first row and column: a lost sign, the largest sum."""
    m, n, k = _size(case, "m", "n", "k")
    a, b = _draw(case, "a", (m, k)), _draw(case, "b", (k, n))
    a[0], b[:, 0] = -128, -128
    return {"a": a, "b": b}


# Requant


def _sums(case: Case) -> dict[str, Ints]:
    """Sums that end within and beyond i8: rounding and clipping."""
    top = 200 << case.dims["shift"]
    return {"acc": _draw(case, "acc", _size(case, "m", "n"), -top, top)}


def _requant_ties(case: Case) -> dict[str, Ints]:
    """Exact ties of both signs at every result, and one step to each side: which way a tie goes, and by how much."""
    m, n, shift = _size(case, "m", "n", "shift")
    i = np.arange(m * n)
    ties = (2 * (i // 3 % 281 - 140) + 1) << (shift - 1)
    return {"acc": (ties + np.array([0, 1, -1])[i % 3]).reshape(m, n)}


def _requant_rails(case: Case) -> dict[str, Ints]:
    """The ends of the contract, 2^31 - 1 and its negative: a rounding half that leaves the type."""
    sign = _draw(case, "sign", _size(case, "m", "n"), 0, 1)
    return {"acc": np.where(sign == 1, (1 << 31) - 1, 1 - (1 << 31))}


# RMSNorm


def _norm(case: Case) -> dict[str, Ints]:
    """Full-range rows and gains of both signs."""
    return {"x": _draw(case, "x", _size(case, "m", "k")), "gain": _draw(case, "gain", (case.dims["k"],))}


def _norm_ties(case: Case) -> dict[str, Ints]:
    """Rows with a mean square below 3, so that z is 1 and an odd x * gain an exact tie of either sign."""
    m, k = _size(case, "m", "k")
    x = np.zeros((m, k), np.int64)
    for i in range(3):
        odd = 2 * _draw(case, f"x{i}", (m,), -3, 2) + 1
        x[np.arange(m), (np.arange(m) * 3 + i) % k] = odd
    return {"x": x, "gain": 2 * _draw(case, "gain", (k,), -64, 63) + 1}


def _norm_roots(case: Case) -> dict[str, Ints]:
    """Mean squares at z^2 - 1, one below and one above, z = 1 to 126: the root, and the 1 under it."""
    m, k = _size(case, "m", "k")
    x = np.zeros((m, k), np.int64)
    for t in range(m):
        z = 1 + (t // 3 * 5) % 128
        left = k * max(0, z * z - 1 + (0, -1, 1)[t % 3]) + k - 1  # the floor drops what is not reached
        for c in range(k):
            x[t, c] = -min(128, isqrt(left))
            left -= int(x[t, c]) ** 2
    return {"x": x, "gain": _draw(case, "gain", (k,))}


def _norm_rails(case: Case) -> dict[str, Ints]:
    """All -128, all 0 and all 127 in turn: the largest sum of squares, the smallest, and clipping."""
    m, k = _size(case, "m", "k")
    x = np.broadcast_to(np.array([-128, 0, 127])[np.arange(m) % 3][:, None], (m, k))
    return {"x": x, "gain": np.where(np.arange(k) % 2, 127, -128)}


# RoPE


def _heads(case: Case) -> dict[str, Ints]:
    """Full-range heads at each position: a wrong pair, angle or sign."""
    return {"x": _draw(case, "x", _size(case, "m", "n"))}


def _rope_ties(case: Case) -> dict[str, Ints]:
    """Pairs whose first or second half is an exact tie, of both signs, wherever a position has one."""
    m, n, p = _size(case, "m", "n", "p")
    x = _draw(case, "x", (m, n // 8, 2, 4))
    a, b = (v.ravel() for v in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij"))
    cosines, sines = tables()["COS"], tables()["SIN"]
    for t in range(m):
        for i in range(4):
            at = 4 * (p - m + t) + i
            first, second = a * cosines[at] - b * sines[at], a * sines[at] + b * cosines[at]
            ties = np.flatnonzero((first % 32768 == 16384) | (second % 32768 == 16384))
            if len(ties):
                chosen = ties[(np.arange(n // 8) * 7 + t) % len(ties)]
                x[t, :, 0, i], x[t, :, 1, i] = a[chosen], b[chosen]
    return {"x": x.reshape(m, n)}


def _rope_rails(case: Case) -> dict[str, Ints]:
    """-128 and 127 in all pairings: sums that clip."""
    return {"x": np.array([-128, 127])[_draw(case, "x", _size(case, "m", "n"), 0, 1)]}


# Attention


def _products(case: Case) -> dict[str, Ints]:
    """Full-range queries and keys: a wrong head, a later key, a lost sign."""
    m, p, d = _size(case, "m", "p", "d")
    return {"q": _draw(case, "q", (m, 4, d)), "k": _draw(case, "k", (p, 2, d))}


def _products_rails(case: Case) -> dict[str, Ints]:
    """-128 and 127 in all pairings, -128 alone in the first rows: the largest sum there is, 2^17."""
    m, p, d = _size(case, "m", "p", "d")
    ends = np.array([-128, 127])
    q, k = ends[_draw(case, "q", (m, 4, d), 0, 1)], ends[_draw(case, "k", (p, 2, d), 0, 1)]
    q[0], k[0] = -128, -128
    return {"q": q, "k": k}


def _scores(case: Case) -> dict[str, Ints]:
    """Scores over the whole range: most weigh nothing, n reaches 32."""
    return {"s": _draw(case, "s", (4, *_size(case, "m", "p")), FAR, -FAR)}


def _scores_near(case: Case) -> dict[str, Ints]:
    """Scores near each other: many entries of the table, several powers, sums of many weights."""
    return {"s": _draw(case, "s", (4, *_size(case, "m", "p")), -4000, 4000)}


def _scores_steps(case: Case) -> dict[str, Ints]:
    """Distances at each step of 128 and beside it, up to where nothing weighs: every entry under every power."""
    m, p = _size(case, "m", "p")
    d = np.arange(4 * m * p) * 487 % 1100
    s = -128 * d + _draw(case, "s", (4 * m * p,), 0, 2) - 1
    s = s.reshape(4, m, p) + 60000
    s[:, :, 0] = 60000
    s[0, :, 1:] = FAR  # in the first head alone beside the largest: the only entry that weighs 1 under 15 powers
    s[0, :, 1:2] = 60000 - 128 * 960
    return {"s": s}


def _scores_equal(case: Case) -> dict[str, Ints]:
    """Equal scores: 1 to P equal weights, one alone is clamped to 32767."""
    rows = _draw(case, "s", (4, case.dims["m"], 1), FAR, -FAR)
    return {"s": np.broadcast_to(rows, (4, *_size(case, "m", "p")))}


@cache
def _weight_ties() -> list[tuple[int, int]]:
    """(equal scores, distance of one more) where a weight is an exact tie."""
    powers, found = tables()["EXP2"], []
    for equal in range(1, 8):
        for distance in range(1024):
            e = [1 << 15, int(powers[distance % 64]) >> distance // 64]
            ratio = (1 << 30) // (equal * e[0] + e[1])
            if any(v * ratio % (1 << 15) == 1 << 14 for v in e):
                found.append((equal, distance))
    return found


def _scores_ties(case: Case) -> dict[str, Ints]:
    """Few keys that weigh, so chosen that a weight is an exact tie."""
    m, p = _size(case, "m", "p")
    s = np.full((4, m, p), FAR)
    for h in range(4):
        for t in range(m):
            seen = p - m + t + 1
            fitting = [tie for tie in _weight_ties() if tie[0] < seen] or [(seen, 0)]
            equal, distance = fitting[(4 * t + h) % len(fitting)]
            s[h, t, :equal] = 100000
            s[h, t, equal : equal + 1] = 100000 - 128 * distance
    return {"s": s}


def _weights(case: Case) -> dict[str, Ints]:
    """Weights and values over their whole ranges, 0 and 32767 among them."""
    m, p = _size(case, "m", "p")
    weights = _draw(case, "p", (4, m, p), 0, 32767)
    pick = _draw(case, "pick", (4, m, p), 0, 3)
    return {"p": np.where(pick == 0, 32767, np.where(pick == 1, 0, weights)), "v": _draw(case, "v", (p, 16))}


def _weights_rails(case: Case) -> dict[str, Ints]:
    """Every weight 32767, values -128 in the first head, -128 and 127 in the second: the largest sums."""
    m, p = _size(case, "m", "p")
    v = np.array([-128, 127])[_draw(case, "v", (p, 16), 0, 1)]
    v[:, :8] = -128
    return {"p": np.full((4, m, p), 32767), "v": v}


def _weights_one_hot(case: Case) -> dict[str, Ints]:
    """One weight a row: a wrong key, head or column shows bare."""
    m, p = _size(case, "m", "p")
    key = _draw(case, "key", (4, m), 0, 63) % (np.arange(m) + p - m + 1)
    return {"p": (np.arange(p) == key[:, :, None]) * 32767, "v": _draw(case, "v", (p, 16))}


# MLP, residual, choice


def _pairs(case: Case, first: str, second: str) -> dict[str, Ints]:
    m, n = _size(case, "m", "n")
    pair = (np.arange(m * n) * 40503 + case.seed) % 65536
    return {first: (pair // 256 - 128).reshape(m, n), second: (pair % 256 - 128).reshape(m, n)}


def _act_pairs(case: Case) -> dict[str, Ints]:
    """Pairs of all i8 operands, all 65,536 where there is room, 592 ties among them: the index by gate's byte."""
    return _pairs(case, "gate", "up")


def _residual_pairs(case: Case) -> dict[str, Ints]:
    """Pairs of all i8 operands, all 65,536 where there is room: clipping at both ends."""
    return _pairs(case, "a", "b")


def _logits(case: Case) -> dict[str, Ints]:
    """All of i32: the sign of a comparison."""
    return {"logits": _draw(case, "logits", _size(case, "m", "n"), -(1 << 31), (1 << 31) - 1)}


def _logits_ties(case: Case) -> dict[str, Ints]:
    """Few different values: the lowest place among equals, in every order."""
    return {"logits": _draw(case, "logits", _size(case, "m", "n"), -1, 1)}


def _logits_equal(case: Case) -> dict[str, Ints]:
    """Rows of one value, the smallest and the largest i32 among them: the first place, not the initial one."""
    m, n = _size(case, "m", "n")
    value = np.array([-(1 << 31), (1 << 31) - 1, 0, -1])[np.arange(m) % 4]
    return {"logits": np.broadcast_to(value[:, None], (m, n))}


def _logits_last(case: Case) -> dict[str, Ints]:
    """The largest in the last place, one below it in the first: a term that is left out at the end."""
    logits = _draw(case, "logits", _size(case, "m", "n"), -(1 << 31), 0)
    logits[:, 0], logits[:, -1] = 1, 2
    return {"logits": logits}


DISTRIBUTIONS: dict[str, dict[str, Generator]] = {
    "nel_embedding": {"full": _rows},
    "nel_matmul": {"full": _factors},
    "nel_requant": {"full": _sums, "ties": _requant_ties, "rails": _requant_rails},
    "nel_rmsnorm": {"full": _norm, "ties": _norm_ties, "roots": _norm_roots, "rails": _norm_rails},
    "nel_rope": {"full": _heads, "ties": _rope_ties, "rails": _rope_rails},
    "nel_scores": {"full": _products, "rails": _products_rails},
    "nel_softmax": {
        "full": _scores,
        "near": _scores_near,
        "steps": _scores_steps,
        "equal": _scores_equal,
        "ties": _scores_ties,
    },
    "nel_mix": {"full": _weights, "rails": _weights_rails, "one_hot": _weights_one_hot},
    "nel_act": {"pairs": _act_pairs},
    "nel_residual": {"pairs": _residual_pairs},
    "nel_argmax": {"last": _logits_last, "full": _logits, "ties": _logits_ties, "equal": _logits_equal},
}

TABLES = {
    "nel_rope": {"cosines": "COS", "sines": "SIN"},
    "nel_softmax": {"powers": "EXP2"},
    "nel_act": {"silu": "SILU"},
}
"""Inputs that are tables of the profile."""

ELEMENTS = {
    **dict.fromkeys(("embed", "x", "gain", "q", "k", "v", "gate", "up", "a", "b", "silu"), "i8"),
    **dict.fromkeys(("ids", "acc", "s", "p", "logits"), "i32"),
    **dict.fromkeys(("cosines", "sines"), "i16"),
    "powers": "u32",
}
"""Element type of each input."""

_NUMPY = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "u32": np.uint32}


def nel_inputs(case: Case) -> Inputs:
    """All inputs of a case by name, in their element types; tables are the profile's own."""
    generate = nel_stages.operands if case.dist in nel_stages.SETS else DISTRIBUTIONS[case.kernel][case.dist]
    made = generate(case)
    made |= {name: tables()[table] for name, table in TABLES.get(case.kernel, {}).items()}
    return {name: np.ascontiguousarray(values.astype(_NUMPY[ELEMENTS[name]])) for name, values in made.items()}
