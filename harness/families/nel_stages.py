"""The stages of nel-mini-w8a8's forward pass as cases: each operation on the operands that it has there.

`dist` is the weight set, `seed` the prompt of 64 tokens, `stage` the stage that is made. A row depends on no later token,
so rows 0 to m - 1 are a prefill of m tokens; where a case has positions p, its rows are the last m of p, as in decoding
over a cache. A device that makes every stage from right operands makes the whole pass.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from harness.cases import Case
from harness.inputs import random_integers

Ints = npt.NDArray[np.int64]
Dims = dict[str, int]

SETS = ("published", "stress")
TOKENS = 64

_LAYERS = ("l0.", "l1.")
_SHIFTS = {"qkv": 11, "out": 11, "gate": 11, "up": 11, "down": 12, "pv": 15}
_WEIGHTS = {"qkv": "wqkv", "out": "wout", "gate": "wgate", "up": "wup", "down": "wdown"}
_OPERANDS = {"qkv": "rms1", "out": "pv", "gate": "rms2", "up": "rms2", "down": "act"}


def _both(*names: str) -> tuple[str, ...]:
    return tuple(layer + name for layer in _LAYERS for name in names)


STAGES: dict[str, tuple[str, ...]] = {
    "nel_embedding": ("embed",),
    "nel_rmsnorm": (*_both("rms1", "rms2"), "hidden"),
    "nel_matmul": (*_both(*(f"{name}.acc" for name in _WEIGHTS)), "logits"),
    "nel_requant": _both(*_SHIFTS),
    "nel_rope": _both("rope"),
    "nel_scores": _both("scores"),
    "nel_softmax": _both("softmax"),
    "nel_mix": _both("pv.acc"),
    "nel_act": _both("act"),
    "nel_residual": _both("res1", "res2"),
    "nel_argmax": ("greedy",),
}
"""By kernel, the stages that it makes."""


@cache
def prompt(seed: int) -> tuple[int, ...]:
    """The tokens of a prompt."""
    return tuple(random_integers(f"nel-mini-w8a8/prompt/{seed}", TOKENS, 0, 63).tolist())


@cache
def _pass(weight_set: str, seed: int) -> dict[str, Ints]:
    """Every stage of the whole prompt, by the exact reference."""
    from cpu_ref import nel_mini_w8a8 as reference

    stages = reference.run(reference.load(f"nel-mini:{weight_set}"), prompt(seed))
    return {name: np.array(values, np.int64).reshape(dims) for name, dims, values in stages}


@cache
def _weight(weight_set: str, name: str) -> Ints:
    from cpu_ref.nel_mini_data import SHAPES, load

    return np.array(load(f"nel-mini:{weight_set}").weights[name], np.int64).reshape(SHAPES[name])


def dims_of(kernel: str, stage: str, m: int, p: int) -> Dims:
    """The dimensions of a stage for m rows, the last of p positions where the kernel has them."""
    name = stage.rpartition(".acc")[0] or stage
    short = name.partition(".")[2]
    width = 64 if short in ("qkv", "gate", "up", "act") or stage in ("logits", "greedy") else 32
    return {
        "nel_embedding": {"m": m, "v": 64, "n": 32},
        "nel_rmsnorm": {"m": m, "k": 32},
        "nel_matmul": {"m": m, "n": width, "k": 64 if short == "down" else 32},
        "nel_requant": {"m": m, "n": width, "shift": _SHIFTS.get(short, 0)},
        "nel_rope": {"m": m, "n": 48, "p": p},
        "nel_scores": {"m": m, "p": p, "d": 8},
        "nel_softmax": {"m": m, "p": p},
        "nel_mix": {"m": m, "p": p},
        "nel_act": {"m": m, "n": width},
        "nel_residual": {"m": m, "n": width},
        "nel_argmax": {"m": m, "n": width},
    }[kernel]


def refused(case: Case) -> str:
    """Why a case of a weight set is none of its forward pass, or an empty text."""
    stage = dict(case.extra).get("stage")
    if (case.dist in SETS) != (stage is not None):
        return f"stage= goes with dist={' and dist='.join(SETS)}, and only with them"
    if stage is None:
        return ""
    wanted = dims_of(case.kernel, stage, case.dims["m"], case.dims.get("p", case.dims["m"]))
    if case.dims != wanted or case.dims["m"] > TOKENS:
        own = ", ".join(f"{n}={v}" for n, v in wanted.items() if n not in "mp")
        return f"stage {stage} has {own}{' and ' if own else ''}at most {TOKENS} rows"
    return ""


def operands(case: Case) -> dict[str, Ints]:
    """The operands of the case's stage."""
    stage, made = dict(case.extra)["stage"], _pass(case.dist, case.seed)
    m, p = case.dims["m"], case.dims.get("p", case.dims["m"])
    return _OF[case.kernel](_Rows(made, case.dist, case.seed, slice(p - m, p), slice(0, p)), *_split(stage))


