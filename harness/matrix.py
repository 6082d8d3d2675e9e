"""The matrix: records rolled up into one table, and the gate over them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from harness import presets, shards
from harness.backends.common import VENDORS, vendor_name
from harness.devices import Device
from harness.kernels import open_somewhere, parts
from harness.records import Run, unit
from harness.verdicts import TABLE, Result, exit_code

PASS_ELEMENTS = 10**9
"""Output elements compared, every schedule and repeat counted, on each hardware vendor."""

PASS_VENDORS = 2
HARDWARE_VENDORS = frozenset(VENDORS.values()) - {"Microsoft", "Google", "Mesa"}
"""Who makes hardware. Another name counts for nothing until it is added: two spellings are not two vendors."""

CONTROL = "gemm_f32"
"""The kernel that must diverge somewhere, to show that the schedules do reorder."""

NO_POWER, NOT_RUN = "no power", "not run"
"""A control whose schedules all gave one digest, and one that gave none."""


class Failure(msgspec.Struct, frozen=True):
    """A result that is not as it should be, with the command that repeats it."""

    device: str
    result: Result
    record: str

    def plain(self) -> dict[str, Any]:
        """The object of `gate --json`."""
        return {"device": self.device, "record": self.record} | self.result.fields()


class Row(msgspec.Struct, frozen=True):
    """One device in the matrix: its counts by verdict, and why it gives no evidence (empty: it does).

    `void` holds reasons for which its results count for nothing; `elements` are those compared and matched. `control`
    is what the f32 control showed here (see `control`).
    """

    device: Device
    counts: dict[str, int]
    elements: int = 0
    evidence: list[str] = []
    void: list[str] = []
    complete: bool = True
    started: str = ""
    control: str = NOT_RUN

    def summary(self) -> dict[str, Any]:
        """The row of `gate --json`."""
        own = {"counts": self.counts, "elements": self.elements, "control": self.control, "no_evidence": self.evidence}
        return self.device.summary() | own


class Gate(msgspec.Struct, frozen=True):
    """The gate over some runs: `PASS`, `FAIL`, `OPEN` or `VOID`, and what is missing for PASS, in sentences."""

    gate: str
    missing: list[str]
    preset: str
    complete: bool
    rows: list[Row]
    failures: list[Failure]
    records: list[str]
    codes: list[int]
    waived: list[Failure] = []

    def exit_code(self, require_pass: bool = False, more: Iterable[int] = ()) -> int:
        """The process's exit code; OPEN alone is 0 unless PASS is required."""
        unmet = [1] if require_pass and self.gate != "PASS" else []
        return exit_code([*self.codes, *unmet, *more])

    def plain(self) -> dict[str, Any]:
        """The object that `gate --json` promises."""
        return {
            "gate": self.gate,
            "missing": self.missing,
            "preset": self.preset,
            "complete": self.complete,
            "devices": [row.summary() for row in self.rows],
            "failures": [f.plain() for f in self.failures],
            "waived": [f.plain() for f in self.waived],
            "records": self.records,
        }


def judge(
    runs: Sequence[Run],
    others: Sequence[Device] = (),
    missing: Sequence[str] = (),
    interrupted: bool = False,
    allow_fixes: bool = False,
) -> Gate:
    """The gate over `runs`, with expectations laid over them (`expectations.apply`).

    `others` are devices that were found and not run; `missing` are sentences of the caller. `allow_fixes`: a fixed fault
    whose entry is still there is no reason to exit with 1.
    """
    hidden = _hidden(runs)
    runs = latest(runs)
    groups: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[unit(run.header.device)].append(run)
    everywhere = _void_everywhere(runs)
    rows = [_row(group, everywhere) for group in groups.values()]
    noted = [Failure(run.header.device.id, r, run.path.name) for run in runs for r in run.results] + hidden
    failures = [f for f in noted if _is_failure(f.result) and not (allow_fixes and f.result.verdict == "fix")]
    waived = [f for f in noted if f.result.verdict == "waived"]
    names = sorted({run.header.preset for run in runs})
    complete = bool(runs) and all(run.complete for run in runs) and not interrupted
    wanting = [*_missing(runs, rows, names), *missing]
    void = any(row.void for row in rows)
    red = any(TABLE[f.result.verdict].fails_gate for f in failures)
    word = "VOID" if void else "FAIL" if red else "OPEN" if wanting or not complete else "PASS"
    codes = [TABLE[f.result.verdict].exit_code for f in failures]
    codes += [5] if void else []
    codes += [] if complete or not runs else [4]
    rows += [Row(device, {}, evidence=[device.reason]) for device in others]
    records = [run.path.name for run in runs if run.sha256]  # a lost shard has none
    return Gate(word, wanting, "+".join(names), complete, rows, failures, records, codes, waived)


