"""The catalogue: every kernel, its variants, buffers, dispatch geometry, inputs.

A kernel is one integer program with one source per language under the same stem. A backend needs nothing
but a `Plan` and the source text: buffers in argument order, passes in dispatch order.

Argument order, alike in all languages: params, the inputs, order (tiles of `tiled_shuffled`), scratch
(partial sums of `split_k`), output, receipt. All are arrays of 32-bit words; a 64-bit value is two words,
low first. Compile-time constants, alike in all languages: SCHEDULE (0..4), KNOWN_BAD (0 or 1), NONCE.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness import gemm_inputs, linear_inputs, schedules
from harness.cases import Case
from harness.errors import UsageError
from harness.folders import data_root

Language = Literal["wgsl", "cuda", "opencl"]
LANGUAGES: tuple[Language, ...] = ("wgsl", "cuda", "opencl")
FOLDERS = {"wgsl": "shaders", "cuda": "cuda", "opencl": "opencl"}
SUFFIXES = {"wgsl": ".wgsl", "cuda": ".cu", "opencl": ".cl"}

GUARD_WORDS = 64
"""Words behind each output that no kernel may touch."""

RECEIPT_WORDS = 4
"""The receipt: entry point i writes NONCE to word i, so a program that did not run cannot look as if it had."""

MAX_GROUPS = 65_535
DISPATCH_TERMS = 1 << 28
"""Multiply-adds in one dispatch at most, so that a slow GPU's watchdog (about 200 ms) stays quiet."""


@dataclass(frozen=True)
class Tensor:
    """A named tensor: element type and dimensions by name."""

    name: str
    element: str
    dims: tuple[str, ...]


@dataclass(frozen=True)
class Buffer:
    """One kernel argument: `words` 32-bit words, without the guard."""

    name: str
    role: Literal["params", "input", "scratch", "output", "receipt"]
    words: int

    @property
    def writable(self) -> bool:
        """Whether the kernel may write it."""
        return self.role in ("scratch", "output", "receipt")


