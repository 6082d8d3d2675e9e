"""The catalogue: every kernel in all its variants, and where the sources lie.

Kernels live in families (`harness/families/`), a module each with its kernels, cases and self-tests; adding one is a line
in FAMILIES. What a kernel is made of: `plans.py`.
"""

import hashlib

from harness import schedules
from harness.errors import UsageError
from harness.families import attention, gemm, layers, limbs, linear, nel, probe, probe_memory, whole
from harness.folders import data_root
from harness.literals import with_literals
from harness.plans import (
    GUARD_WORDS,
    LANGUAGES,
    PARAMS_WORDS,
    RECEIPT_WORDS,
    Buffer,
    Kernel,
    Language,
    Pass,
    Plan,
    Tensor,
    dimensions,
    tensor_bytes,
)
from harness.text import near

__all__ = [
    "GUARD_WORDS",
    "LANGUAGES",
    "PARAMS_WORDS",
    "RECEIPT_WORDS",
    "Buffer",
    "Kernel",
    "Language",
    "Pass",
    "Plan",
    "Tensor",
    "dimensions",
    "tensor_bytes",
]

FOLDERS: dict[Language, str] = {"wgsl": "shaders", "cuda": "cuda", "opencl": "opencl"}
SUFFIXES: dict[Language, str] = {"wgsl": ".wgsl", "cuda": ".cu", "opencl": ".cl"}

FAMILIES = (gemm, linear, limbs, probe, probe_memory, nel, layers, attention, whole)
"""Each has KERNELS, SELF_TESTS (kernel -> case) and cases(preset, seed)."""

KERNELS: tuple[Kernel, ...] = tuple(kernel for family in FAMILIES for kernel in family.KERNELS)

WHOLE: dict[str, Kernel] = {entry.name: entry for entry in whole.WHOLE}
"""Whole passes by name: entries with cases like those of a kernel, made of kernels."""

FAMILY_OF = {
    kernel.name: family.__name__.rpartition(".")[2].partition("_")[0]
    for family in FAMILIES
    for kernel in (*family.KERNELS, *(whole.WHOLE if family is whole else ()))
}
"""Kernel -> the name of its family, a column of the matrix: that of a module up to an underscore."""


def base(kernel: str) -> Kernel:
    """The base form of `kernel`; raises UsageError for an unknown one."""
    for k in (*KERNELS, *WHOLE.values()):
        if k.name == kernel:
            return k
    names = dict.fromkeys([*(k.name for k in KERNELS), *WHOLE])
    raise UsageError(f"unknown kernel {kernel!r}" + (near(kernel, names) or f"; there are {', '.join(names)}"))


def entries(kernel: str) -> list[Kernel]:
    """The catalogue entries of `kernel`, base first."""
    return [k for k in (*KERNELS, *WHOLE.values()) if k.name == kernel]


def variants(kernel: str, language: Language) -> list[Kernel]:
    """Those that have a source in `language`."""
    return [k for k in entries(kernel) if language in k.languages]


def find(kernel: str, variant: str) -> Kernel:
    """One catalogue entry; raises UsageError."""
    for k in entries(kernel):
        if k.variant == variant:
            return k
    there = [k.variant for k in entries(kernel)]
    raise UsageError(f"kernel {kernel!r} has no variant {variant!r}; it has {', '.join(there)}")


def parts(kernel: str, schedule: str) -> list[tuple[str, str]]:
    """The kernels that run where `kernel` does under `schedule`, each with its own: of a whole pass those that it is made of.

    A kernel that does not take the schedule runs under `forward` there. An unknown kernel stands for itself.
    """
    if kernel not in WHOLE:
        return [(kernel, schedule)]
    made = WHOLE[kernel].whole
    names = made.kernels if made else ()
    return [(name, schedule if schedule in base(name).schedules else "forward") for name in names]


def source(kernel: Kernel, language: Language) -> str:
    """The program text in `language`: preludes, then the kernel, with literal operands where it has them."""
    folder = data_root() / FOLDERS[language]
    stems = (*kernel.preludes, kernel.stem)
    text = "\n".join((folder / (stem + SUFFIXES[language])).read_text("utf-8") for stem in stems)
    literals = kernel.probe.literals if kernel.probe else ()
    return with_literals(text, literals) if literals else text


def kernel_hash(kernel: Kernel, language: Language, schedule: str) -> str:
    """SHA-256 over preludes, source and constants (not the nonce): tells whether kernel or driver changed.

    Of a whole pass over the hashes of its kernels.
    """
    if kernel.whole:
        hashes = [kernel_hash(base(name), language, order) for name, order in parts(kernel.name, schedule)]
        return hashlib.sha256("\n".join(hashes).encode("ascii")).hexdigest()
    text = f"{source(kernel, language)}\0SCHEDULE={schedules.NAMES.index(schedule)}"
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def open_somewhere(case: str) -> bool:
    """Whether some language leaves the result of a case open, or allows no such program: a PASS cannot ask for it."""
    kernel = next((k for k in KERNELS if k.name == case.partition(";")[0]), None)
    if kernel is None or kernel.probe is None:
        return False
    return any(f";dist={name};" in case for name in {*kernel.probe.open_in, *kernel.probe.undefined_in})
