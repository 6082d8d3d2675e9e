"""What a kernel is made of, and the plan that a backend dispatches.

A kernel is one integer program with one source per language under the same stem. A backend needs nothing
but a `Plan` and the source text: buffers in argument order, passes in dispatch order.

Argument order, alike in all languages: params, the inputs, order (tiles of `tiled_shuffled`), scratch (partial sums of
`split_k`), heap (of a kernel that has one), output, receipt; a kernel that reduces nothing has no order and no scratch.
All are arrays of 32-bit words;
a 64-bit value is two words, low first. Compile-time constants, alike in all languages: SCHEDULE (0..4), KNOWN_BAD (0 or
1), NONCE.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness import schedules
from harness.cases import Case
from harness.dispatch import GUARD_WORDS as GUARD_WORDS
from harness.dispatch import LANGUAGES as LANGUAGES
from harness.dispatch import PARAMS_WORDS as PARAMS_WORDS
from harness.dispatch import Buffer as Buffer
from harness.dispatch import Language as Language
from harness.dispatch import Pass as Pass
from harness.errors import UsageError

RECEIPT_WORDS = 4
"""The receipt: entry point i writes NONCE to word i, so a program that did not run cannot look as if it had."""

SCRATCH_UNUSED = 4
"""Words of the scratch buffer under a schedule that keeps nothing there."""

MAX_GROUPS = 65_535
DISPATCH_TERMS = 1 << 28
"""Multiply-adds in one dispatch at most, so that a slow GPU's watchdog (about 200 ms) stays quiet."""


@dataclass(frozen=True)
class Tensor:
    """A named tensor: element type and dimensions, each the name of one (see `dimensions`) or a number."""

    name: str
    element: str
    dims: tuple[str | int, ...]


@dataclass(frozen=True)
class Plan:
    """All that a backend dispatches for one run key. `receipts`: receipt words that must hold the nonce."""

    buffers: tuple[Buffer, ...]
    passes: tuple[Pass, ...]
    receipts: tuple[int, ...]


Row = tuple[int, tuple[int, ...]]
"""A row of a probe: the number of an operation, and its operand words as integers of either sign."""


