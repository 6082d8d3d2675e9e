"""Data distributions of the kernels in `attention.py`: q, k, v, scores z (Q16) and weights p (Q30), as int64.

Each term, product and finished sum is below 2^62 in magnitude, each activation below 2^47. What a query must not see is
filled with large numbers.
"""

from collections.abc import Callable
from math import isqrt

import numpy as np

from harness.cases import Case
from harness.families.layers_inputs import Array, Arrays, cycled, signs, symmetric, table, uniform

ONE = 2**30
"""1 in Q30."""
CUT = 5632 * 256
"""Distance from the maximum at which a weight becomes 0."""
UNSEEN = 2**46 - 1


def score_scale(hd: int) -> int:
    """rne(2^30 / sqrt(hd)): the nearest integer to sqrt(2^60 / hd), which is never half-way between two."""
    return (isqrt((1 << 62) // hd) + 1) // 2


def _q(case: Case) -> tuple[int, int, int]:
    return case.dims["t"], case.dims["h"], case.dims["hd"]


def _kv(case: Case) -> tuple[int, int, int]:
    return case.dims["s"], case.dims["kv"], case.dims["hd"]


def _hts(case: Case) -> tuple[int, int, int]:
    return case.dims["h"], case.dims["t"], case.dims["s"]


def _seen(case: Case) -> Array:
    """[t,s]: which key a query sees."""
    t, s = case.dims["t"], case.dims["s"]
    seen: Array = np.arange(s)[None, :] <= s - t + np.arange(t)[:, None]
    return seen


# scores


def _score_bits(hd: int) -> int:
    """Bits of q and k such that hd products give a sum below 2^48 sqrt(hd): then its product with c is below 2^62."""
    return (48 - ((hd - 1).bit_length() + 1) // 2) // 2


def _scores_full(case: Case) -> Arrays:
    """Heads up to the bound for their width, of both signs."""
    top = 2 ** _score_bits(case.dims["hd"]) - 1
    return {"q": symmetric(case, "q", _q(case), top), "k": symmetric(case, "k", _kv(case), top)}


def _scores_ties(case: Case) -> Arrays:
    """Multiples of 2^8 against multiples of 2^7: half of the sums are ties, and an eighth of what is rounded once more."""
    q, k = symmetric(case, "q", _q(case), 8) * 2**8, symmetric(case, "k", _kv(case), 8) * 2**7
    return {"q": q, "k": k}


def _scores_cancel(case: Case) -> Arrays:
    """Terms of 2^62 - 1, the first half positive and the second negative: partial sums wrap, finished ones are small."""
    half = case.dims["hd"] // 2
    q = np.full(_q(case), 2**31 + 1, np.int64)
    q[..., half:] = -(2**31) - 1
    k = np.full(_kv(case), 2**31 - 1, np.int64)
    q[..., half // 2] += symmetric(case, "q", _q(case)[:2], 2**15) - 2**15  # what is left over
    return {"q": q, "k": k}


def _scores_edge(case: Case) -> Arrays:
    """Sums of 2^51 - 2^15 - 1 in heads of 64, the last whose product with c is below 2^62, and of both signs."""
    q, k = np.zeros(_q(case), np.int64), np.zeros(_kv(case), np.int64)
    sign = signs(case, "q", _q(case)[:2])
    q[..., 0], q[..., -1] = sign * 2**26, sign * (2**26 - 2**15 - 1)
    k[..., 0], k[..., -1] = 2**25 - 1, 1
    return {"q": q, "k": k}


# softmax


def _softmax_arrays(case: Case, z: Array) -> Arrays:
    return {"z": np.where(_seen(case), z, UNSEEN), "e1": table("E1"), "e2": table("E2")}


def _softmax_full(case: Case) -> Arrays:
    """Scores within 8 of each other: what a model has."""
    return _softmax_arrays(case, symmetric(case, "z", _hts(case), 2**18))


def _softmax_cut(case: Case) -> Arrays:
    """Distances from the maximum at and beside the steps of both tables, the last entry and the cut, and far beyond it."""
    steps = [0, 1, 255, 256, 257, 65536, CUT - 257, CUT - 256, CUT - 1, CUT, CUT + 1, CUT + 256, 2**32, 2**32 + 255]
    below = cycled(steps, _hts(case))
    below += 256 * uniform(case, "step", _hts(case), 0, 5631) * uniform(case, "pick", _hts(case), 0, 1)
    below[..., 0] = 0  # every row has its maximum there
    return _softmax_arrays(case, 2**20 - below)


def _softmax_equal(case: Case) -> Arrays:
    """All scores equal, or one above them: the sum is largest, and where 6 keys are seen each weight is a tie."""
    z = np.full(_hts(case), -(2**17), np.int64)
    z[1::2, :, 0] += 1
    return _softmax_arrays(case, z)


def _softmax_far(case: Case) -> Arrays:
    """Scores at both ends of what scores can be, 2^32 and its negative: one key or a few take all."""
    return _softmax_arrays(case, 2**32 * signs(case, "z", _hts(case)))


# mix


def _mix_arrays(case: Case, p: Array, v: Array) -> Arrays:
    return {"p": np.where(_seen(case), p, UNSEEN), "v": v}


def _mix_full(case: Case) -> Arrays:
    """Any weights and values whose sum stays inside, of both signs."""
    bits = 62 - (case.dims["s"] - 1).bit_length()
    p = uniform(case, "p", _hts(case), 0, 2**30)
    return _mix_arrays(case, p, symmetric(case, "v", _kv(case), 2 ** (bits - 31) - 1))


def _mix_ties(case: Case) -> Arrays:
    """Weights of a half or none, small odd values: half of the sums are ties, of both signs."""
    p = uniform(case, "p", _hts(case), 0, 1) * 2**29
    return _mix_arrays(case, p, 2 * symmetric(case, "v", _kv(case), 2**20) + 1)


def _mix_cancel(case: Case) -> Arrays:
    """Terms of 2^62 - 2^30, four positive, then four negative: partial sums wrap, finished ones are small."""
    s = np.arange(case.dims["s"])
    whole = _seen(case).sum(axis=1, keepdims=True) // 8 * 8
    p = np.where(s < whole, ONE, uniform(case, "p", _hts(case), 0, 2**20))
    v = np.where(s % 8 < 4, 2**32 - 1, 1 - 2**32)[:, None, None] * signs(case, "v", _kv(case)[1:])
    return _mix_arrays(case, p, v)


def _mix_edge(case: Case) -> Arrays:
    """One key weighs 1, its value is 2^32 - 1 or the negative: the sum is at its edge, the output is the value itself."""
    h, t, s = _hts(case)
    p = np.zeros((h, t, s), np.int64)
    place = uniform(case, "place", (h, t), 0, s - t)
    np.put_along_axis(p, place[..., None], ONE, axis=2)
    return _mix_arrays(case, p, (2**32 - 1) * signs(case, "v", _kv(case)))


DISTRIBUTIONS: dict[str, dict[str, Callable[[Case], Arrays]]] = {
    "scores": {"full": _scores_full, "ties": _scores_ties, "cancel": _scores_cancel, "edge": _scores_edge},
    "softmax": {"full": _softmax_full, "cut": _softmax_cut, "equal": _softmax_equal, "far": _softmax_far},
    "mix": {"full": _mix_full, "ties": _mix_ties, "cancel": _mix_cancel, "edge": _mix_edge},
}


def attention_inputs(case: Case) -> Arrays:
    """The input tensors of a case by name."""
    return DISTRIBUTIONS[case.kernel][case.dist](case)
