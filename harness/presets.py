"""Presets: pinned lists of cases, by name and version, each case with the reason why it exists.

A preset is the same on every device. A changed list is a new version, so that years of records compare.
"""

from collections.abc import Iterator

from harness import gemm_inputs, linear_inputs
from harness.cases import Case
from harness.errors import UsageError

VERSION = {"tiny": "2", "quick": "2", "full": "2", "soak": "2"}
"""Preset name -> version."""

PURPOSE = {
    "tiny": "a REDUCED run for simulators and sanitizers",
    "quick": "a REDUCED run: no large shapes, no model; it can never PASS",
    "full": "all shapes, all distributions, real weights",
    "soak": "`full` under seeds 1, 2, 3, ... until 10^9 compared elements",
}

REDUCED = ("tiny", "quick")
"""Presets that cannot PASS."""

SOAK_ELEMENTS = 10**9

_GEMM_SMALL = [
    ((1, 1, 1), "the smallest program: every guard is at work"),
    ((1, 7, 33), "one row, K one past a tile of 32"),
    ((17, 19, 23), "odd everywhere, one past a tile of 16"),
]
_GEMM_QUICK = [
    ((33, 65, 100), "K is no multiple of any tile, M and N one past a tile"),
    ((64, 768, 768), "a transformer's square projection"),
    ((128, 512, 256), "wide, K of two parts a lane"),
    ((8, 8, 65537), "the longest K: 2049 tiles, the last of one term"),
    ((128, 128, 128), "whole tiles only"),
]
_GEMM_FULL = [
    ((512, 512, 512), "whole tiles, enough workgroups to fill a GPU"),
    ((1024, 1024, 1024), "several dispatches, the speed shape"),
]
_GEMM_I64_QUICK = [
    ((33, 65, 100), "K is no multiple of any tile, M and N one past a tile"),
    ((64, 768, 768), "a transformer's square projection"),
    ((8, 8, 65537), "the longest K: 2049 tiles, the last of one term"),
]
_GEMM_I8_QUICK = [
    ((33, 65, 101), "rows begin at every byte of a word"),
    ((64, 768, 768), "a transformer's square projection: whole words only"),
    ((9, 7, 16385), "a long K, odd in all"),
]
_EDGE_I8 = (4, 4, gemm_inputs.EDGE_I8)
_LINEAR_SMALL = [
    ((1, 1, 32), "one block"),
    ((3, 17, 96), "rows that start off a word boundary, three blocks"),
]
_LINEAR_QUICK = [
    ((4, 1536, 576), "SmolLM2's ffn_gate on four tokens"),
    ((28, 576, 1536), "SmolLM2's ffn_down on 28 tokens, the longest K"),
    ((1, 49152, 576), "SmolLM2's output head on one token"),
]


Shape = tuple[int, int, int]
Shaped = tuple[Shape, str]


def _case(kernel: str, shape: Shape, dist: str, seed: int, reason: str) -> Case:
    return Case(kernel, tuple(zip("mnk", shape, strict=True)), dist, seed, reason=reason)


def _catches(function: object) -> str:
    """The first sentence of a distribution's docstring: what it can catch."""
    return (function.__doc__ or "").strip().splitlines()[0]


def _gemm(kernel: str, shapes: list[Shaped], dist_shapes: list[Shape], seed: int) -> list[Case]:
    """`full` in all shapes, the other distributions in some. The edge of int8 sums needs a K of its own."""
    cases = [_case(kernel, shape, "full", seed, reason) for shape, reason in shapes]
    for shape in dist_shapes:
        for dist, function in gemm_inputs.distributions(kernel).items():
            if dist != "full" and (kernel, dist) != ("gemm_i8", "edge"):
                cases.append(_case(kernel, shape, dist, seed, _catches(function)))
    return cases


def _linear(
    shapes: list[tuple[tuple[int, int, int], str]], dist_shapes: list[tuple[int, int, int]], seed: int
) -> list[Case]:
    cases = [_case("linear_q8_0", shape, "full", seed, reason) for shape, reason in shapes]
    for shape in dist_shapes:
        for dist, function in linear_inputs.DISTRIBUTIONS.items():
            if dist != "full":
                cases.append(_case("linear_q8_0", shape, dist, seed, _catches(function)))
    return cases


