"""Families of kernels: each module holds KERNELS, SELF_TESTS and `cases(preset, seed)`; inputs lie beside it.

SELF_TESTS: kernel -> its known-answer case; the known-bad twin (the last term left out) must mismatch on it.
`cases(preset, seed)`: the family's share of `tiny`, `quick` or `full`, which holds `quick`; `soak` is one round of
`full` and what counts towards its 10^9 elements. Cases of released models stand in `full` under seed 0 only, but for whole
passes, which take another prompt under each seed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.cases import Case
from harness.plans import Kernel

Shape = tuple[int, int, int]
Shaped = tuple[Shape, str]
"""M, N, K and the reason."""


def catches(distribution: object) -> str:
    """The first line of a distribution's docstring: what it can catch."""
    return (distribution.__doc__ or "").strip().splitlines()[0]


def case_of(kernel: str, shape: Sequence[int], dist: str, seed: int, reason: str) -> Case:
    """The case of a kernel with dimensions m, n, k."""
    return Case(kernel, tuple(zip("mnk", shape, strict=True)), dist, seed, reason=reason)


def shaped(kernel: str, shapes: Iterable[Shaped], seed: int) -> list[Case]:
    """`full` in all shapes."""
    return [case_of(kernel, shape, "full", seed, reason) for shape, reason in shapes]


NATIVE_SCHEDULES = ("forward", "split_k")
"""Of a native form: all entry points are run under these two."""


def native(kernel: Kernel, distributions: Sequence[str]) -> Kernel:
    """The form `int64` of a kernel in limbs: the same source, after a prelude that computes by native 64-bit integers.

    The prelude is tried function by function, by `limbs`. What is left to try here is what compilers make of both together,
    so `distributions` are a few: contract edges, ties, sums that wrap.
    """
    return replace(
        kernel,
        variant="int64",
        purpose="the same with native 64-bit integers",
        distributions=tuple(distributions),
        preludes=tuple("int64_native" if name == "int64_limbs" else name for name in kernel.preludes),
        schedules=tuple(name for name in kernel.schedules if name in NATIVE_SCHEDULES),
        needs={"wgsl": ("shader-int64",)},
    )
