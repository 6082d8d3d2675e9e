"""Real data of the layer kernels: what each operation meets in SmolLM2's forward pass of the profile's four tokens.

The second implementation runs the model once. `tensor=` of a case names the stage that its operation makes, `l11.scores`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from harness.cases import Case
from harness.errors import UsageError
from harness.families.layers_inputs import Arrays, table
from harness.models import tensor_bytes, verified

MODEL = "smollm2-135m-q4_1"
TOKENS = (504, 1108, 282, 15328)
"""Of the document's test vector."""
LAYERS = (0, 11, 29)
REASON = "a released model's activations, with their outliers: the residual stream is largest at layer 11"

_HEADS = (("h", 9), ("kv", 3), ("hd", 64))
_T = len(TOKENS)
_ROWS = (("m", _T), ("n", 576))
_KEYS = (("t", _T), ("s", _T))
_PAIRING = (("pairing", "interleaved"),)

Made = tuple[str, str, tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]
"""Kernel, stage, shape, options."""

_IN_LAYER: tuple[Made, ...] = (
    ("rmsnorm", "attn_norm", _ROWS, ()),
    ("rope", "q_rope", (("t", _T), ("h", 9), ("hd", 64)), _PAIRING),
    ("rope", "k_rope", (("t", _T), ("h", 3), ("hd", 64)), _PAIRING),
    ("scores", "scores", (*_KEYS, *_HEADS), ()),
    ("softmax", "softmax", (*_KEYS, ("h", 9)), ()),
    ("mix", "mix", (*_KEYS, *_HEADS), ()),
    ("rmsnorm", "ffn_norm", _ROWS, ()),
    ("gate", "act", (("m", _T), ("n", 1536)), ()),
    ("residual", "x", _ROWS, ()),
)
_ONCE: tuple[Made, ...] = (
    ("embedding_q8_0", "embed", (("t", _T), ("v", 49152), ("k", 576)), ()),
    ("rmsnorm", "hidden", _ROWS, ()),
    ("argmax", "greedy", (("m", _T), ("n", 49152)), ()),
)

KERNELS = frozenset(kernel for kernel, *_ in (*_IN_LAYER, *_ONCE))
"""What has real cases."""


def cases(kernels: frozenset[str], seed: int) -> list[Case]:
    """Every operation of three layers, and those around them; under seed 0 only."""
    found = [(kernel, f"l{i}.{stage}", shape, options) for i in LAYERS for kernel, stage, shape, options in _IN_LAYER]
    return [
        Case(kernel, shape, "real", 0, (*options, ("model", MODEL), ("tensor", stage)), REASON)
        for kernel, stage, shape, options in (*found, *_ONCE)
        if kernel in kernels and seed == 0
    ]


@cache
def forward_pass(name: str) -> tuple[Any, Mapping[str, Any]]:
    """The model as the second implementation reads it, and every stage of its forward pass."""
    from cpu_ref.second import dyadic_q16  # FLINT loads slowly; only real cases need it

    model = dyadic_q16.load(str(verified(name)))
    return model, dict(dyadic_q16.run(model, TOKENS))


def _angles(model: Any) -> Arrays:
    from cpu_ref.second import dyadic_q16, tables

    rows = [tables.rotation(model.rope_base, model.head_width, i, dyadic_q16.Q30) for i in range(_T)]
    return {name: np.array([row[i] for row in rows], np.int32) for i, name in enumerate("cs")}


def real_inputs(case: Case) -> Arrays:
    """The input tensors of a case with `dist=real`; UsageError where the id is none of `cases`."""
    if case.id not in {known.id for known in cases(frozenset([case.kernel]), 0)}:
        raise UsageError(f"case {case.id!r}: no such real data; `samebits cases --preset full` lists what there is")
    extra = dict(case.extra)
    model, stages = forward_pass(extra["model"])
    layer, _, stage = extra["tensor"].rpartition(".")
    at = f"{layer}." if layer else ""
    before = stages["embed" if layer == "l0" else f"l{int(layer[1:]) - 1}.x" if layer else f"l{model.layers - 1}.x"]
    if stage == "embed":
        return {"ids": np.array(TOKENS, np.int32), "w": tensor_bytes(extra["model"], "token_embd.weight")}
    if case.kernel == "rmsnorm":
        x = before + stages[f"{at}attn_out"] if stage == "ffn_norm" else before
        name = "output_norm" if stage == "hidden" else f"blk.{layer[1:]}.{stage}"
        gain = np.array(model.vector(f"{name}.weight", 24), np.int64)
        return {"x": x, "g": gain, "eps32": np.array([model.eps32], np.int64)}
    if case.kernel == "rope":
        return {"x": stages[at + stage[0]], **_angles(model)}
    if stage == "scores":
        return {"q": stages[f"{at}q_rope"], "k": stages[f"{at}k_rope"]}
    if stage == "softmax":
        return {"z": stages[f"{at}scores"], "e1": table("E1"), "e2": table("E2")}
    if stage == "mix":
        return {"p": stages[f"{at}softmax"], "v": stages[f"{at}v"]}
    if stage == "act":
        return {"gate": stages[f"{at}gate"], "up": stages[f"{at}up"], "g": table("G")}
    if stage == "x":
        return {"x": before + stages[f"{at}attn_out"], "y": stages[f"{at}down"]}
    return {"x": stages["logits"]}
