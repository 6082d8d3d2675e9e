"""Judging: what a device's dumped output is worth. The table of verdicts, their one severity order, and `judge`.

All judging happens here, in the parent, from bytes; a worker never sees what was expected.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from harness.digest import digest_bytes, numpy_type
from harness.kernels import GUARD_WORDS

SENTINELS = (0xA5A5A5A5, 0x5A5A5A5A)
"""Outputs are filled with the first before run 1, with its complement before run 2."""

GUARD = 0xC0DEFACE
"""The value of each guard word."""

Colour = Literal["green", "red", "orange", "grey", "blue", "hatched"]


@dataclass(frozen=True)
class Verdict:
    """A row of the table in `docs/design.md`. `evidence`: the device may still count after it."""

    word: str
    colour: Colour
    exit_code: int
    junit: Literal["pass", "failure", "error", "skipped"]
    fails_gate: bool = False
    evidence: bool = True


TABLE: dict[str, Verdict] = {
    v.word: v
    for v in (
        # worst first: this order is the one severity order
        Verdict("mismatch", "red", 1, "failure", fails_gate=True, evidence=False),
        Verdict("nondeterministic", "red", 1, "failure", fails_gate=True, evidence=False),
        Verdict("unwritten", "red", 1, "failure", fails_gate=True, evidence=False),
        Verdict("sanitizer", "red", 1, "failure", fails_gate=True, evidence=False),
        Verdict("crash", "orange", 1, "error", evidence=False),
        Verdict("device-lost", "orange", 1, "error", evidence=False),
        Verdict("timeout", "orange", 1, "error", evidence=False),
        Verdict("launch-error", "orange", 1, "error", evidence=False),
        Verdict("compile-error", "orange", 1, "error", evidence=False),
        Verdict("not-run", "grey", 4, "error", evidence=False),
        Verdict("fix", "green", 1, "failure"),
        Verdict("waived", "hatched", 0, "skipped", evidence=False),
        Verdict("unsupported", "grey", 0, "skipped"),
        Verdict("informational", "grey", 0, "skipped"),
        Verdict("compiled", "blue", 0, "skipped", evidence=False),
        Verdict("match", "green", 0, "pass"),
    )
}

SEVERITY = {word: rank for rank, word in enumerate(TABLE)}
"""Rank of each verdict, 0 the worst."""

FAULTS = tuple(word for word, v in TABLE.items() if v.colour in ("red", "orange"))
"""Verdicts that say a device or its driver is at fault; an expectation can waive them."""

EXIT_ORDER = (5, 1, 4, 3, 2)
"""When several exit codes apply, the first of these."""


def worst(verdicts: Sequence[str]) -> str:
    """The most severe of some verdicts (at least one)."""
    return min(verdicts, key=SEVERITY.__getitem__)


def exit_code(codes: Sequence[int]) -> int:
    """The one exit code of several; 0 where none applies."""
    return next((c for c in EXIT_ORDER if c in codes), 0)


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where an output is wrong: first differing index, how many differ, a window of both sides, the operands.

    `window_start` is the flat index of the windows' first element; `operands` holds, by input tensor, the slice
    that the first wrong element depends on (cut to `OPERANDS_SHOWN` values).
    """

    index: list[int]
    count: int
    window_start: int
    expected: list[int]
    actual: list[int]
    operands: dict[str, list[int]] = {}
    guard_words: int = 0


