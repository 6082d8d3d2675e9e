"""The parent: runs a list of cases on one device through a worker process, judges each dump, keeps the journal.

A crash, a hang or a lost device costs the run key under way and no other: the worker is replaced and the rest goes on.
After LOSSES_ALLOWED losses the device is set aside and what remains is `not-run`.
"""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from harness import backends, kernels, presets, schedules
from harness.cases import Case, RunKey
from harness.devices import Device
from harness.digest import numpy_type
from harness.errors import InternalError
from harness.process import Child, ChildFault, Closed, ProtocolError, Timeout, environment, one_line, python
from harness.reference import Reference
from harness.verdicts import Result, judge, operands

LOSSES_ALLOWED = 3
KEPT_FAILURES = 8
"""Failures of one run whose tensors and compiled artefacts are kept, KEPT_BYTES a tensor at most."""

KEPT_BYTES = 1 << 26

KNOWN_BAD_SCHEDULE = "forward"
FAULTS = ("unsupported", "compile-error", "launch-error", "device-lost")
PHASES = ("probe", "compile", "run", "shutdown")


@dataclass(frozen=True)
class Budgets:
    """Seconds that a worker may stay in each phase without a word."""

    probe: float = 60.0
    compile: float = 120.0
    run: float = 120.0
    shutdown: float = 10.0

    def of(self, phase: str) -> float:
        """The budget of `phase`."""
        return float(getattr(self, phase))


@dataclass(frozen=True)
class Selection:
    """A case and which of its run keys are wanted; None stands for all."""

    case: Case
    schedule: str | None = None
    variant: str | None = None

    def runs(self, language: kernels.Language) -> list[RunKey]:
        """The run keys in `language`, base variant first."""
        return [
            RunKey(self.case.id, schedule, kernel.variant)
            for kernel in kernels.variants(self.case.kernel, language)
            if self.variant in (None, kernel.variant)
            for schedule in kernel.schedules
            if self.schedule in (None, schedule)
        ]


@dataclass
class Task:
    """Run keys of one case that are still to do, in one role."""

    case: Case
    role: str
    runs: list[RunKey]


