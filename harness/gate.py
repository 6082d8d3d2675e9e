"""One command over several devices: each device's run, one at a time, sealed as a record each."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import msgspec

from harness import devices, doctor, expectations, groups, journal, presets, selections, store
from harness.backends import ONLY_TINY
from harness.devices import Device
from harness.errors import NoDevice, SamebitsError, UsageError
from harness.expectations import Known
from harness.journal import Journal
from harness.kernels import FAMILY_OF, WHOLE
from harness.lane import Budgets
from harness.locks import device_lock
from harness.privacy import Redactor, salt
from harness.provenance import new_header, new_id, recorded_device
from harness.records import SUFFIX, Header, Key, Run
from harness.reference import Reference
from harness.selections import Selection, Shard
from harness.supervisor import DeviceRun
from harness.tasks import language_of, tasks
from harness.verdicts import SEVERITY, Result

Say = Callable[[str], None]

WORKER_MEMORY = 16 << 30
"""Resident bytes that a worker and its children may take."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    preset: str
    out: Path
    cases: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    require_hardware: bool = False
    resume: str | None = None
    budgets: Budgets = field(default_factory=Budgets)
    identify: bool = False
    soak_seconds: float | None = None
    memory_limit: int = WORKER_MEMORY
    shard: Shard | None = None
    optimiser_off: bool = False
    workers: int | None = None
    known: Sequence[Known] = ()
    """Expectations: what is told of a finished device counts a known fault as waived."""

    def __post_init__(self) -> None:
        """Raises UsageError for what makes no sense."""
        for seconds in (self.soak_seconds, self.budgets.run):
            if seconds is not None and not math.isfinite(seconds):
                raise UsageError(f"{seconds} seconds is no time; give a number of 1 or more")
        if self.soak_seconds and self.preset != "soak":
            raise UsageError(f"--time ends a soak, and the preset is {self.preset}; leave it out, or say --preset soak")
        if self.resume == "":
            raise UsageError(
                "--resume names nothing; name a record or a gate run, or leave its value out for the last one"
            )

    def recorded(self) -> dict[str, str]:
        """What a record's header says of them: which run keys were wanted, and how they were compiled."""
        return (
            ({"cases": " ".join(self.cases)} if self.cases else {})
            | ({"shard": str(self.shard)} if self.shard else {})
            | ({"optimiser": "off"} if self.optimiser_off else {})
        )


@dataclass
class Outcome:
    """What came of it. `missing`: sentences about named or expected devices; `interrupted`: something was left undone."""

    devices: list[Device]
    records: list[Path] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    interrupted: bool = False
    gate_run: str = ""

    def runs(self) -> list[Run]:
        """The records as read back, in the order of the devices: what is judged is what was kept."""
        runs = store.collect(self.records) if self.records else []
        return sorted(runs, key=lambda run: self.records.index(run.path))


def execute(options: Options, say: Say) -> Outcome:
    """Discover, run every chosen device, seal the records. Raises UsageError, InputRefused, NoDevice before anything runs."""
    wanted = selections.chosen(options.preset, options.cases, options.shard)
    for model in {s.case.model for s in wanted if s.case.model}:
        from harness.models import verified

        verified(model)
    journal.check_out(options.out)
    if options.resume:
        parents_of(options.resume, options.out)
    overrides = groups.load()
    say("looking for devices")
    outcome = Outcome(groups.discovered(options.devices, overrides))
    chosen = choose(outcome.devices, options)
    if options.optimiser_off:
        chosen = [devices.without_optimiser(device) for device in chosen]
    if options.cases and not options.shard:
        _check_some_run(chosen, wanted)
    outcome.missing = devices.expected(outcome.devices)
    redactor = Redactor(salt(), identify=options.identify)
    with ExitStack() as stack:
        reference = stack.enter_context(Reference())
        stack.enter_context(device_lock(say))
        # Again: whom we waited for may have gone on with it.
        parents = parents_of(options.resume, options.out) if options.resume else []
        outcome.gate_run = parents[0].header.gate_run if parents else new_id()
        for device in chosen:
            known = recorded_device(device, redactor)
            for parent in (p for p in parents if p.header.device.id == known.id):
                journal.check_parent(parent, known, options.preset, presets.VERSION[options.preset])
                journal.check_selection(parent, options.recorded())
        if parents and not {d.id for d in chosen} & {p.header.device.id for p in parents}:
            there = ", ".join(dict.fromkeys(p.header.device.id for p in parents))
            raise UsageError(f"--resume {options.resume}: that run is of {there}; name it with --device, or run anew")
        command = _Command(options, reference, redactor, parents, outcome, say)
        try:
            for device in chosen:
                if options.preset == "soak":
                    _soak(device, command)
                else:
                    _run(device, wanted, command)
        except KeyboardInterrupt:
            outcome.interrupted = True
            say(f"interrupted; the same command goes on with --resume {outcome.gate_run}")
    return outcome


