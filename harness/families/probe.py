"""The probe family: single integer operations, many to a dispatch, each on rows of operands.

Every probe runs three ways, so that a difference names the layer at fault: operands written into the text (variant
`literal`: what compilers compute), operands from memory (`base`: what the machine computes), and operands from memory
without the optimiser (`--optimiser off`, where a device has that). Probes of workgroups and atomics have no literal form.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cpu_ref.probe import PROBES
from harness.cases import Case
from harness.families import probe_rows
from harness.plans import Kernel, Language, Pass, Probe, Tensor

RESULTS = 4
"""Result words of a row."""

ZERO_SEED = 0


def _inputs(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`ops` i32[rows] and `operands` i32[rows, width]; a table that is too short begins again."""
    count = case.dims["rows"]
    if case.dist == "random":
        rows = probe_rows.randomly(case.kernel, f"{case.id}/rows", count)
    else:
        table = probe_rows.table(case.kernel, case.dist)
        rows = [table[i % len(table)] for i in range(count)]
    operands = np.array([words for _, words in rows], np.uint32)
    return {"ops": np.array([op for op, _ in rows], np.int32), "operands": operands.view(np.int32)}


def _passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: rows, and which literal is the first of them. A lane takes a row."""
    rows = case.dims["rows"]
    return (
        Pass("probe", (-(-rows // 64), 1, 1), (64, 1, 1), (rows, probe_rows.first_literal(case.kernel, case.dist))),
    )


def _group_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """A workgroup takes a row."""
    rows = case.dims["rows"]
    return (Pass("probe", (rows, 1, 1), (64, 1, 1), (rows,)),)


def _atomics_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: rows. A lane clears or finishes a row, three workgroups change it."""
    rows = case.dims["rows"]
    by_lane = (-(-rows // 64), 1, 1)
    return (
        Pass("clear", by_lane, (64, 1, 1), (rows,)),
        Pass("probe", (rows, 3, 1), (64, 1, 1), (rows,)),
        Pass("finish", by_lane, (64, 1, 1), (rows,)),
    )


PASSES = {"probe_group": _group_passes, "probe_atomics": _atomics_passes}
ENTRIES = {"probe_atomics": ("clear", "probe", "finish")}

OPEN: Mapping[str, tuple[Language, ...]] = {"zero": ("opencl",), "overflow": ("opencl",)}
"""OpenCL C: an unspecified value and no exception, so any value is accepted and a crash is not."""

UNDEFINED: Mapping[str, tuple[Language, ...]] = {
    "zero": ("cuda",),
    "overflow": ("cuda",),
    "zeroed": ("cuda", "opencl"),
}
"""C++: undefined behaviour. Workgroup memory begins as zeros in WGSL alone."""

REASONS = {
    "known": "known answer: each operation once, but those with a distribution of their own",
    "edges": "operands at which carries, signs and types change; those of known faults",
    "wide": "shifts by the width and more: WGSL and OpenCL C take the amount modulo the width, here C++ by hand",
    "absolute": "absolute values, with that of the least integer, which has none in its type",
    "clamped": "packing of what a byte does not hold",
    "saturating": "products that leave the type and saturate, and such that just fit",
    "unsigned": "unsigned division and remainder at edges; those of known faults",
    "signed": "signed division at edges, remainders of what is not negative",
    "rem_negative": "signed remainders with a negative operand: the dividend's sign",
    "cross": "every operation on every pair of edges",
    "random": "operands of every length and sign",
    "zero": "division by zero: WGSL says a / 0 = a and a % 0 = 0, OpenCL C leaves the value open",
    "bounded": "loops whose index comes back into bounds past 2^32",
    "zeroed": "workgroup memory read before it is written, after workgroups that left other things there: WGSL says zeros",
    "overflow": "the one quotient that leaves the type: WGSL says it wraps, OpenCL C leaves the value open",
}
"""Distribution -> why it exists."""

RANDOM_ROWS = 1024
RANDOM_GROUPS = 256
"""Rows that are a workgroup each."""


def _distributions(kernel: str) -> tuple[str, ...]:
    open_ones = tuple(OPEN) if kernel == "probe_div" else ()
    crossed = () if kernel in probe_rows.WITHOUT_LITERALS else ("cross",)
    return (*probe_rows.literal_distributions(kernel), *crossed, "random", *open_ones)


def _probe(name: str, purpose: str, needs: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Kernel, ...]:
    """The base form and, where it has one, the variant `literal`."""
    width, operations = PROBES[name]

    def form(variant: str) -> Kernel:
        literal = variant == "literal"
        return Kernel(
            name=name,
            variant=variant,
            stem=name,
            shape=("rows",),
            inputs=(Tensor("ops", "i32", ("rows",)), Tensor("operands", "i32", ("rows", width))),
            output=Tensor("results", "i32", ("rows", RESULTS)),
            entries=ENTRIES.get(name, ("probe",)),
            passes=PASSES.get(name, _passes),
            purpose="the same with operands written into the text" if literal else purpose,
            distributions=probe_rows.literal_distributions(name) if literal else _distributions(name),
            generate=_inputs,
            preludes=("int64_limbs", "probe"),
            needs=needs or {},
            schedules=("forward",),
            reduces=None,
            probe=Probe(tuple(operations), probe_rows.literals(name) if literal else (), OPEN, UNDEFINED),
        )

    return (form("base"),) if name in probe_rows.WITHOUT_LITERALS else (form("base"), form("literal"))


KERNELS: tuple[Kernel, ...] = (
    *_probe("probe_int32", "32-bit arithmetic, order, selection and logic"),
    *_probe("probe_bits", "shifts, rotates, bit fields, counts of bits"),
    *_probe("probe_div", "division and remainder"),
    *_probe("probe_pack", "packed bytes and halves, fp16 by integers, vectors beside scalars"),
    *_probe("probe_flow", "loops with several exits, nested loops, switches, unrolled rounds, guards"),
    *_probe("probe_group", "what lanes of a workgroup hand over: barriers, workgroup memory, its atomics"),
    *_probe("probe_atomics", "atomics on storage, three workgroups at once"),
    *_probe("probe_int64", "native 64-bit arithmetic", {"wgsl": ("shader-int64",)}),
)


def _case(kernel: str, distribution: str, rows: int, seed: int) -> Case:
    return Case(kernel, (("rows", rows),), distribution, seed, reason=REASONS[distribution])


def _of(kernel: str, distributions: tuple[str, ...]) -> list[Case]:
    return [_case(kernel, d, len(probe_rows.table(kernel, d)), ZERO_SEED) for d in distributions]


def cases(preset: str, seed: int) -> list[Case]:
    """Tables stand under seed 0 only, for they are the same under every seed."""
    found: list[Case] = []
    for kernel in dict.fromkeys(k.name for k in KERNELS):
        tables = [d for d in _distributions(kernel) if d not in ("known", "cross", "random")]
        if seed == ZERO_SEED:
            crossed = ("cross",) if preset != "tiny" and kernel not in probe_rows.WITHOUT_LITERALS else ()
            found += _of(kernel, (*tables, *crossed))
        if preset != "tiny":
            rows = RANDOM_GROUPS if kernel in probe_rows.WITHOUT_LITERALS else RANDOM_ROWS
            found.append(_case(kernel, "random", rows, seed))
    return found


SELF_TESTS = {
    name: _case(name, "known", len(probe_rows.table(name, "known")), ZERO_SEED)
    for name in dict.fromkeys(k.name for k in KERNELS)
}
