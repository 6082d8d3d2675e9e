"""The parent: runs a list of cases on one device through a worker process, judges each dump, keeps the journal.

A crash, a hang or a lost device costs the run key under way and no other: the worker is replaced and the rest goes on.
After LOSSES_ALLOWED losses the device is set aside and what remains is `not-run`.
"""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness import backends, kernels, presets, schedules
from harness.backends.common import OPTIMISER
from harness.cases import Case, RunKey
from harness.devices import Device
from harness.digest import numpy_type
from harness.errors import InternalError
from harness.journal import Journal
from harness.process import Child, ChildFault, Closed, ProtocolError, Timeout, environment, one_line, python
from harness.records import Key, Planned
from harness.reference import Reference
from harness.selections import Selection
from harness.verdicts import Result, judge, operands

LOSSES_ALLOWED = 3
KEPT_FAILURES = 8
"""Failures of one run whose tensors and compiled artefacts are kept, KEPT_BYTES a tensor at most."""

KEPT_BYTES = 1 << 26

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
        return self.seconds()[phase]

    def seconds(self) -> dict[str, float]:
        """All budgets by phase."""
        return asdict(self)


def language_of(device: Device) -> kernels.Language:
    """The language that `device` compiles."""
    language: kernels.Language = backends.load(device.api).LANGUAGE
    return language


@dataclass
class Task:
    """Run keys of one case that are to be done, in one role."""

    case: Case
    role: str
    runs: list[RunKey]

    def planned(self, language: kernels.Language) -> list[Planned]:
        """What the record's header says of it."""
        return [
            Planned(str(run), self.case.version, kernels.kernel_hash(kernel, language, run.schedule), self.role)
            for run in self.runs
            for kernel in [kernels.find(self.case.kernel, run.variant)]
        ]


def tasks(selections: Iterable[Selection], language: kernels.Language) -> list[Task]:
    """What a device has to do for `selections`: first each kernel's checks, then the cases.

    The checks: the known-answer self-test under every schedule and variant that is wanted, and each variant's known-bad twin.
    """
    cases = [Task(s.case, "case", runs) for s in selections if (runs := s.runs(language))]
    found: list[Task] = []
    for kernel in dict.fromkeys(task.case.kernel for task in cases):
        wanted = {(r.schedule, r.variant): None for t in cases if t.case.kernel == kernel for r in t.runs}
        test = presets.SELF_TEST[kernel]
        twins = {variant: schedule for schedule, variant in reversed(wanted)}  # the first schedule of each variant
        found.append(Task(test, "self-test", [RunKey(test.id, s, v) for s, v in wanted]))
        found.append(Task(test, "known-bad", [RunKey(test.id, s, v) for v, s in twins.items()]))
    return found + cases


class _NotOpened(Exception):
    """The device could not be opened; carries the worker's fault."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(one_line(str(event.get("detail"))))
        self.verdict = event["verdict"] if event.get("verdict") in FAULTS else "crash"


class DeviceRun:
    """One device's execution of tasks.

    `finished` holds results carried over from an interrupted run; `failures` is the folder for tensors and artefacts.
    """

    def __init__(
        self,
        device: Device,
        reference: Reference,
        *,
        budgets: Budgets | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.device = device
        self.reference = reference
        self.budgets = budgets or Budgets()
        self.memory_limit = memory_limit
        self.language = language_of(device)
        self._flags = " --optimiser off" if device.environment.get(OPTIMISER) == "off" else ""
        self.compile_only = device.kind == "compile-only"
        self.nonce = secrets.randbelow(2**32 - 1) + 1
        self.results: list[Result] = []
        self.seconds = {"compile": 0.0, "upload": 0.0, "run": 0.0, "waiting for the reference": 0.0}
        self._child: Child | None = None
        self._phase = "probe"
        self._current = RunKey("", "", "")
        self._losses = 0
        self._set_aside: str | None = None
        self._kept = 0
        self._artefacts: list[tuple[RunKey, Path]] = []
        self._voids: set[str] = set()

    def execute(
        self,
        todo: Iterable[Task],
        journal: Journal,
        failures: Path,
        finished: Mapping[Key, Result],
        progress: Callable[[Result], None],
    ) -> list[Result]:
        """Do all tasks in order, but what is in `finished`; the caller holds the host's device lock.

        Tensors and artefacts of failures go into the folder `failures`.
        """
        self.journal, self.failures, self.finished, self.progress = journal, failures, finished, progress
        self._folder = Path(tempfile.mkdtemp(prefix="samebits-run-"))
        try:
            for task in todo:
                self._do(task)
            self._close_worker()
        finally:
            self._drop_worker()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self.results

    def _void(self, reason: str, *, everywhere: bool = False) -> None:
        if reason not in self._voids:
            self._voids.add(reason)
            self.journal.void(reason, everywhere=everywhere)

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
            shutil.rmtree(dump, ignore_errors=True)

    def _request(self, task: Task, dump: Path) -> dict[str, Any]:
        paths = {} if self.compile_only else self.reference.inputs.of(task.case)[0]
        order = dump / "order.bin"
        order.write_bytes(schedules.order_bytes(task.case.dims["k"], task.case.seed))
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
            elif kind == "compiled" and run in task.runs and self.compile_only:
                self._finish(task, run, self._compiled(task, run, event))
            elif kind == "dumped" and run in task.runs and not self.compile_only:
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

    def _compiled(self, task: Task, run: RunKey, event: dict[str, Any]) -> Result:
        """What a compile-only device is worth: it built, and nobody knows what it computes."""
        try:
            seconds = float(event["seconds"]["compile"])
        except (KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"a compiled event without its seconds: {e}") from e
        self.seconds["compile"] += seconds
        return self._result(task, run, "compiled", seconds={"compile": seconds})

    def _judge(self, task: Task, run: RunKey, event: dict[str, Any]) -> Result:
        try:
            begin = time.perf_counter()
            expected = self.reference.expected(task.case)
            self.seconds["waiting for the reference"] += time.perf_counter() - begin
            right = self.reference.tensor(task.case)
        except InternalError as e:
            self._void(str(e), everywhere=True)
            return self._result(task, run, "not-run", detail=str(e))
        if expected.disagreement:
            self._void(f"reference and second disagree: {expected.disagreement}", everywhere=True)
        self._check_nonce(run, event)
        try:
            dumps = tuple(Path(f).read_bytes() for f in event["files"])
            verdict = judge((dumps[0], dumps[1]), right, expected.element, expected.dims, event.get("sanitizer", ()))
            seconds = {str(k): float(v) for k, v in event["seconds"].items()}
        except (OSError, IndexError, KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"a dump cannot be read: {e}") from e
        for phase in seconds.keys() & self.seconds.keys():
            self.seconds[phase] += seconds[phase]
        if task.role == "known-bad" and verdict.verdict == "match":
            self._void(f"{run}: the known-bad twin matched, so this device's matches prove nothing")
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
            second=expected.second,
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
            self._void(f"{run}: the compiled nonce {nonce} did not come back, but {words[:4]}")

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
            repeat=f"samebits run --device {self.device.id} --case '{run}'{self._flags}",
            **more,
        )