@dataclass(frozen=True)
class _Command:
    """What the runs of one command share. `parents`: the runs that it goes on with, oldest first."""

    options: Options
    reference: Reference
    redactor: Redactor
    parents: Sequence[Run]
    outcome: Outcome
    say: Say

    def finished(self, header: Header) -> tuple[dict[Key, Result], str | None]:
        """What the run of `header` need not do again, and the run that it resumes.

        An interrupted resumption may hold less than the run that it resumed, so all of them are read. Where two have a
        result of one run key, the worse one stays: no fault is resumed away.
        """
        wanted = {p.key for p in header.planned if p.role == "case"}
        found: dict[Key, Result] = {}
        parent = None
        for run in self.parents:
            if run.header.device.id == header.device.id and any(p.key in wanted for p in run.header.planned):
                parent = run.header.run_id
                for key, result in journal.carry_over(run, header).items():
                    other = found.setdefault(key, result)
                    if SEVERITY[result.verdict] < SEVERITY[other.verdict]:
                        found[key] = result
                if run.voids:
                    found = {}
        return found, parent


def choose(found: Sequence[Device], options: Options) -> list[Device]:
    """The devices to run on; raises NoDevice where a selector or --require-hardware finds none, with what to install.

    A simulator takes hours for more than `tiny`: there it is run when it is named, and else a row that says so; see ONLY_TINY.
    """
    chosen = devices.select(found, options.devices)
    if not any(d.ok for d in found):
        reasons = "; ".join(f"{d.id}: {d.status}: {d.reason}" for d in found)
        raise NoDevice(f"no device at all{f' ({reasons})' if reasons else ''}; {doctor.install_advice()}")
    if options.require_hardware:
        chosen = [d for d in chosen if d.kind == "hardware"]
        if not chosen:
            raise NoDevice(
                "--require-hardware: every usable device is software; `samebits doctor` tells what hides a GPU"
            )
    if not options.devices and options.preset != "tiny":
        chosen = [d for d in chosen if not ONLY_TINY.keys() & set(d.features)]
    return chosen


def _check_some_run(chosen: Sequence[Device], wanted: Sequence[Selection]) -> None:
    """UsageError where none of the devices has a run key of what was selected: a table without a cell looks like success."""
    if not any(selection.runs(language_of(device)) for device in chosen for selection in wanted):
        named = ", ".join(device.id for device in chosen)
        raise UsageError(
            f"nothing of that selection runs on {named}: no kernel of it has such a variant in the language of a device"
        )


def parents_of(resume: str, out: Path) -> list[Run]:
    """The runs of the gate run to go on with, each after the one that it resumed.

    `resume` is a record or journal, a gate run's id, or `last`. Raises UsageError, InputRefused.
    """
    path = Path(resume)
    named = store.load(path) if path.is_file() else None
    runs = {run.header.run_id: run for run in [*_kept(out), *filter(None, [named])]}
    known = sorted(runs.values(), key=lambda r: r.header.started)
    newest = known[-1] if resume == "last" and known else named
    gate_run = newest.header.gate_run if newest else resume
    found = [run for run in known if run.header.gate_run == gate_run]
    if not found:
        raise UsageError(
            f"nothing to resume as {resume!r} in {out} or among the journals; name a record, or leave --resume out"
        )
    return sorted(found, key=lambda run: _generation(run, runs))


def _kept(out: Path) -> Iterator[Run]:
    """The runs that can be read: records in `out`, and journals. One killed while it wrote its header says nothing."""
    for path in [*sorted(out.rglob(f"*{SUFFIX}")), *journal.unfinished()]:
        with suppress(SamebitsError):
            yield store.load(path)