def _split(stage: str) -> tuple[str, str]:
    """The layer with its dot ("" outside the layers), and the stage's own name."""
    return (stage[:3], stage[3:]) if stage.startswith(_LAYERS) else ("", stage)


class _Rows:
    """The rows of a case: `rows` of queries, `seen` of keys, in the stages of one pass."""

    def __init__(self, made: dict[str, Ints], weight_set: str, seed: int, rows: slice, seen: slice) -> None:
        self.made, self.weight_set, self.seed, self.rows, self.seen = made, weight_set, seed, rows, seen

    def __getitem__(self, stage: str) -> Ints:
        return self.made[stage][self.rows]

    def before(self, layer: str) -> Ints:
        """What enters a layer."""
        return self["embed" if layer == "l0." else "l0.res2"]

    def weight(self, layer: str, name: str) -> Ints:
        return _weight(self.weight_set, f"layer{layer[1]}.{name}" if layer else name)


def _embedding(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"ids": np.array(prompt(r.seed))[r.rows], "embed": r.weight("", "embed")}


def _rmsnorm(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    if name == "hidden":
        return {"x": r["l1.res2"], "gain": r.weight("", "final_gamma")}
    x = r.before(layer) if name == "rms1" else r[layer + "res1"]
    return {"x": x, "gain": r.weight(layer, f"gamma{name[-1]}")}


def _matmul(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    if name == "logits":
        return {"a": r["hidden"], "b": r.weight("", "lm_head")}
    name = name.removesuffix(".acc")
    return {"a": r[layer + _OPERANDS[name]], "b": r.weight(layer, _WEIGHTS[name])}


def _requant(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"acc": r[f"{layer}{name}.acc"]}


def _rope(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"x": r[layer + "qkv"][:, :48]}


def _scores(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    rope = r.made[layer + "rope"]
    return {"q": rope[r.rows, :32].reshape(-1, 4, 8), "k": rope[r.seen, 32:].reshape(-1, 2, 8)}


def _softmax(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"s": r.made[layer + "scores"][:, r.rows, r.seen]}


def _mix(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"p": r.made[layer + "softmax"][:, r.rows, r.seen], "v": r.made[layer + "qkv"][r.seen, 48:]}


def _act(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"gate": r[layer + "gate"], "up": r[layer + "up"]}


def _residual(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    if name == "res1":
        return {"a": r.before(layer), "b": r[layer + "out"]}
    return {"a": r[layer + "res1"], "b": r[layer + "down"]}


def _argmax(r: _Rows, layer: str, name: str) -> dict[str, Ints]:
    return {"logits": r["logits"]}


_OF: dict[str, Callable[[_Rows, str, str], dict[str, Ints]]] = {
    "nel_embedding": _embedding,
    "nel_rmsnorm": _rmsnorm,
    "nel_matmul": _matmul,
    "nel_requant": _requant,
    "nel_rope": _rope,
    "nel_scores": _scores,
    "nel_softmax": _softmax,
    "nel_mix": _mix,
    "nel_act": _act,
    "nel_residual": _residual,
    "nel_argmax": _argmax,
}


def _case(kernel: str, stage: str, weight_set: str, seed: int, m: int, p: int) -> Case:
    rows = f"{m} tokens at once" if m == p else f"{m} more after {p - m}"
    dims = tuple(dims_of(kernel, stage, m, p).items())
    return Case(
        kernel, dims, weight_set, seed, (("stage", stage),), reason=f"the forward pass of set {weight_set}, {rows}"
    )


def prefill(weight_set: str, seed: int, m: int) -> list[Case]:
    """Every stage of the first m tokens of a prompt."""
    return [_case(kernel, stage, weight_set, seed, m, m) for kernel, stages in STAGES.items() for stage in stages]


def decoding(weight_set: str, seed: int, m: int, p: int) -> list[Case]:
    """The stages that look back, of the last m of p tokens."""
    looking_back = ("nel_rope", "nel_scores", "nel_softmax", "nel_mix")
    return [_case(kernel, stage, weight_set, seed, m, p) for kernel in looking_back for stage in STAGES[kernel]]
