"""One command over several devices: each device's run, one at a time, sealed as a record each."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from harness import devices, doctor, journal, presets, selections, store
from harness.backends import SIMULATOR
from harness.devices import Device
from harness.errors import NoDevice, UsageError
from harness.journal import Journal
from harness.locks import device_lock
from harness.privacy import Redactor, salt
from harness.provenance import new_header, new_id
from harness.records import Run
from harness.reference import Reference
from harness.selections import Selection, Shard
from harness.supervisor import Budgets, DeviceRun, language_of, tasks
from harness.verdicts import Result

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


@dataclass
class Outcome:
    """What came of it. `missing`: sentences about named or expected devices; `interrupted`: something was left undone."""

    devices: list[Device]
    records: list[Path] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    interrupted: bool = False
    gate_run: str = ""

    def runs(self) -> list[Run]:
        """The records as read back: what is judged is what was kept."""
        return store.collect(self.records) if self.records else []


def execute(options: Options, say: Say) -> Outcome:
    """Discover, run every chosen device, seal the records. Raises UsageError, InputRefused, NoDevice before anything runs."""
    wanted = selections.chosen(options.preset, options.cases, options.shard)
    for model in {s.case.model for s in wanted if s.case.model}:
        from harness.models import verified

        verified(model)
    journal.check_out(options.out)
    parents = parents_of(options.resume, options.out) if options.resume else {}
    say("looking for devices")
    outcome = Outcome(devices.discover())
    chosen = choose(outcome.devices, options)
    if options.optimiser_off:
        chosen = [devices.without_optimiser(device) for device in chosen]
    outcome.missing = devices.expected(outcome.devices)
    outcome.gate_run = next((p.header.gate_run for p in parents.values()), new_id())
    redactor = Redactor(salt(), identify=options.identify)
    with ExitStack() as stack:
        reference = stack.enter_context(Reference())
        stack.enter_context(device_lock(say))
        try:
            for device in chosen:
                if options.preset == "soak":
                    _soak(device, options, reference, redactor, outcome, say)
                else:
                    _run(device, wanted, options, reference, redactor, outcome, say, parents.get(device.id))
        except KeyboardInterrupt:
            outcome.interrupted = True
            say(f"interrupted; go on with `samebits gate --resume {outcome.gate_run} --preset {options.preset}`")
    return outcome


def choose(found: Sequence[Device], options: Options) -> list[Device]:
    """The devices to run on; raises NoDevice where a selector or --require-hardware finds none, with what to install.

    A simulator takes hours for more than `tiny`: there it is run when it is named, and else a row that says so.
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
        chosen = [d for d in chosen if SIMULATOR not in d.features]
    return chosen


def parents_of(resume: str, out: Path) -> dict[str, Run]:
    """The newest run of each device in the gate run to go on with, by device id.

    `resume` is a record or journal, a gate run's id, or `last`. Raises UsageError, InputRefused.
    """
    path = Path(resume)
    if path.exists() and path.is_file():
        run = store.load(path)
        return {run.header.device.id: run}
    known = [store.load(p) for p in journal.unfinished() if p.stat().st_size]
    known += store.collect([out]) if any(out.rglob("*.jsonl.gz")) else []
    known.sort(key=lambda r: (r.header.started, r.header.run_id))
    gate_run = known[-1].header.gate_run if resume == "last" and known else resume
    found = {r.header.device.id: r for r in known if r.header.gate_run == gate_run}
    if not found:
        raise UsageError(
            f"nothing to resume as {resume!r} in {out} or among the journals; name a record, or leave --resume out"
        )
    return found


def _run(
    device: Device,
    wanted: Iterable[Selection],
    options: Options,
    reference: Reference,
    redactor: Redactor,
    outcome: Outcome,
    say: Say,
    parent: Run | None = None,
) -> list[Result]:
    """One device, one record."""
    todo = tasks(wanted, language_of(device))
    if device.kind != "compile-only":  # nothing of it is compared
        reference.prefetch(task.case for task in todo)
    run = DeviceRun(device, reference, budgets=options.budgets, memory_limit=options.memory_limit)
    header = new_header(
        device,
        options.preset,
        presets.VERSION[options.preset],
        [planned for task in todo for planned in task.planned(run.language)],
        redactor,
        nonce=run.nonce,
        budgets=options.budgets.seconds(),
        options=({"cases": " ".join(options.cases)} if options.cases else {})
        | ({"shard": str(options.shard)} if options.shard else {})
        | ({"optimiser": "off"} if options.optimiser_off else {}),
        gate_run=outcome.gate_run,
        parent=parent.header.run_id if parent else None,
    )
    finished = journal.carry_over(parent, header) if parent else {}
    total, begin = len(header.planned), time.monotonic()
    carried = f", {len(finished)} carried over" if finished else ""
    say(f"{device.id}: {device.name}: {total} run keys{carried}")
    progress = _Progress(device.id, total)
    with Journal(header, redactor) as kept:
        try:
            run.execute(todo, kept, options.out / "failures" / header.run_id, finished, progress)
            kept.footer()
        except KeyboardInterrupt:
            kept.footer("interrupted")
            outcome.records.append(kept.seal(options.out))
            raise
        finally:
            progress.clear()
        outcome.records.append(kept.seal(options.out))
    counts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(_counts(run.results).items()))
    wall = time.monotonic() - begin
    share = 100 * max(0.0, 1 - sum(run.seconds.values()) / wall)
    say(f"{device.id}: {counts} in {wall:.1f} s (harness {share:.0f} %)")
    return run.results


def _soak(
    device: Device, options: Options, reference: Reference, redactor: Redactor, outcome: Outcome, say: Say
) -> None:
    """Round after round, a record each, until enough elements are compared or the time is over."""
    begin, elements = time.monotonic(), 0
    for number, cases in enumerate(presets.soak_rounds(), 1):
        results = _run(device, [Selection(c) for c in cases], options, reference, redactor, outcome, say)
        elements += sum(r.elements for r in results if r.role == "case" and r.verdict == "match")
        spent = time.monotonic() - begin
        say(f"{device.id}: round {number}: {elements:,} of {presets.SOAK_ELEMENTS:,} elements compared, {spent:.0f} s")
        for case in cases:
            reference.forget(case)
        over = options.soak_seconds is not None and spent >= options.soak_seconds
        done = elements >= presets.SOAK_ELEMENTS or device.kind == "compile-only"
        if over or done or any(r.verdict == "not-run" for r in results):
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