def _tiny(seed: int) -> list[Case]:
    return [
        *_gemm("gemm_i32", _GEMM_SMALL, [(5, 18, 37)], seed),
        *_gemm("gemm_i32_i64", _GEMM_SMALL, [(5, 18, 37)], seed),
        *_gemm("gemm_i8", _GEMM_SMALL, [(5, 18, 37)], seed),
        *_gemm("gemm_f32", [], [(5, 18, 37)], seed),
        *_linear(_LINEAR_SMALL, [(2, 5, 64)], seed),
    ]


def _quick(seed: int) -> list[Case]:
    return [
        *_gemm("gemm_i32", _GEMM_SMALL + _GEMM_QUICK, [(33, 65, 100)], seed),
        *_gemm("gemm_i32_i64", _GEMM_SMALL + _GEMM_I64_QUICK, [(33, 65, 100)], seed),
        *_gemm("gemm_i8", _GEMM_SMALL + _GEMM_I8_QUICK, [(17, 33, 1501)], seed),
        *_gemm("gemm_f32", [], [(33, 65, 100), (64, 768, 768)], seed),
        *_linear(_LINEAR_SMALL + _LINEAR_QUICK, [(3, 65, 96)], seed),
    ]


def _full(seed: int) -> list[Case]:
    cases = [
        *_quick(seed),
        *_gemm("gemm_i32", _GEMM_FULL, [(64, 768, 768)], seed),
        *_gemm("gemm_i32_i64", _GEMM_FULL[:1], [(64, 768, 768)], seed),
        *_gemm("gemm_i8", _GEMM_FULL, [], seed),
        _case("gemm_i8", _EDGE_I8, "edge", seed, _catches(gemm_inputs.INTEGERS["edge"])),
        *_linear([], [(4, 1536, 576)], seed),
    ]
    return [*cases, REAL] if seed == 0 else cases


REAL = Case(
    "linear_q8_0",
    (("m", 1), ("n", 49152), ("k", 576)),
    "real",
    0,
    (("model", "smollm2-135m-q4_1"), ("tensor", "token_embd.weight")),
    reason="a released model's output head on a hidden row of its own: real scales, real outliers",
)

_MANY_OUTPUTS = ((2048, 2016, 32), "many outputs for few terms: counts towards 10^9 compared elements")

SELF_TEST = {
    **{k: _case(k, (17, 19, 33), "full", 0, "known answer, committed") for k in gemm_inputs.TYPES},
    "linear_q8_0": _case("linear_q8_0", (3, 17, 96), "full", 0, "known answer, committed"),
}
"""The known-answer self-test of each kernel but the control. Its known-bad twin (the last term left out) must mismatch on it."""


def pinned(text: str) -> str:
    """The preset that `NAME` or `NAME@VERSION` names; raises UsageError where this samebits has another version of it."""
    name, _, version = text.partition("@")
    if version and name in VERSION and version != VERSION[name]:
        raise UsageError(
            f"preset {text}: this samebits has {name}@{VERSION[name]}; pin that, or install one that has it"
        )
    return name


def cases(preset: str) -> list[Case]:
    """The cases of `preset`; of `soak`, the first round. Raises UsageError for an unknown name."""
    if preset not in VERSION:
        raise UsageError(f"unknown preset {preset!r}; there are {', '.join(VERSION)}")
    return {"tiny": _tiny, "quick": _quick, "full": _full, "soak": soak_round}[preset](1 if preset == "soak" else 0)


def soak_round(seed: int) -> list[Case]:
    """The cases of one round of `soak`, 1, 2, 3, ...: those of `full` with that seed, and one of many outputs."""
    return [*_full(seed), *_gemm("gemm_i32", [_MANY_OUTPUTS], [], seed)]


def soak_rounds() -> Iterator[list[Case]]:
    """Round after round; the supervisor stops."""
    seed = 1
    while True:
        yield soak_round(seed)
        seed += 1


def all_cases() -> list[Case]:
    """Every case of every preset once (the first round of `soak`), then the self-tests."""
    found = [c for preset in VERSION for c in cases(preset)]
    return list({c.id: c for c in [*found, *SELF_TEST.values()]}.values())


def holding(case: Case) -> list[str]:
    """The presets that hold the case."""
    return [p for p in VERSION if any(c.id == case.id for c in cases(p))]
