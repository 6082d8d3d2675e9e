"""The family of limb arithmetic: every function of the preludes int64_limbs and int128_limbs, and its cases.

The form `int64` tries int64_native the same way, which takes the place of int64_limbs.
"""

from harness.cases import Case
from harness.families import catches, limbs_inputs, native
from harness.plans import Kernel, Pass, Tensor

FUNCTIONS = 30
"""Functions that the kernel numbers; one row of results each."""

LANES = 64


def _passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: number of elements. A lane applies one function to one element."""
    n = case.dims["n"]
    return (Pass("apply", (-(-n // LANES), FUNCTIONS, 1), (LANES, 1, 1), (n,)),)


_LIMBS = Kernel(
    name="limbs",
    variant="base",
    stem="limbs",
    shape=("n",),
    inputs=(Tensor("a", "i32", ("n", 4)), Tensor("b", "i32", ("n", 4)), Tensor("shift", "i32", ("n",))),
    output=Tensor("r", "i32", (FUNCTIONS, "n", 4)),
    entries=("apply",),
    passes=_passes,
    purpose="64- and 128-bit add, multiply, shift, compare, divide, root and round in 32-bit limbs",
    distributions=tuple(limbs_inputs.DISTRIBUTIONS),
    generate=limbs_inputs.limbs_inputs,
    preludes=("int64_limbs", "int128_limbs"),
    schedules=("forward",),
    reduces=None,
)

KERNELS: tuple[Kernel, ...] = (_LIMBS, native(_LIMBS, _LIMBS.distributions))


def _case(n: int, dist: str, seed: int, reason: str = "") -> Case:
    return Case("limbs", (("n", n),), dist, seed, reason=reason or catches(limbs_inputs.DISTRIBUTIONS[dist]))


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset: every distribution, `full` once more where whole groups meet their guard."""
    few = preset == "tiny"
    edges = _case(29 if few else limbs_inputs.EDGE_PAIRS, "edges", seed)
    others = [_case(13 if few else 1031, dist, seed) for dist in limbs_inputs.DISTRIBUTIONS if dist != "edges"]
    return [edges, *others, _case(1, "full", seed, "one element: every guard is at work")]


SELF_TESTS = {"limbs": _case(13, "full", 0, "known answer, committed")}