@dataclass(frozen=True)
class Pass:
    """One dispatch: entry point, workgroups and workgroup size in x, y, z, and its run-time arguments (u32)."""

    entry: str
    groups: tuple[int, int, int]
    workgroup: tuple[int, int, int]
    params: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """All that a backend dispatches for one run key. `receipts`: receipt words that must hold the nonce."""

    buffers: tuple[Buffer, ...]
    passes: tuple[Pass, ...]
    receipts: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """A catalogue entry: one kernel in one variant. `needs` names device features by language.

    `control`: its result is not defined to the bit, so it has no reference and is never judged right or wrong.
    """

    name: str
    variant: str
    stem: str
    shape: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    output: Tensor
    entries: tuple[str, ...]
    passes: Callable[[Case, str], tuple[Pass, ...]]
    purpose: str
    distributions: tuple[str, ...]
    generate: Callable[[Case], dict[str, npt.NDArray[np.generic]]]
    preludes: tuple[str, ...] = ()
    languages: tuple[Language, ...] = LANGUAGES
    schedules: tuple[str, ...] = schedules.NAMES
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)
    control: bool = False

    def check(self, case: Case) -> None:
        """Raise UsageError where a dimension is no multiple of what the kernel needs, or names what it has not."""
        for name, multiple in self.multiples.items():
            if case.dims[name] % multiple:
                raise UsageError(f"case {case.id!r}: {name} must be a multiple of {multiple}")
        names = [name for name, _ in case.extra]
        if names != (["model", "tensor"] if case.dist == "real" else []):
            raise UsageError(f"case {case.id!r}: model= and tensor= go with dist=real, and only they")

    def plan(self, case: Case, schedule: str) -> Plan:
        """Buffers and passes of `case` under `schedule`."""
        words = {t.name: -(-tensor_bytes(t, case) // 4) for t in (*self.inputs, self.output)}
        out = words[self.output.name]
        tiles = -(-case.dims["k"] // schedules.TILE)
        buffers = (
            Buffer("params", "params", 8),
            *(Buffer(t.name, "input", words[t.name]) for t in self.inputs),
            Buffer("order", "input", tiles),
            Buffer("scratch", "scratch", schedules.PARTS * out if schedule == "split_k" else 4),
            Buffer(self.output.name, "output", out),
            Buffer("receipt", "receipt", RECEIPT_WORDS),
        )
        passes = self.passes(case, schedule)
        for p in passes:
            if max(p.groups) > MAX_GROUPS:
                raise UsageError(f"{case.id}: {max(p.groups)} workgroups in one dimension, at most {MAX_GROUPS}")
        return Plan(buffers, passes, tuple(sorted({self.entries.index(p.entry) for p in passes})))


def dimensions(tensor: Tensor, case: Case) -> tuple[int, ...]:
    """The dimensions of `tensor` in `case`. `q8_0_row` is the length of a Q8_0 row: 34 bytes a block of 32."""
    dims = dict(case.dims)
    if "k" in dims:
        dims["q8_0_row"] = dims["k"] // 32 * 34
    return tuple(dims[d] for d in tensor.dims)


def tensor_bytes(tensor: Tensor, case: Case) -> int:
    """Bytes of `tensor` in `case`."""
    size = int(tensor.element[1:]) // 8
    for d in dimensions(tensor, case):
        size *= d
    return size


def _bands(rows: int, terms_a_row: int, multiple: int) -> list[tuple[int, int]]:
    """Rows cut so that no dispatch has more than DISPATCH_TERMS multiply-adds nor MAX_GROUPS rows: (start, count)."""
    step = max(multiple, DISPATCH_TERMS // terms_a_row // multiple * multiple)
    step = min(step, MAX_GROUPS // multiple * multiple)
    return [(start, min(step, rows - start)) for start in range(0, rows, step)]


def _combine(case: Case, params: tuple[int, ...]) -> Pass:
    total = case.dims["m"] * case.dims["n"]
    return Pass("combine", (-(-total // 64), 1, 1), (64, 1, 1), params)


def _gemm_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: M, N, K, first row of the band, part length. A workgroup makes 16 x 16 outputs; under `tree` 16 x 1."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = []
    for start, count in _bands(m, n * k, 16):
        y = count if schedule == "tree" else -(-count // 16)
        passes.append(Pass("multiply", (-(-n // 16), y, parts), (16, 16, 1), (m, n, k, start, part)))
    if schedule == "split_k":
        passes.append(_combine(case, (m, n, k, 0, part)))
    return tuple(passes)


def _gemm_fast_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """As `_gemm_passes`; a workgroup is one work-item and makes 128 x 32 outputs."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = [
        Pass("multiply", (-(-n // 32), -(-count // 128), parts), (1, 1, 1), (m, n, k, start, part))
        for start, count in _bands(m, n * k, 128)
    ]
    if schedule == "split_k":
        passes.append(_combine(case, (m, n, k, 0, part)))
    return tuple(passes)


def _linear_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: M tokens, N rows, K, first row of the band, part length. A lane makes one output; under `tree` 64 do."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = []
    for start, count in _bands(n, m * k, 64):
        x = count if schedule == "tree" else -(-count // 64)
        passes.append(Pass("multiply", (x, m, parts), (64, 1, 1), (m, n, k, start, part)))
    if schedule == "split_k":
        passes.append(_combine(case, (m, n, k, 0, part)))
    return tuple(passes)


GEMM_ELEMENTS = {
    "gemm_i32": ("i32", "i32"),
    "gemm_i32_i64": ("i32", "i64"),
    "gemm_i8": ("i8", "i32"),
    "gemm_f32": ("f32", "f32"),
}
"""Element types of A and B, and of C."""


def _gemm(name: str, variant: str, stem: str, purpose: str, **more: object) -> Kernel:
    element, output = GEMM_ELEMENTS[name]
    return Kernel(
        name=name,
        variant=variant,
        stem=stem,
        shape=("m", "n", "k"),
        inputs=(Tensor("a", element, ("m", "k")), Tensor("b", element, ("k", "n"))),
        output=Tensor("c", output, ("m", "n")),
        entries=("multiply", "combine"),
        purpose=purpose,
        distributions=tuple(gemm_inputs.distributions(name)),
        generate=gemm_inputs.gemm_inputs,
        **more,  # type: ignore[arg-type]
    )


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
    _gemm("gemm_i32", "base", "gemm_i32", "C = A B of int32, sums modulo 2^32, 16 x 16 tiles", passes=_gemm_passes),
    _gemm(
        "gemm_i32",
        "fast",
        "gemm_i32_fast",
        "the same, strips of 8 rows by two vectors of 16 columns, for CPU devices",
        passes=_gemm_fast_passes,
        languages=("opencl",),
        schedules=("forward", "split_k"),
        needs={"opencl": ("device-type-cpu",)},
    ),
    _gemm(
        "gemm_i32_i64",
        "base",
        "gemm_i32_i64",
        "C = A B of int32, sums modulo 2^64 in 32-bit limbs",
        passes=_gemm_passes,
        preludes=("int64_limbs",),
    ),
    _gemm(
        "gemm_i32_i64",
        "int64",
        "gemm_i32_i64_int64",
        "the same with native 64-bit integers",
        passes=_gemm_passes,
        needs={"wgsl": ("shader-int64",)},
    ),
    _gemm("gemm_i8", "base", "gemm_i8", "C = A B of int8, four to a word, sums modulo 2^32", passes=_gemm_passes),
    _gemm(
        "gemm_f32",
        "base",
        "gemm_f32",
        "the control: the loops of gemm_i32 in float32, where the order of the terms shows",
        passes=_gemm_passes,
        preludes=("float_bits",),
        control=True,
    ),
    _linear(
        "base",
        "linear_q8_0",
        "op 2 of dyadic-q16 on Q8_0 bytes, 64-bit sums in 32-bit limbs",
        preludes=("int64_limbs",),
    ),
    _linear("int64", "linear_q8_0_int64", "the same with native 64-bit integers", needs={"wgsl": ("shader-int64",)}),
)


def base(kernel: str) -> Kernel:
    """The base form of `kernel`; raises UsageError for an unknown one."""
    for k in KERNELS:
        if k.name == kernel:
            return k
    raise UsageError(f"unknown kernel {kernel!r}; there are {', '.join(dict.fromkeys(k.name for k in KERNELS))}")


def variants(kernel: str, language: Language) -> list[Kernel]:
    """The catalogue entries of `kernel` that have a source in `language`, base first."""
    return [k for k in KERNELS if k.name == kernel and language in k.languages]


def find(kernel: str, variant: str) -> Kernel:
    """One catalogue entry; raises UsageError."""
    for k in KERNELS:
        if k.name == kernel and k.variant == variant:
            return k
    raise UsageError(f"kernel {kernel!r} has no variant {variant!r}")


def source(kernel: Kernel, language: Language) -> str:
    """The program text in `language`: preludes, then the kernel."""
    folder = data_root() / FOLDERS[language]
    stems = (*kernel.preludes, kernel.stem)
    return "\n".join((folder / (stem + SUFFIXES[language])).read_text("utf-8") for stem in stems)


def kernel_hash(kernel: Kernel, language: Language, schedule: str) -> str:
    """SHA-256 over preludes, source and constants (not the nonce): tells whether kernel or driver changed."""
    text = f"{source(kernel, language)}\0SCHEDULE={schedules.NAMES.index(schedule)}"
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
