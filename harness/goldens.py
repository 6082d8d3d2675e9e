"""Golden digests: committed right answers of the presets, so that a changed reference cannot go unseen."""

from collections.abc import Callable, Iterable

import msgspec

from harness import presets
from harness.cases import Case
from harness.errors import UsageError
from harness.folders import data_root, golden_root
from harness.kernels import base
from harness.reference import Expected, Reference, golden_entry


def of_preset(preset: str) -> list[Case]:
    """The cases of `preset` and the self-tests, but the control's, which have no right answer."""
    cases = {c.id: c for c in [*presets.SELF_TEST.values(), *presets.cases(preset)]}
    return [c for c in cases.values() if not base(c.kernel).control]


def derive(cases: Iterable[Case], *, cached: bool, check: bool, write: bool, tell: Callable[[str], None]) -> list[str]:
    """Compute the cases, telling a line each; returns what is wrong: disagreements, and with `check` missing goldens."""
    wrong: list[str] = []
    kept: list[tuple[Case, Expected]] = []
    with Reference(cached=cached) as reference:
        if write:
            reference.goldens = {}
        cases = list(cases)
        reference.prefetch(cases)
        for case in cases:
            expected = reference.expected(case)
            kept.append((case, expected))
            tell(f"{expected.digest}  {case.id}  leaves the type: {expected.leaves_type}")
            if expected.disagreement:
                wrong.append(expected.disagreement)
            elif check and reference.goldens.get(case.id) != golden_entry(expected):
                wrong.append(f"{case.id}: no golden digest of this version is committed")
    if write and not wrong:
        _write(kept)
    return wrong


def _write(kept: Iterable[tuple[Case, Expected]]) -> None:
    if data_root().name == "_data":
        raise UsageError("--write is for a checkout with an editable install; this samebits is installed from a wheel")
    by_kernel: dict[str, dict[str, dict[str, str]]] = {}
    for case, expected in kept:
        by_kernel.setdefault(case.kernel, {})[case.id] = golden_entry(expected)
    for kernel, entries in by_kernel.items():
        path = golden_root() / f"{kernel}.json"
        old = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]]) if path.exists() else {}
        merged = dict(sorted((old | entries).items()))
        path.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=1) + b"\n")
