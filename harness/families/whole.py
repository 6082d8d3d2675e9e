"""The family of whole forward passes: a profile on a released model, from token ids to greedy choices, as one case.

A pass has no source and no self-test of its own: it is made of kernels, whose self-tests and known-bad twins are done with it.
What is compared is all its stages: its output is their digests, in the document's order.
"""

import json

import numpy as np
import numpy.typing as npt

from harness import schedules
from harness.cases import Case
from harness.families.real_activations import TOKENS
from harness.folders import data_file
from harness.plans import Kernel, Tensor, Whole

MODEL = "smollm2-135m-q4_1"

LICENCE, LENGTH = "licence-512.json", 512
"""Ids of SmolLM2 for a stretch of the Apache-2.0 licence, and how many."""


def tokens(case: Case) -> list[int]:
    """The token ids: the vector that the document prints, or `t` ids of the licence from the place on that the seed names."""
    if case.dist == "document":
        return list(TOKENS)
    t = case.dims["t"]
    start = case.seed % (LENGTH - t + 1)
    ids: list[int] = json.loads(data_file(LICENCE).read_text("utf-8"))["ids"]
    return ids[start : start + t]


def identity(case: Case) -> dict[str, str]:
    """What the id of a case stands for: profile_id, the model's SHA-256, and the tokens."""
    from harness import models, profiles  # which know of families

    profile = next(entry.whole.profile for entry in WHOLE if entry.whole and entry.name == case.kernel)
    return {
        "profile": profiles.find(profile).profile_id,
        "model": models.find(case.model or "").sha256,
        "tokens": ",".join(map(str, tokens(case))),
    }


def _generate(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    return {"tokens": np.array(tokens(case), np.int32)}


def _refused(case: Case) -> str:
    from harness import models

    models.find(case.model or "")
    t = case.dims["t"]
    if case.dist == "document":
        return "" if (t, case.seed) == (len(TOKENS), 0) else f"the document's vector is t={len(TOKENS)}, seed=0"
    return "" if t <= LENGTH else f"t is at most {LENGTH}"


WHOLE: tuple[Kernel, ...] = (
    Kernel(
        name="pass_dyadic_q16",
        variant="base",
        stem="",
        shape=("t",),
        inputs=(Tensor("tokens", "i32", ("t",)),),
        output=Tensor("stages", "u8", ("stages", 32)),
        entries=(),
        passes=lambda case, schedule: (),
        purpose="a whole forward pass of dyadic-q16 on a released model",
        distributions=("document", "licence"),
        generate=_generate,
        schedules=schedules.NAMES,
        reduces=None,
        refused=_refused,
        whole=Whole(
            profile="dyadic-q16",
            kernels=(
                *(f"embedding_{kind}" for kind in ("q8_0", "q4_1", "q4_0")),
                *(f"linear_{kind}" for kind in ("q8_0", "q4_1", "q4_0")),
                *("rmsnorm", "rope", "kv_append", "scores", "softmax", "mix", "gate", "residual", "argmax"),
            ),
        ),
    ),
)
"""An entry a profile whose passes are cases."""

KERNELS: tuple[Kernel, ...] = ()

SELF_TESTS: dict[str, Case] = {}


def _case(t: int, dist: str, seed: int, reason: str) -> Case:
    return Case("pass_dyadic_q16", (("t", t),), dist, seed, (("model", MODEL),), reason)


def cases(preset: str, seed: int) -> list[Case]:
    """`full`: the document's 4 tokens and 28 tokens of the licence. `soak`: 4 tokens of the licence from the seed on."""
    if preset == "full":
        return [
            _case(len(TOKENS), "document", 0, "a released model, whole: the vector that the document prints"),
            _case(28, "licence", 0, "a released model, whole: 28 tokens, as many keys and more rows than a workgroup"),
        ]
    return [_case(4, "licence", seed, "a released model, whole, on another prompt")] if preset == "soak" else []
