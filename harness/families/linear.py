"""The linear family: op 2 of dyadic-q16 on the released bytes of block types, and its cases."""

from harness import schedules
from harness.cases import Case
from harness.families import Shape, case_of, catches, linear_inputs, shaped
from harness.families.gemm import combine
from harness.plans import Kernel, Pass, Tensor, bands


def _linear_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: M tokens, N rows, K, first row of the band, part length. A lane makes one output; under `tree` 64 do."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = []
    for start, count in bands(n, m * k, 64):
        x = count if schedule == "tree" else -(-count // 64)
        passes.append(Pass("multiply", (x, m, parts), (64, 1, 1), (m, n, k, start, part)))
    if schedule == "split_k":
        passes.append(combine(case, (m, n, k, 0, part)))
    return tuple(passes)


def _linear(variant: str, stem: str, purpose: str, **more: object) -> Kernel:
    return Kernel(
        name="linear_q8_0",
        variant=variant,
        stem=stem,
        shape=("m", "n", "k"),
        inputs=(Tensor("w", "u8", ("n", "q8_0_row")), Tensor("x", "i64", ("m", "k"))),
        output=Tensor("y", "i64", ("m", "n")),
        entries=("multiply", "combine"),
        passes=_linear_passes,
        purpose=purpose,
        distributions=(*linear_inputs.DISTRIBUTIONS, "real"),
        generate=linear_inputs.linear_q8_0_inputs,
        multiples={"k": linear_inputs.BLOCK},
        **more,  # type: ignore[arg-type]
    )


KERNELS: tuple[Kernel, ...] = (
    _linear(
        "base",
        "linear_q8_0",
        "op 2 of dyadic-q16 on Q8_0 bytes, 64-bit sums in 32-bit limbs",
        preludes=("int64_limbs",),
    ),
    _linear("int64", "linear_q8_0_int64", "the same with native 64-bit integers", needs={"wgsl": ("shader-int64",)}),
)


_LINEAR_SMALL = [
    ((1, 1, 32), "one block"),
    ((3, 17, 96), "rows that start off a word boundary, three blocks"),
]
_LINEAR_QUICK = [
    ((4, 1536, 576), "SmolLM2's ffn_gate on four tokens"),
    ((28, 576, 1536), "SmolLM2's ffn_down on 28 tokens, the longest K"),
    ((1, 49152, 576), "SmolLM2's output head on one token"),
]


def _distributed(shape: Shape, seed: int) -> list[Case]:
    """All distributions but `full` in one shape."""
    return [
        case_of("linear_q8_0", shape, dist, seed, catches(function))
        for dist, function in linear_inputs.DISTRIBUTIONS.items()
        if dist != "full"
    ]


def _tiny(seed: int) -> list[Case]:
    return [*shaped("linear_q8_0", _LINEAR_SMALL, seed), *_distributed((2, 5, 64), seed)]


def _quick(seed: int) -> list[Case]:
    return [*shaped("linear_q8_0", _LINEAR_SMALL + _LINEAR_QUICK, seed), *_distributed((3, 65, 96), seed)]


def _full(seed: int) -> list[Case]:
    real = [REAL] if seed == 0 else []
    return [*_quick(seed), *_distributed((4, 1536, 576), seed), *real]


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset."""
    return {"tiny": _tiny, "quick": _quick, "full": _full, "soak": _full}[preset](seed)


REAL = Case(
    "linear_q8_0",
    (("m", 1), ("n", 49152), ("k", 576)),
    "real",
    0,
    (("model", "smollm2-135m-q4_1"), ("tensor", "token_embd.weight")),
    reason="a released model's output head on a hidden row of its own: real scales, real outliers",
)

SELF_TESTS = {"linear_q8_0": case_of("linear_q8_0", (3, 17, 96), "full", 0, "known answer, committed")}