def latest(runs: Sequence[Run]) -> list[Run]:
    """The runs without those that another one of them resumed: it carries their results."""
    parents = {run.header.parent for run in runs}
    return [run for run in runs if run.header.run_id not in parents]


def _hidden(runs: Sequence[Run]) -> list[Failure]:
    """Red results of resumed runs that the run which resumed them does not repeat: resuming hides no fault.

    What another kernel or case version gave is no longer asked for.
    """
    shown = latest(runs)
    now = {(unit(run.header.device), r.role, r.run): r for run in shown for r in run.results}
    found = []
    for run in runs:
        if run in shown or run.voids:
            continue
        for r in run.results:
            new = now.get((unit(run.header.device), r.role, r.run))
            same = new is None or (new.case_version, new.kernel_hash) == (r.case_version, r.kernel_hash)
            if (
                TABLE[r.verdict].fails_gate
                and r.role != "known-bad"
                and same
                and (new is None or new.verdict != r.verdict)
            ):
                found.append(Failure(run.header.device.id, r, run.path.name))
    return found


def _void_everywhere(runs: Sequence[Run]) -> list[str]:
    """Why no run counts: reference and second disagreed somewhere, or two records expect different digests of one case."""
    reasons = [v.reason for run in runs for v in run.voids if v.everywhere]
    expected: dict[str, str] = {}
    for run in runs:
        for r in run.results:
            if r.expected is None:
                continue
            if r.second not in (None, r.expected):
                reasons.append(f"reference and second disagree: {r.case}: {r.expected} != {r.second}")
            elif expected.setdefault(r.case_version, r.expected) != r.expected:
                reasons.append(f"records disagree on what is right: {r.case}, in {run.path.name} and others")
    return list(dict.fromkeys(reasons))


def _is_failure(result: Result) -> bool:
    """Whether a user must read of it. A known-bad twin that mismatches is as it should be."""
    if result.role == "known-bad":
        return TABLE[result.verdict].colour in ("orange",)
    return TABLE[result.verdict].exit_code != 0


def _row(group: Sequence[Run], everywhere: Sequence[str]) -> Row:
    counts: Counter[str] = Counter()
    elements = 0
    evidence: list[str] = []
    void = [*everywhere]
    for run in group:
        void += [v.reason for v in run.voids if v.reason not in void]
        for r in run.results:
            if r.role == "case":
                counts[r.verdict] += 1
                elements += r.elements if r.verdict in ("match", "fix") else 0
            spoilt = _is_failure(r) or r.verdict == "waived" if r.role == "known-bad" else not TABLE[r.verdict].evidence
            # What a compiler alone does is never counted, so it is not missed either.
            if spoilt and r.verdict != "compiled":
                was = f" (was {r.was})" if r.was else ""
                evidence.append(f"{r.verdict}{was}{f' in {r.phase}' if r.phase else ''}: {r.role} {r.run}")
        if not run.complete:
            evidence.append("the run is incomplete")
    return Row(
        device=group[-1].header.device,
        counts=dict(sorted(counts.items())),
        elements=elements,
        evidence=_shortened(evidence),
        void=void,
        complete=all(run.complete for run in group),
        started=group[-1].header.started,
        control=control(group),
    )


def _shortened(reasons: Sequence[str]) -> list[str]:
    return [*reasons[:1], f"and {len(reasons) - 1} more"] if len(reasons) > 1 else list(reasons)