class Result(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type", tag="result"
):
    """One run key on one device, judged. It is a line of a record as it stands.

    `role`: "case", "self-test" (known answer), "known-bad" (the twin that must mismatch) or "shutdown" (the worker's end).
    `digest` is the device's, `expected` the reference's, `second` the second implementation's.
    `elements`: output elements compared, both runs counted. `phase`, `feature`, `needed`, `there`, `was` stand beside the
    verdict where it has them. `seconds` by phase: compile, upload, run, reference.
    """

    run: str
    case: str
    schedule: str
    variant: str
    verdict: str
    case_version: str
    kernel_hash: str
    role: str = "case"
    digest: str | None = None
    expected: str | None = None
    second: str | None = None
    elements: int = 0
    leaves_type: int = 0
    inputs: dict[str, str] = {}
    phase: str | None = None
    feature: str | None = None
    needed: str | None = None
    there: str | None = None
    was: str | None = None
    detail: str | None = None
    difference: Difference | None = None
    repeat: str | None = None
    artefacts: list[str] = []
    seconds: dict[str, float] = {}

    def fields(self) -> dict[str, Any]:
        """The result as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


@dataclass(frozen=True)
class Judgement:
    """What two dumps of one output say against the expected bytes."""

    verdict: str
    digest: str | None
    difference: Difference | None
    detail: str | None = None


WINDOW = 4
OPERANDS_SHOWN = 64


def judge(
    dumps: tuple[bytes, bytes],
    expected: bytes,
    element: str,
    dims: Sequence[int],
    sanitizer: Sequence[str] = (),
) -> Judgement:
    """The verdict on two dumps (output words, then the guard), the first filled with SENTINELS[0] before, the second with [1].

    `expected` are the canonical bytes of the right tensor. A dump of the wrong length is a launch-error.
    """
    size = len(expected)
    padded = -(-size // 4) * 4
    length = padded + 4 * GUARD_WORDS
    if any(len(d) != length for d in dumps):
        return Judgement("launch-error", None, None, f"dumped {[len(d) for d in dumps]} bytes, expected {length}")
    kind = numpy_type(element)
    first, second = (np.frombuffer(d, dtype=kind, count=size // kind.itemsize) for d in dumps)
    digest = digest_bytes(element, dims, dumps[0][:size])

    repeat = -(-kind.itemsize // 4)
    marks = [np.frombuffer(s.to_bytes(4, "little") * repeat, dtype=kind, count=1)[0] for s in SENTINELS]
    unwritten = np.flatnonzero((first == marks[0]) & (second == marks[1]))
    right = np.frombuffer(expected, dtype=kind)
    if len(unwritten):
        what = f"{len(unwritten)} of {first.size} elements never written"
        return Judgement("unwritten", digest, _difference(right, first, dims, unwritten), what)
    unequal = np.flatnonzero(first != second)
    if len(unequal):
        what = f"two runs differ in {len(unequal)} of {first.size} elements"
        return Judgement("nondeterministic", digest, _difference(second, first, dims, unequal), what)
    guards = [np.frombuffer(d, dtype="<u4", offset=padded) for d in dumps]
    broken = int(sum((g != GUARD).sum() for g in guards))
    if broken:
        wrong = np.flatnonzero(first != right)
        return Judgement(
            "mismatch",
            digest,
            _difference(right, first, dims, wrong, broken),
            f"wrote past the end: {broken} guard words",
        )
    if dumps[0][:size] != expected:
        wrong = np.flatnonzero(first != right)
        return Judgement(
            "mismatch", digest, _difference(right, first, dims, wrong), f"{len(wrong)} of {first.size} wrong"
        )
    if sanitizer:
        return Judgement("sanitizer", digest, None, sanitizer[0])
    return Judgement("match", digest, None)


def observe(dumps: tuple[bytes, bytes], element: str, dims: Sequence[int]) -> Judgement:
    """What two dumps of the control say: its digest, and whether its two runs differ. Neither is a fault."""
    size = numpy_type(element).itemsize * math.prod(dims)
    length = -(-size // 4) * 4 + 4 * GUARD_WORDS
    if any(len(d) != length for d in dumps):
        return Judgement("launch-error", None, None, f"dumped {[len(d) for d in dumps]} bytes, expected {length}")
    detail = None if dumps[0][:size] == dumps[1][:size] else "two runs differ"
    return Judgement("informational", digest_bytes(element, dims, dumps[0][:size]), None, detail)


def _difference(
    right: npt.NDArray[Any], got: npt.NDArray[Any], dims: Sequence[int], wrong: npt.NDArray[np.intp], guard: int = 0
) -> Difference:
    at = int(wrong[0]) if len(wrong) else 0
    start, stop = max(0, at - WINDOW), at + WINDOW + 1
    return Difference(
        index=[int(i) for i in np.unravel_index(at, tuple(dims))] if len(wrong) else [],
        count=len(wrong),
        window_start=start,
        expected=[int(v) for v in right[start:stop]],
        actual=[int(v) for v in got[start:stop]],
        guard_words=guard,
    )


def operands(
    index: Sequence[int],
    output_dims: Sequence[str | int],
    inputs: Mapping[str, tuple[Sequence[str | int], npt.NDArray[Any]]],
) -> dict[str, list[int]]:
    """By input tensor, the slice that output element `index` depends on, at most OPERANDS_SHOWN values.

    `inputs` maps a name to its dimension names and array; dimensions shared with the output by name are fixed at `index`.
    """
    at = {d: i for d, i in zip(output_dims, index, strict=True) if isinstance(d, str)}
    found = {}
    for name, (dims, array) in inputs.items():
        piece = array[tuple(at.get(d, slice(None)) if isinstance(d, str) else slice(None) for d in dims)]
        found[name] = [int(v) for v in np.ravel(piece)[:OPERANDS_SHOWN]]
    return found
