"""The attention family: scores, softmax and mix of dyadic-q16 (causal, grouped heads), and their cases."""

from collections.abc import Mapping

from harness import schedules
from harness.cases import Case
from harness.families import attention_inputs, catches, native, real_activations
from harness.families.layers_inputs import Arrays
from harness.plans import Kernel, Pass, Tensor, bands

LANES = 64
HEADS = ("t", "s", "h", "kv", "hd")
"""Queries, keys, query heads, key and value heads, head width. The queries are the last of the keys' positions."""


def _refused(case: Case) -> str:
    """Fewer keys than queries, or heads that do not share a key head evenly."""
    if case.dims["s"] < case.dims["t"]:
        return "s is at least t"
    return "kv divides h" if case.dims["h"] % case.dims.get("kv", 1) else ""


def _output_passes(case: Case, schedule: str, width: int, reduced: int, params: tuple[int, ...]) -> tuple[Pass, ...]:
    """A lane makes one of `width` outputs of a query and head; under `tree` a workgroup does.

    `params` end with the first query of the band and the part length.
    """
    t, h = case.dims["t"], case.dims["h"]
    part = schedules.part_length(reduced)
    chunks = -(-width // LANES)
    x, z = (width if schedule == "tree" else chunks), (h * schedules.PARTS if schedule == "split_k" else h)
    found, combined = [], []
    for start, count in bands(t, h * case.dims["s"] * case.dims["hd"], 1):
        found.append(Pass("multiply", (x, count, z), (LANES, 1, 1), (*params, start, part)))
        combined.append(Pass("combine", (chunks, count, h), (LANES, 1, 1), (*params, start, part)))
    return tuple(found + combined if schedule == "split_k" else found)


def _scores_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: T, S, H, heads to a key head, head width, c, first query of the band, part length."""
    t, s, h, kv, hd = (case.dims[d] for d in HEADS)
    return _output_passes(case, schedule, s, hd, (t, s, h, h // kv, hd, attention_inputs.score_scale(hd)))


def _mix_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: T, S, H, heads to a value head, head width, first query of the band, part length."""
    t, s, h, kv, hd = (case.dims[d] for d in HEADS)
    return _output_passes(case, schedule, hd, s, (t, s, h, h // kv, hd))


def _softmax_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: T, S, H, first query of the band, part length, first reduction, end of the reductions (0 maximum, 1 sum)."""
    t, s, h = (case.dims[d] for d in ("t", "s", "h"))
    part = schedules.part_length(s)
    split = schedule == "split_k"
    found = []
    for start, count in bands(t, h * s, 1):
        for first, end in ((0, 1), (1, 2)) if split else ((0, 2),):
            groups = (count, h, schedules.PARTS if split else 1)
            found.append(Pass("weigh", groups, (LANES, 1, 1), (t, s, h, start, part, first, end)))
        if split:
            found.append(Pass("combine", (count, h, 1), (LANES, 1, 1), (t, s, h, start, part, 2, 2)))
    return tuple(found)


def _softmax_scratch(case: Case) -> int:
    """Two words of each of both reductions for each row and part."""
    return 4 * schedules.PARTS * case.dims["h"] * case.dims["t"]


def _inputs(case: Case) -> Arrays:
    return real_activations.real_inputs(case) if case.dist == "real" else attention_inputs.attention_inputs(case)


def _attention(name: str, shape: tuple[str, ...], inputs: tuple[Tensor, ...], output: Tensor, **more: object) -> Kernel:
    return Kernel(
        name=name,
        variant="base",
        stem=name,
        shape=shape,
        inputs=inputs,
        output=output,
        distributions=(*attention_inputs.DISTRIBUTIONS[name], *(("real",) if name in real_activations.KERNELS else ())),
        generate=_inputs,
        preludes=("int64_limbs", "terms"),
        refused=_refused,
        **more,  # type: ignore[arg-type]
    )


_BASE: tuple[Kernel, ...] = (
    _attention(
        "scores",
        HEADS,
        (Tensor("q", "i64", ("t", "h", "hd")), Tensor("k", "i64", ("s", "kv", "hd"))),
        Tensor("z", "i64", ("h", "t", "s")),
        entries=("multiply", "combine"),
        passes=_scores_passes,
        purpose="op 5 of dyadic-q16: products of query and key heads, rounded, scaled and rounded again",
        reduces="hd",
    ),
    _attention(
        "softmax",
        ("t", "s", "h"),
        (Tensor("z", "i64", ("h", "t", "s")), Tensor("e1", "i32", (5632,)), Tensor("e2", "i32", (256,))),
        Tensor("p", "i64", ("h", "t", "s")),
        entries=("weigh", "combine"),
        passes=_softmax_passes,
        purpose="op 6 of dyadic-q16: maximum, exponentials by two tables, their sum, one quotient a row",
        reduces="s",
        scratch=_softmax_scratch,
    ),
    _attention(
        "mix",
        HEADS,
        (Tensor("p", "i64", ("h", "t", "s")), Tensor("v", "i64", ("s", "kv", "hd"))),
        Tensor("o", "i64", ("t", "h", "hd")),
        entries=("multiply", "combine"),
        passes=_mix_passes,
        purpose="op 7 of dyadic-q16: value heads by their weights",
        reduces="s",
    ),
)

_NATIVE: Mapping[str, tuple[str, ...]] = {
    "scores": ("ties", "cancel"),
    "softmax": ("cut", "far"),
    "mix": ("ties", "cancel"),
}
"""Kernel -> the distributions of its native form."""

KERNELS: tuple[Kernel, ...] = (*_BASE, *(native(kernel, _NATIVE[kernel.name]) for kernel in _BASE))

_SHAPES: Mapping[str, Mapping[str, Mapping[str, tuple[tuple[int, ...], ...]]]] = {
    "scores": {
        "tiny": {"full": ((1, 1, 1, 1, 2), (2, 3, 4, 2, 6)), "ties": ((1, 2, 2, 1, 64),)},
        "quick": {
            "full": ((4, 4, 9, 3, 64), (1, 70, 9, 3, 64), (3, 5, 14, 2, 66)),
            "ties": ((3, 29, 9, 3, 64),),
            "cancel": ((2, 66, 4, 2, 64),),
            "edge": ((2, 3, 9, 3, 64),),
        },
        "full": {"full": ((28, 28, 9, 3, 64), (5, 517, 14, 2, 64)), "ties": ((28, 28, 9, 3, 64),)},
    },
    "softmax": {
        "tiny": {"full": ((1, 1, 1), (2, 5, 3)), "cut": ((1, 14, 2),)},
        "quick": {
            "full": ((4, 4, 9), (1, 70, 9)),
            "cut": ((3, 130, 4),),
            "equal": ((9, 9, 2),),
            "far": ((2, 40, 3),),
        },
        "full": {"full": ((28, 28, 9), (5, 517, 14)), "cut": ((28, 2048, 2),), "equal": ((4, 1025, 2),)},
    },
    "mix": {
        "tiny": {"full": ((1, 1, 1, 1, 2), (2, 3, 4, 2, 6)), "ties": ((1, 3, 2, 1, 5),)},
        "quick": {
            "full": ((4, 4, 9, 3, 64), (1, 70, 9, 3, 64), (3, 5, 14, 2, 66)),
            "ties": ((3, 29, 9, 3, 64),),
            "cancel": ((2, 66, 4, 2, 64),),
            "edge": ((3, 5, 9, 3, 64),),
        },
        "full": {"full": ((28, 28, 9, 3, 64), (5, 517, 14, 2, 64)), "cancel": ((28, 260, 9, 3, 64),)},
    },
}
"""Kernel -> preset -> distribution -> shapes. (4, 4, 9, 3, 64) is SmolLM2's prefill of four tokens, (1, 70, ...) a step of
decoding past one workgroup of keys; heads of 66 pass one of elements; 14 heads share 2 as in Qwen2.5-0.5B."""


def _case(kernel: Kernel, shape: tuple[int, ...], dist: str, seed: int) -> Case:
    reason = catches(attention_inputs.DISTRIBUTIONS[kernel.name][dist])
    return Case(kernel.name, tuple(zip(kernel.shape, shape, strict=True)), dist, seed, reason=reason)


def _of(preset: str, seed: int) -> list[Case]:
    return [
        _case(kernel, shape, dist, seed)
        for kernel in _BASE
        for dist, shapes in _SHAPES[kernel.name][preset].items()
        for shape in shapes
    ]


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset; `full` holds `quick`."""
    if preset in ("tiny", "quick"):
        return _of(preset, seed)
    real = real_activations.cases(frozenset(kernel.name for kernel in _BASE), seed)
    return [*_of("quick", seed), *_of("full", seed), *real]


SELF_TESTS = {k.name: _case(k, _SHAPES[k.name]["tiny"]["full"][-1], "full", 0) for k in _BASE}
