"""The linear family: op 2 of dyadic-q16 on the released bytes of block types, and its cases."""

from collections.abc import Iterable

from harness import schedules
from harness.cases import Case
from harness.families import Shape, Shaped, case_of, catches, linear_inputs, shaped
from harness.plans import Kernel, Pass, Tensor, bands

TOKENS = 4
"""Tokens that a lane of the base form takes through a block."""

GROUP = 64
"""Rows of a workgroup at most: where a matrix is cut, parts but the last are multiples of it."""


def _base_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """As `_native_passes`; a lane makes one row by TOKENS tokens."""
    return _multiply_passes(case, schedule, -(-case.dims["m"] // TOKENS))


def _native_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: M tokens, N rows, K, first row of the band, part length, first row that w holds.

    A lane makes one output; under `tree` 64 do.
    """
    return _multiply_passes(case, schedule, case.dims["m"])


def _multiply_passes(case: Case, schedule: str, y: int) -> tuple[Pass, ...]:
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = []
    for start, count in bands(n, m * k, 64):
        x = count if schedule == "tree" else -(-count // 64)
        passes.append(Pass("multiply", (x, y, parts), (64, 1, 1), (m, n, k, start, part, 0)))
    if schedule == "split_k":
        passes.append(_combine(m, n, k, part))
    return tuple(passes)


def _linear_fast_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """As `_native_passes`; a workgroup is one work-item and makes 16 rows by 8 tokens."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = [
        Pass("multiply", (-(-count // 16), -(-m // 8), parts), (1, 1, 1), (m, n, k, start, part, 0))
        for start, count in bands(n, m * k, 16)
    ]
    if schedule == "split_k":
        passes.append(_combine(m, n, k, part))
    return tuple(passes)


def part_passes(kernel: Kernel, case: Case, schedule: str, first: int, rows: int) -> tuple[Pass, ...]:
    """The passes of `case` where buffer w holds its rows first .. first + rows - 1 alone; the last part adds up."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = kernel.passes(Case(case.kernel, (("m", m), ("n", rows), ("k", k)), case.dist, case.seed), schedule)
    found = [
        Pass(p.entry, p.groups, p.workgroup, (m, n, k, p.params[3] + first, p.params[4], first))
        for p in part
        if p.entry == "multiply"
    ]
    if schedule == "split_k" and first + rows == n:
        found.append(_combine(m, n, k, schedules.part_length(k)))
    return tuple(found)


def _combine(m: int, n: int, k: int, part: int) -> Pass:
    """Group y is the token, group x 64 rows."""
    return Pass("combine", (-(-n // 64), m, 1), (64, 1, 1), (m, n, k, 0, part))


def _linear(block: str, variant: str, stem: str, purpose: str, **more: object) -> Kernel:
    name = f"linear_{block}"
    return Kernel(
        name=name,
        variant=variant,
        stem=stem,
        shape=("m", "n", "k"),
        inputs=(
            Tensor("w", "u8", ("n", f"{block}_row")),
            Tensor("x", "i64", ("m", "k")),
            Tensor("bias", "i64", ("n",)),
        ),
        output=Tensor("y", "i64", ("m", "n")),
        entries=("multiply", "combine"),
        purpose=purpose,
        distributions=(*linear_inputs.distributions(name), "real"),
        generate=linear_inputs.linear_inputs,
        multiples={"k": linear_inputs.BLOCK},
        sources={"bias": ("1",)},
        **more,  # type: ignore[arg-type]
    )


def _forms(block: str, released: str) -> tuple[Kernel, ...]:
    """The base form, the native one and the fast one of a block type."""
    prelude = f"block_{block}"
    return (
        _linear(
            block,
            "base",
            "linear_blocks",
            f"op 2 of dyadic-q16 on {released} bytes with a Q40 bias, 64-bit sums in 32-bit limbs",
            passes=_base_passes,
            preludes=("int64_limbs", prelude),
        ),
        _linear(
            block,
            "int64",
            "linear_blocks_int64",
            "the same with native 64-bit integers",
            passes=_native_passes,
            preludes=(prelude,),
            needs={"wgsl": ("shader-int64",)},
        ),
        _linear(
            block,
            "fast",
            "linear_blocks_fast",
            "the same, 16 rows by 8 tokens, a block decoded once, for CPU devices",
            passes=_linear_fast_passes,
            preludes=(prelude,),
            languages=("opencl",),
            schedules=("forward", "split_k"),
            needs={"opencl": ("device-type-cpu",)},
        ),
    )


KERNELS: tuple[Kernel, ...] = (*_forms("q8_0", "Q8_0"), *_forms("q4_1", "Q4_1"), *_forms("q4_0", "Q4_0"))

NAMES = tuple(dict.fromkeys(kernel.name for kernel in KERNELS))

_SMALL: list[Shaped] = [
    ((1, 1, 32), "one block"),
    ((3, 17, 96), "rows that start off a word boundary, three blocks"),
]
_QUICK: dict[str, list[Shaped]] = {
    "linear_q8_0": [
        ((4, 1536, 576), "SmolLM2's ffn_gate on four tokens"),
        ((2, 576, 1536), "SmolLM2's ffn_down on two tokens, the longest K"),
    ],
    "linear_q4_1": [((2, 576, 1536), "SmolLM2's ffn_down on two tokens, the longest K")],
    "linear_q4_0": [((4, 1536, 576), "SmolLM2's ffn_gate on four tokens")],
}


def _distributed(kernel: str, shape: Shape, seed: int) -> list[Case]:
    """All distributions but `full` in one shape."""
    return [
        case_of(kernel, shape, dist, seed, catches(function))
        for dist, function in linear_inputs.distributions(kernel).items()
        if dist != "full"
    ]


def _biased(kernel: str, shape: Shape, dists: Iterable[str], seed: int) -> list[Case]:
    reason = "a bias of both signs, 33 bits: lost, added twice, cut to a word, taken by token"
    return [Case(kernel, tuple(zip("mnk", shape, strict=True)), dist, seed, (("bias", "1"),), reason) for dist in dists]


def _tiny(seed: int) -> list[Case]:
    return [
        case
        for kernel in NAMES
        for case in (
            *shaped(kernel, _SMALL, seed),
            *_distributed(kernel, (2, 5, 64), seed),
            *_biased(kernel, (2, 5, 64), ["full"], seed),
        )
    ]


def _quick(seed: int) -> list[Case]:
    return [
        case
        for kernel in NAMES
        for case in (
            *shaped(kernel, _SMALL + _QUICK[kernel], seed),
            *_distributed(kernel, (3, 65, 96), seed),
            *_biased(kernel, (3, 65, 96), ["full", "edge"], seed),
        )
    ]


def _full(seed: int) -> list[Case]:
    wide = (4, 1536, 576)
    more = [
        case for kernel in NAMES for case in (*_distributed(kernel, wide, seed), *_biased(kernel, wide, ["full"], seed))
    ]
    prefill = ((28, 576, 1536), "SmolLM2's ffn_down on 28 tokens")
    head = shaped("linear_q8_0", [prefill, ((1, 49152, 576), "SmolLM2's output head on one token")], seed)
    return [*_quick(seed), *head, *shaped("linear_q4_1", [prefill], seed), *more, *(REAL if seed == 0 else [])]


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset."""
    return {"tiny": _tiny, "quick": _quick, "full": _full, "soak": _full}[preset](seed)


MODEL = "smollm2-135m-q4_1"


def _real(kernel: str, shape: Shape, tensor: str, reason: str) -> Case:
    extra = (("model", MODEL), ("tensor", tensor))
    return Case(kernel, tuple(zip("mnk", shape, strict=True)), "real", 0, extra, reason)


_HEAD = _real(
    "linear_q8_0",
    (1, 49152, 576),
    "token_embd.weight",
    "a released model's output head on a hidden row of its own: real scales, real outliers",
)
_TENSORS = {
    "attn_q": (576, 576),
    "attn_k": (192, 576),
    "attn_v": (192, 576),
    "ffn_gate": (1536, 576),
    "ffn_down": (576, 1536),
}
"""N and K of the tensors of a layer of SmolLM2-135M."""

REAL = [_HEAD] + [
    _real("linear_q4_1", (4, n, k), f"blk.{layer}.{name}.weight", f"released weights: {name} of layer {layer}")
    for layer in (0, 11, 29)
    for name, (n, k) in _TENSORS.items()
]
"""Cases of released weights: the first, the middle and the last layer."""

SELF_TESTS = {kernel: case_of(kernel, (3, 17, 96), "full", 0, "known answer, committed") for kernel in NAMES}