class _NotOpened(Exception):
    """The device could not be opened; carries the worker's fault."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(one_line(str(event.get("detail"))))
        self.verdict = event["verdict"] if event.get("verdict") in FAULTS else "crash"


class Keeper(Protocol):
    """Where results go: the journal of this run."""

    def started(self, run: str) -> None:
        """A run key is about to be dispatched."""

    def result(self, result: Result) -> None:
        """A run key is judged."""


@dataclass
class DeviceRun:
    """One device's execution of a list of cases. `finished`: results carried over from an interrupted run."""

    device: Device
    reference: Reference
    journal: Keeper
    failures: Path
    budgets: Budgets = field(default_factory=Budgets)
    memory_limit: int | None = None
    nonce: int = field(default_factory=lambda: secrets.randbelow(2**32 - 1) + 1)
    finished: dict[tuple[str, str], Result] = field(default_factory=dict)
    progress: Callable[[Result], None] = lambda _: None

    void: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    worker_seconds: float = 0.0
    _child: Child | None = None
    _phase: str = "probe"
    _current: RunKey = RunKey("", "", "")
    _losses: int = 0
    _set_aside: str | None = None
    _kept: int = 0
    _artefacts: list[tuple[RunKey, Path]] = field(default_factory=list)

    @property
    def language(self) -> kernels.Language:
        """The language that the device compiles."""
        found: kernels.Language = backends.load(self.device.api).LANGUAGE
        return found

    def execute(self, selections: Iterable[Selection]) -> list[Result]:
        """Self-tests and known-bad twins of every kernel in the selections, then the cases. The device's lock is held."""
        self._folder = Path(tempfile.mkdtemp(prefix="samebits-run-"))
        try:
            checked: set[str] = set()
            for selection in selections:
                if selection.case.kernel not in checked:
                    checked.add(selection.case.kernel)
                    for task in self._checks(selection.case.kernel):
                        self._do(task)
                self._do(Task(selection.case, "case", selection.runs(self.language)))
            self._close_worker()
        finally:
            self._drop_worker()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self.results

    def _checks(self, kernel: str) -> list[Task]:
        """The known-answer self-test under every schedule and variant, and the known-bad twin of each variant."""
        selection = Selection(presets.SELF_TEST[kernel])
        twins = [r for r in selection.runs(self.language) if r.schedule == KNOWN_BAD_SCHEDULE]
        return [
            Task(selection.case, "self-test", selection.runs(self.language)),
            Task(selection.case, "known-bad", twins),
        ]

    def _do(self, task: Task) -> None:
        for run in list(task.runs):
            known = self.finished.get((task.role, str(run)))
            if known:
                self._keep(known)
                task.runs.remove(run)
        while task.runs and not self._set_aside:
            self._attempt(task)
        for run in task.runs:
            self._keep(self._result(task, run, "not-run", detail=self._set_aside))

    def _attempt(self, task: Task) -> None:
        """Send what is left of the task to a worker and take its events, until all is done or the worker is lost."""
        self._phase, self._current = "probe", task.runs[0]
        dump = Path(tempfile.mkdtemp(dir=self._folder))
        begin = time.perf_counter()
        try:
            child = self._child or self._open_worker()
            child.send(self._request(task, dump))
            self._phase = "run"
            self._take_events(child, task)
        except Timeout:
            detail = f"no word for {self.budgets.of(self._phase):.0f} s"
            self._lost_worker(task, "timeout", detail)
        except Closed:
            self._lost_worker(task, "crash", None)
        except ProtocolError as e:
            self._lost_worker(task, "crash", f"the worker spoke nonsense: {e}")
        except _NotOpened as e:
            self._lost_worker(task, e.verdict, str(e))
        finally:
            self.worker_seconds += time.perf_counter() - begin
            shutil.rmtree(dump, ignore_errors=True)

    def _request(self, task: Task, dump: Path) -> dict[str, Any]:
        paths, _ = self.reference.inputs.of(task.case)
        order = dump / "order.bin"
        np.array(schedules.tile_order(task.case.dims["k"], task.case.seed), "<u4").tofile(order)
        return {
            "op": "case",
            "case": task.case.id,
            "runs": [{"schedule": r.schedule, "variant": r.variant} for r in task.runs],
            "inputs": {**paths, "order": str(order)},
            "dump": str(dump),
            "known_bad": task.role == "known-bad",
            "nonce": self.nonce,
        }

    def _take_events(self, child: Child, task: Task) -> None:
        """Until `case-done`. A worker is not trusted: an event that does not fit is a ProtocolError."""
        by_key = {str(r): r for r in task.runs}
        while True:
            event = child.receive(self.budgets.of(self._phase))
            kind, run = event.get("event"), by_key.get(str(event.get("run")))
            if kind == "case-done":
                break
            if kind == "phase" and event.get("phase") in PHASES:
                self._phase = event["phase"]
            elif kind == "started" and run in task.runs:
                self._current, self._phase = run, "run"
                self.journal.started(str(run))
            elif kind == "dumped" and run in task.runs:
                self._finish(task, run, self._judge(task, run, event))
            elif kind == "fault" and run in task.runs:
                self._finish(task, run, self._fault(task, run, event))
                if event.get("verdict") == "device-lost":
                    self._lose("device-lost")
                    return
            else:
                raise ProtocolError(f"unexpected event {str(event)[:200]}")
        if task.runs:
            raise ProtocolError(f"the worker left out {task.runs[0]}")
        while self._artefacts:
            run, folder = self._artefacts.pop()
            child.send({"op": "artefacts", "schedule": run.schedule, "variant": run.variant, "folder": str(folder)})
            child.receive(self.budgets.shutdown)

    def _finish(self, task: Task, run: RunKey, result: Result) -> None:
        task.runs.remove(run)
        self._keep(result)

    def _open_worker(self) -> Child:
        cache = self._folder / "cache"
        cache.mkdir(exist_ok=True)
        changes = {**self.device.environment, **backends.load(self.device.api).cache_environment(cache)}
        command = python("harness.worker", self.device.api, str(self.device.index))
        self._child = child = Child(command, environment(changes), memory_limit=self.memory_limit)
        while (event := child.receive(self.budgets.probe)).get("event") != "opened":
            if event.get("event") == "fault":
                raise _NotOpened(event)
        return child

    def _close_worker(self) -> None:
        """A clean shutdown. A driver that hangs or crashes there spoils no result, but gives no evidence."""
        if self._child is None:
            return
        verdict, detail = None, ""
        try:
            self._child.send({"op": "close"})
            while self._child.receive(self.budgets.shutdown).get("event") != "closed":
                pass
            if not self._child.wait(self.budgets.shutdown):
                verdict, detail = "timeout", f"no end within {self.budgets.shutdown:.0f} s"
            elif self._child.exit_word() != "exit 0":
                verdict, detail = "crash", self._child.exit_word()
        except Closed:
            verdict, detail = "crash", self._child.exit_word()
        except ChildFault as e:
            verdict, detail = "timeout", str(e)
        self._drop_worker()
        if verdict:
            last = self.results[-1]
            self._keep(msgspec.structs.replace(last, role="shutdown", verdict=verdict, phase="shutdown", detail=detail))

    def _drop_worker(self) -> None:
        if self._child:
            self._child.close()
            self._child = None

    def _lost_worker(self, task: Task, verdict: str, detail: str | None) -> None:
        if self._child:
            detail = detail or self._child.exit_word()
            self._child.kill()
            printed = self._child.stderr_tail().strip()
            if printed:
                detail = f"{detail}; last words: {one_line(printed.splitlines()[-1])}"
        self._finish(task, self._current, self._result(task, self._current, verdict, phase=self._phase, detail=detail))
        self._lose(f"{verdict} in {self._phase}")

    def _lose(self, why: str) -> None:
        self._drop_worker()
        self._losses += 1
        if self._losses >= LOSSES_ALLOWED:
            self._set_aside = f"device set aside after {LOSSES_ALLOWED} losses, the last: {why}"

    def _fault(self, task: Task, run: RunKey, event: dict[str, Any]) -> Result:
        verdict = event.get("verdict")
        if verdict not in FAULTS:
            raise ProtocolError(f"unexpected verdict {str(verdict)[:200]}")
        known = {f: str(event[f]) for f in ("detail", "feature", "needed", "there") if event.get(f) is not None}
        return self._result(task, run, verdict, phase=self._phase, **known)

    def _judge(self, task: Task, run: RunKey, event: dict[str, Any]) -> Result:
        try:
            expected = self.reference.expected(task.case)
            right = self.reference.tensor(task.case)
        except InternalError as e:
            self.void.append(str(e))
            return self._result(task, run, "not-run", detail=str(e))
        if expected.disagreement:
            self.void.append(f"reference and second disagree: {expected.disagreement}")
        self._check_nonce(run, event)
        try:
            dumps = tuple(Path(f).read_bytes() for f in event["files"])
            verdict = judge((dumps[0], dumps[1]), right, expected.element, expected.dims, event.get("sanitizer", ()))
            seconds = {str(k): float(v) for k, v in event["seconds"].items()}
        except (OSError, IndexError, KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"a dump cannot be read: {e}") from e
        if task.role == "known-bad" and verdict.verdict == "match":
            self.void.append(f"{run}: the known-bad twin matched, so this device's matches prove nothing")
        difference = verdict.difference
        artefacts: list[str] = []
        if difference and task.role != "known-bad":
            difference = msgspec.structs.replace(difference, operands=self._operands(task.case, difference.index))
            artefacts = self._keep_failure(run, dumps, right)
        return self._result(
            task,
            run,
            verdict.verdict,
            digest=verdict.digest,
            expected=expected.digest,
            elements=2 * (len(right) // numpy_type(expected.element).itemsize),
            leaves_type=expected.leaves_type,
            inputs=expected.inputs,
            detail=verdict.detail,
            difference=difference,
            artefacts=artefacts,
            seconds=seconds | {"reference": expected.seconds},
        )

    def _check_nonce(self, run: RunKey, event: dict[str, Any]) -> None:
        nonce = self.nonce.to_bytes(4, "little").hex()
        words = [word for receipt in event.get("receipts", []) for word in receipt]
        if not words or any(word != nonce for word in words):
            self.void.append(f"{run}: the compiled nonce {nonce} did not come back, but {words[:4]}")

    def _operands(self, case: Case, index: list[int]) -> dict[str, list[int]]:
        if not index:
            return {}
        kernel = kernels.base(case.kernel)
        paths, _ = self.reference.inputs.of(case)
        arrays: dict[str, tuple[tuple[str, ...], npt.NDArray[Any]]] = {}
        for tensor in kernel.inputs:
            shape = kernels.dimensions(tensor, case)
            arrays[tensor.name] = (
                tensor.dims,
                np.memmap(paths[tensor.name], numpy_type(tensor.element), "r", shape=shape),
            )
        return operands(index, kernel.output.dims, arrays)

    def _keep_failure(self, run: RunKey, dumps: tuple[bytes, ...], right: bytes) -> list[str]:
        """Write both sides of a failure, and the compiled artefacts that the worker left, beside the records."""
        if self._kept >= KEPT_FAILURES or len(right) > KEPT_BYTES:
            return []
        self._kept += 1
        folder = self.failures / str(run).replace(";", "_").replace("/", "_")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = {"expected.bin": right, "actual-1.bin": dumps[0], "actual-2.bin": dumps[1]}
            for name, data in files.items():
                (folder / name).write_bytes(data)
            self._artefacts.append((run, folder))
        except OSError as e:
            return [f"not kept: {e.strerror}"]
        return [f"{self.failures.name}/{folder.name}"]

    def _keep(self, result: Result) -> None:
        self.results.append(result)
        self.journal.result(result)
        self.progress(result)

    def _result(self, task: Task, run: RunKey, verdict: str, **more: Any) -> Result:
        kernel = kernels.find(task.case.kernel, run.variant)
        return Result(
            run=str(run),
            case=task.case.id,
            schedule=run.schedule,
            variant=run.variant,
            verdict=verdict,
            role=task.role,
            case_version=task.case.version,
            kernel_hash=kernels.kernel_hash(kernel, self.language, run.schedule),
            repeat=f"samebits run --device {self.device.id} --case '{run}'",
            **more,
        )