def _missing(runs: Sequence[Run], rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    found = []
    if not runs:
        return ["no device was run"]
    if len(names) > 1:
        found.append(f"records of one preset: these are of {', '.join(names)}")
    reduced = [n for n in names if n in presets.REDUCED]
    if reduced:
        found.append(f"a whole preset: {reduced[0]} is REDUCED and can never PASS; run --preset full")
    if any(run.header.options.get("cases") for run in runs):
        found.append("the whole preset: only selected cases were run")
    for run, shard in shards.absent(runs):
        found.append(f"shard {shard} of preset {run.header.preset} on {run.header.device.id}")
    versions: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for planned in run.header.planned:
            versions[planned.case].add(planned.case_version)
    differing = [case for case, known in versions.items() if len(known) > 1]
    if differing:
        found.append(f"equal case versions: {len(differing)} cases differ between records, the first {differing[0]}")
    for row in rows:
        if row.evidence:
            found.append(f"evidence of {row.device.id}: {'; '.join(row.evidence)}")
    found += _unchecked(runs)
    vendors: dict[str, int] = defaultdict(int)
    matched: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        vendor = vendor_name(0, row.device.vendor)
        made = row.device.kind == "hardware" and row.device.api != "mock" and vendor in HARDWARE_VENDORS
        if made and not row.evidence and row.counts.get("match"):
            vendors[vendor] += row.elements
            mine = [run for run in runs if unit(run.header.device) == unit(row.device)]
            matched[vendor] |= {r.case for run in mine for r in _matches(run)}
    if len(vendors) < PASS_VENDORS:
        there = f"only {', '.join(vendors)}" if vendors else "none"
        found.append(f"hardware of {PASS_VENDORS} vendors on which every case matched: there is {there}")
        each = f"a {PASS_VENDORS}nd vendor" if vendors else f"hardware of {PASS_VENDORS} vendors, each"
        found.append(f"10^9 compared elements on {each}: there are none")
    for vendor, elements in sorted(vendors.items()):
        if elements < PASS_ELEMENTS:
            found.append(f"10^9 compared elements on {vendor}: there are {elements:,}; run --preset soak")
    wanted = {case for case in _cases(runs) if kernel_of(case) != CONTROL and not open_somewhere(case)}
    for vendor in sorted(vendors):
        unmatched = wanted - matched[vendor]
        if unmatched:
            found.append(f"a match on {vendor} in {len(unmatched)} cases of the preset, the first {min(unmatched)}")
    said = control(runs)
    if not said.startswith("diverged"):
        found.append(f"the f32 control {CONTROL}: {said}, so nothing shows that the schedules reorder")
    return found


def control(runs: Sequence[Run]) -> str:
    """What the f32 control showed: `diverged (n digests)`, the most of one case on one device, `no power` or `not run`."""
    digests: dict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for run in sorted(latest(runs), key=lambda run: run.header.started):
        for r in run.results:
            if kernel_of(r.case) == CONTROL and r.role == "case" and r.digest:
                digests[unit(run.header.device), r.case_version][r.schedule] = r.digest  # of one schedule the newest
    most = max((len(set(said.values())) for said in digests.values()), default=0)
    return f"diverged ({most} digests)" if most > 1 else NO_POWER if most else NOT_RUN


def kernel_of(case: str) -> str:
    """The kernel that a case id names."""
    return case.partition(";")[0]


def _matches(run: Run) -> list[Result]:
    return [r for r in run.results if r.role == "case" and r.verdict in ("match", "fix")]


def _cases(runs: Sequence[Run]) -> set[str]:
    """The cases that a PASS wants matched: those of the presets, as pinned here; of another version, all that was planned.

    Of `soak` that is the first round.
    """
    wanted: set[str] = set()
    for preset, version in {(run.header.preset, run.header.preset_version) for run in runs}:
        if presets.VERSION.get(preset) == version:
            wanted |= {case.id for case in presets.cases(preset)}
        else:
            mine = [run for run in runs if (run.header.preset, run.header.preset_version) == (preset, version)]
            wanted |= {p.case for run in mine for p in run.header.planned if p.role == "case"}
    return wanted


def _unchecked(runs: Sequence[Run]) -> list[str]:
    """What a match rests on and a record does not show: the second implementation, the self-test, the known-bad twin."""
    found = []
    second = {r.case for run in runs for r in _matches(run) if r.second is None}
    if second:
        found.append(f"the second implementation's word on {len(second)} cases, the first {min(second)}")
    for role, right, name in (
        ("self-test", "match", "known-answer self-test"),
        ("known-bad", "mismatch", "known-bad twin"),
    ):
        lacking: dict[str, set[str]] = defaultdict(set)
        for run in runs:
            done = {kernel_of(r.case) for r in run.results if r.role == role and r.verdict in (right, "fix", "waived")}
            used = {kernel for r in _matches(run) for kernel, _ in parts(kernel_of(r.case), r.schedule)}
            lacking[run.header.device.id] |= used - done - {CONTROL}
        for device, kernels in lacking.items():
            if kernels:
                found.append(f"a {name} of {', '.join(sorted(kernels))} on {device}")
    return found