def _generation(run: Run, runs: Mapping[str, Run]) -> int:
    """How many runs came before this one, each resumed by the next."""
    before = 0
    parent = runs.get(run.header.parent or "")
    while parent and before < len(runs):
        before, parent = before + 1, runs.get(parent.header.parent or "")
    return before


def _run(device: Device, wanted: Iterable[Selection], command: _Command) -> list[Result]:
    """One device, one record."""
    options, outcome, say = command.options, command.outcome, command.say
    todo = tasks(wanted, language_of(device))
    if device.kind == "compile-only":  # a twin that only compiles shows nothing
        todo = [task for task in todo if task.role != "known-bad"]
    run = DeviceRun(device, command.reference, options.budgets, options.memory_limit, options.workers)
    header = new_header(
        device,
        options.preset,
        presets.VERSION[options.preset],
        [planned for task in todo for planned in task.planned(run.findings.language)],
        command.redactor,
        nonce=run.findings.nonce,
        budgets=options.budgets.seconds(),
        options=options.recorded(),
        gate_run=outcome.gate_run,
    )
    finished, parent = command.finished(header)
    header = msgspec.structs.replace(header, parent=parent)
    if device.kind != "compile-only":  # nothing of it is compared
        left = (task for task in todo if any((task.role, str(run_key)) not in finished for run_key in task.runs))
        command.reference.prefetch(task.case for task in left)
    total, begin = len(header.planned), time.monotonic()
    carried = f", {len(finished)} carried over" if finished else ""
    checks = sum(planned.role != "case" for planned in header.planned)
    say(f"{device.id}: {device.name}: {total} run keys, {checks} of them checks of kernels{carried}")
    progress = _Progress(device.id, total)
    with Journal(header, command.redactor) as kept:
        try:
            results = run.execute(todo, kept, options.out / "failures" / header.run_id, finished, progress)
            kept.footer()
        except KeyboardInterrupt:
            kept.footer("interrupted")
            outcome.records.append(kept.seal(options.out))
            raise
        finally:
            progress.clear()
        outcome.records.append(kept.seal(options.out))
    told = expectations.over(header.device, results, options.known)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(_counts(told).items()))
    wall = time.monotonic() - begin
    share = 100 * max(0.0, 1 - sum(run.findings.seconds.values()) / run.worker_s) if run.worker_s else 0.0
    say(f"{device.id}: {counts} in {wall:.1f} s (harness {share:.0f} %)")
    return results


def _soak(device: Device, command: _Command) -> None:
    """Round after round, a record a family of kernels, until enough elements are compared or the time is over.

    The time is looked at after each family, the elements after each round: what a round covers is whole unless time ends it.
    A whole pass takes the reference longer than all else, so it is asked for first and computed beside the other families.
    """
    done = {result.case for run in command.parents for result in run.results}
    begin, elements, limit = time.monotonic(), 0, command.options.soak_seconds
    for number, cases in enumerate(presets.soak_rounds(), 1):
        if device.kind != "compile-only":
            command.reference.prefetch(c for c in cases if c.kernel in WHOLE and c.id not in done)
        for family, group in groupby(cases, lambda case: FAMILY_OF[case.kernel]):
            portion = list(group)
            results = _run(device, [Selection(c) for c in portion], command)
            elements += sum(r.elements for r in results if r.role == "case" and r.verdict == "match")
            spent = time.monotonic() - begin
            told = f"{elements:,} of {presets.SOAK_ELEMENTS:,} elements compared, {spent:.0f} s"
            command.say(f"{device.id}: round {number}, {family}: {told}")
            for case in portion:
                command.reference.forget(case)
            if (limit is not None and spent >= limit) or any(r.verdict == "not-run" for r in results):
                return
        if elements >= presets.SOAK_ELEMENTS or device.kind == "compile-only":
            return


def _counts(results: Iterable[Result]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for result in results:
        if result.role == "case":
            counts[result.verdict] = counts.get(result.verdict, 0) + 1
    return counts


class _Progress:
    """One line on a terminal's standard error that counts run keys; nothing where standard error is no terminal."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.done = 0

    def __call__(self, result: Result) -> None:
        self.done += 1
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{self.name}: {self.done}/{self.total} {result.verdict:12.12} {result.case:.60}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