@dataclass(frozen=True)
class Probe:
    """What a kernel of many small operations is beside: their names by number, and what languages leave open.

    No names where the kernel is no list of operations. `literals`: rows whose operands are written into the text
    (`harness/literals.py`). `open_in`: by distribution, languages that accept any result there, so it is shown and not
    judged. `undefined_in`: those that allow no such program at all.
    """

    operations: tuple[str, ...]
    literals: tuple[Row, ...] = ()
    open_in: Mapping[str, tuple[Language, ...]] = field(default_factory=dict)
    undefined_in: Mapping[str, tuple[Language, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Whole:
    """What a whole forward pass of a profile is made of: the kernels that it may call, by name."""

    profile: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """A catalogue entry: one kernel in one variant, or a whole pass, which has no source of its own (`whole`).

    `shape` names the dimensions of its cases, `reduces` the one whose order a schedule chooses: None where there is none,
    and then `schedules` is `forward` alone. `scratch` counts the words that `split_k` keeps between its passes: PARTS
    outputs unless the kernel says otherwise. `heap` counts the words of a buffer that is not read back.
    `needs` names device features by language, `multiples` what a dimension must be a multiple of. Of what else a case id
    may hold, with the values, `options` are a matter of the meaning (the first is meant where none is given) and `sources`
    of the data alone. `refused` is the fault of a case that the kernel does not take for another reason, or an empty text.
    `control`: its result is not defined to the bit, so it has no reference and is never judged right or wrong. `unit` is
    the feature of ours by which a device tells that it has hardware for what the kernel is made of, where there is such a
    thing: advertised, which is not yet correct. `probe`: what a kernel of many small operations is beside.
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
    reduces: str | None = "k"
    scratch: Callable[[Case], int] | None = None
    heap: Callable[[Case], int] | None = None
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Callable[[Case], str] | None = None
    control: bool = False
    unit: str | None = None
    probe: Probe | None = None
    whole: Whole | None = None

    @property
    def writable(self) -> tuple[bool, ...]:
        """Of each argument in order, whether a program may write it."""
        order, scratch = ((False,), (True,)) if self.reduces else ((), ())
        heap = (True,) if self.heap else ()
        return (False, *(False for _ in self.inputs), *order, *scratch, *heap, True, True)

    def takes(self, case: Case, language: Language) -> bool:
        """Whether this variant has run keys of `case` in `language`."""
        undefined = self.probe.undefined_in.get(case.dist, ()) if self.probe else ()
        return case.dist in self.distributions and language not in undefined

    def open(self, case: Case, language: Language) -> bool:
        """Whether `language` accepts any result of `case`."""
        return self.probe is not None and language in self.probe.open_in.get(case.dist, ())

    def check(self, case: Case) -> None:
        """Raise UsageError where a dimension is none that the kernel takes, or an option none that it has."""
        for name, multiple in self.multiples.items():
            if case.dims[name] % multiple:
                raise UsageError(f"case {case.id!r}: {name} must be a multiple of {multiple}")
        given = dict(case.extra)
        model = ["model", "tensor"] if case.dist == "real" else ["model"] if self.whole else []
        if [n for n in given if n in ("model", "tensor")] != model:
            rule = (
                "a whole pass has model= and no tensor="
                if self.whole
                else "model= and tensor= go with dist=real, and only they"
            )
            raise UsageError(f"case {case.id!r}: {rule}")
        words = {**self.options, **self.sources}
        if list(given) != [n for n in words if n in given] + model:
            known = ", ".join(f"{n}={'|'.join(v)}" for n, v in words.items()) or "none"
            raise UsageError(f"case {case.id!r}: {self.name} has no such option, or not in this order; it has {known}")
        if self.refused and (fault := self.refused(case)):
            raise UsageError(f"case {case.id!r}: {fault}")
        for name, values in words.items():
            if name in given and given[name] not in values:
                raise UsageError(f"case {case.id!r}: {name} is {' or '.join(values)}")

    def chosen(self, case: Case) -> dict[str, str]:
        """The value of each option in `case`: what the reference is told."""
        given = dict(case.extra)
        return {name: given.get(name, values[0]) for name, values in self.options.items()}

    def terms(self, case: Case) -> int:
        """The length of the reduction whose order a schedule chooses, 0 where there is none."""
        return case.dims[self.reduces] if self.reduces else 0

    def plan(self, case: Case, schedule: str) -> Plan:
        """Buffers and passes of `case` under `schedule`."""
        words = {t.name: -(-tensor_bytes(t, case) // 4) for t in (*self.inputs, self.output)}
        out = words[self.output.name]
        split = schedule == "split_k"
        partial = (self.scratch(case) if self.scratch else schedules.PARTS * out) if split else SCRATCH_UNUSED
        reduction = (
            Buffer("order", "input", schedules.tiles(self.terms(case))),
            Buffer("scratch", "scratch", partial),
        )
        buffers = (
            Buffer("params", "params", PARAMS_WORDS),
            *(Buffer(t.name, "input", words[t.name]) for t in self.inputs),
            *(reduction if self.reduces else ()),
            *((Buffer("heap", "heap", self.heap(case)),) if self.heap else ()),
            Buffer(self.output.name, "output", out),
            Buffer("receipt", "receipt", RECEIPT_WORDS),
        )
        passes = self.passes(case, schedule)
        for p in passes:
            if max(p.groups) > MAX_GROUPS:
                raise UsageError(f"{case.id}: {max(p.groups)} workgroups in one dimension, at most {MAX_GROUPS}")
        written = {self.entries.index(p.entry) for p in passes if min(p.groups) > 0}
        return Plan(buffers, passes, tuple(sorted(written)))


BLOCK_BYTES = {"q8_0": 34, "q4_1": 20, "q4_0": 18}
"""Bytes of a block of 32 weights by type. The dimension `q8_0_row` is the length of a row of k weights."""


def dimensions(tensor: Tensor, case: Case) -> tuple[int, ...]:
    """The dimensions of `tensor` in `case`: of the case's shape, the length of a row of blocks, or the pairs of a head."""
    dims = dict(case.dims)
    if "k" in dims:
        dims |= {f"{kind}_row": dims["k"] // 32 * size for kind, size in BLOCK_BYTES.items()}
    if "hd" in dims:
        dims["pairs"] = dims["hd"] // 2
    return tuple(d if isinstance(d, int) else dims[d] for d in tensor.dims)


def tensor_bytes(tensor: Tensor, case: Case) -> int:
    """Bytes of `tensor` in `case`."""
    size = int(tensor.element[1:]) // 8
    for d in dimensions(tensor, case):
        size *= d
    return size


def bands(rows: int, terms_a_row: int, multiple: int) -> list[tuple[int, int]]:
    """Rows cut so that no dispatch has more than DISPATCH_TERMS multiply-adds nor MAX_GROUPS rows: (start, count)."""
    step = max(multiple, DISPATCH_TERMS // terms_a_row // multiple * multiple)
    step = min(step, MAX_GROUPS // multiple * multiple)
    return [(start, min(step, rows - start)) for start in range(0, rows, step)]
