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

from harness import backends, devices, kernels, schedules
from harness.backends.common import OPTIMISER
from harness.cases import RunKey
from harness.devices import Device
from harness.digest import numpy_type
from harness.errors import Incomplete, InternalError
from harness.evidence import Compiled, Dumped, Failures, Fault, operands_at, read_dumps, understood, wrong_operations
from harness.journal import Journal
from harness.process import Child, ChildFault, Closed, ProtocolError, Timeout, environment, one_line, python
from harness.records import Key
from harness.reference import Reference
from harness.tasks import Task, language_of
from harness.verdicts import Result, judge, observe

LOSSES_ALLOWED = 3


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


class _NotOpened(Exception):
    """The device could not be opened; carries the verdict."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(one_line(detail))
        self.verdict = verdict


class DeviceRun:
    """One device's execution of tasks. A worker is not trusted: what does not fit is a ProtocolError, and it is replaced."""

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
        self._current: RunKey | None = None  # under way, or what a new worker is opened for
        self._last: tuple[Task, RunKey] | None = None  # the last that a worker finished
        self._losses = 0
        self._set_aside: str | None = None
        self._voids: set[str] = set()

    def execute(
        self,
        todo: Iterable[Task],
        journal: Journal,
        failures: Path,
        finished: Mapping[Key, Result],
        progress: Callable[[Result], None],
    ) -> list[Result]:
        """Do all tasks in order, but what is in `finished`, which comes from an interrupted run; raises Incomplete.

        The caller holds the host's device lock. Tensors and artefacts of failures go into the folder `failures`.
        """
        self.journal, self.failures, self.progress = journal, Failures(failures), progress
        for known in finished.values():  # first of all, so that every record stands alone, whenever it ends
            self._keep(known)
        self._folder = Path(tempfile.mkdtemp(prefix="samebits-run-"))
        try:
            for task in todo:
                task.runs = [run for run in task.runs if (task.role, str(run)) not in finished]
                self._do(task)
            self._close_worker()
        except OSError as e:
            what = f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}"
            raise Incomplete(
                f"{self.device.id}: {what}; mend it (TMPDIR names the folder), then go on with --resume"
            ) from e
        finally:
            self._drop_worker()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self.results

    def _void(self, reason: str, *, everywhere: bool = False) -> None:
        if reason not in self._voids:
            self._voids.add(reason)
            self.journal.void(reason, everywhere=everywhere)

    def _do(self, task: Task) -> None:
        while task.runs and not self._set_aside:
            self._attempt(task)
        for run in task.runs:
            self._keep(self._result(task, run, "not-run", detail=self._set_aside))

    def _attempt(self, task: Task) -> None:
        """Send what is left of the task to a worker and take its events, until all is done or the worker is lost."""
        dump = Path(tempfile.mkdtemp(dir=self._folder))
        request = self._request(task, dump)
        try:
            if self._child is None:
                self._phase, self._current = "probe", task.runs[0]
                self._open_worker()
            self._phase = "run"
            self._receiver().send(request)
            self._take_events(task, dump)
        except Timeout as e:
            self._lost_worker(task, "timeout", str(e))
        except Closed as e:
            self._lost_worker(task, "crash", str(e))
        except ProtocolError as e:
            self._lost_worker(task, "crash", f"the worker spoke nonsense: {e}")
        except _NotOpened as e:
            self._lost_worker(task, e.verdict, str(e))
        finally:
            shutil.rmtree(dump, ignore_errors=True)

    def _request(self, task: Task, dump: Path) -> dict[str, Any]:
        paths = {} if self.compile_only else self.reference.inputs.of(task.case)[0]
        order = dump / "order.bin"
        terms = kernels.base(task.case.kernel).terms(task.case)
        order.write_bytes(schedules.order_bytes(terms, task.case.seed))
        return {
            "op": "case",
            "case": task.case.id,
            "runs": [{"schedule": r.schedule, "variant": r.variant} for r in task.runs],
            "inputs": {**paths, "order": str(order)},
            "dump": str(dump),
            "known_bad": task.role == "known-bad",
            "nonce": self.nonce,
        }

    def _take_events(self, task: Task, dump: Path) -> None:
        """Until `case-done`: of each run key `started`, each phase once at most, and what came of it."""
        by_key = {str(r): r for r in task.runs}
        under_way, heard = False, set[str]()
        while (event := self._receive()).get("event") != "case-done":
            kind, run, phase = event.get("event"), by_key.get(str(event.get("run"))), str(event.get("phase"))
            if kind == "started" and not under_way and run in task.runs:
                self._current, self._phase = run, "run"
                under_way, heard = True, set()
                self.journal.started(str(run))
            elif not under_way or run is None or run != self._current:
                raise _unexpected(event)
            elif kind == "phase" and phase in ("compile", "run") and phase not in heard:
                heard.add(phase)
                self._phase = phase
            elif kind == "compiled" and self.compile_only:
                seconds = understood(event, Compiled).seconds.compile
                self.seconds["compile"] += seconds
                self._finish(task, run, self._result(task, run, "compiled", seconds={"compile": seconds}))
                under_way = False
            elif kind == "dumped" and not self.compile_only:
                self._finish(task, run, self._judge(task, run, dump, understood(event, Dumped)))
                under_way = False
            elif kind == "fault":
                fault = understood(event, Fault)
                self._finish(task, run, self._result(task, run, fault.verdict, phase=self._phase, **fault.said()))
                under_way = False
                if fault.verdict == "device-lost":
                    return self._lose("device-lost")
            else:
                raise _unexpected(event)
        if task.runs:
            self._current = task.runs[0]
            raise ProtocolError(f"the worker left out {task.runs[0]}")
        self._ask_for_artefacts(task)

    def _ask_for_artefacts(self, task: Task) -> None:
        while self.failures.wanting:
            run, folder = self.failures.wanting.pop()
            wanted = {"kernel": task.case.kernel, "schedule": run.schedule, "variant": run.variant}
            self._receiver().send({"op": "artefacts", **wanted, "folder": str(folder)})
            event = self._receive()
            if event.get("event") != "artefacts":
                raise _unexpected(event)

    def _finish(self, task: Task, run: RunKey, result: Result) -> None:
        task.runs.remove(run)
        self._current, self._last = None, (task, run)
        self._keep(result)

    def _receiver(self) -> Child:
        if self._child is None:
            raise InternalError("no worker is open")
        return self._child

    def _receive(self) -> dict[str, Any]:
        """The next event; raises ChildFault, and Incomplete where it is this host's fault and no driver's."""
        event = self._receiver().receive(self.budgets.of(self._phase))
        if event.get("event") == "host-fault":
            raise OSError(one_line(str(event.get("detail"))))
        return event

    def _open_worker(self) -> None:
        cache = self._folder / "cache"
        cache.mkdir(exist_ok=True)
        changes = {**self.device.environment, **backends.load(self.device.api).cache_environment(cache)}
        command = python("harness.worker", self.device.api, str(self.device.index))
        self._child = Child(command, environment(changes), memory_limit=self.memory_limit)
        event = self._receive()
        if (event.get("event"), event.get("phase")) == ("phase", "probe"):
            event = self._receive()
        if event.get("event") == "fault":
            fault = understood(event, Fault)
            raise _NotOpened(fault.verdict, fault.detail)
        if event.get("event") != "opened":
            raise _unexpected(event)
        report = understood(event.get("report"), backends.Report)
        if not devices.is_of(self.device, report):
            raise _NotOpened("crash", f"the driver opened another device than it listed there: {report.name}")

    def _close_worker(self) -> None:
        """A clean shutdown. A driver that hangs or crashes there spoils no result, but gives no evidence."""
        if self._child is None:
            return
        self._phase = "shutdown"
        try:
            self._child.send({"op": "close"})
            event = self._receive()
            if (event.get("event"), event.get("phase")) == ("phase", "shutdown"):
                event = self._receive()
            if event.get("event") != "closed":
                raise _unexpected(event)
            if not self._child.wait(self.budgets.shutdown):
                raise Timeout(f"no end within {self.budgets.shutdown:g} s")
            if self._child.exit_word() != "exit 0":
                raise Closed(self._child.exit_word())
        except ChildFault as e:
            self._worker_fault("timeout" if isinstance(e, Timeout) else "crash", str(e))
        self._drop_worker()

    def _drop_worker(self) -> None:
        if self._child:
            self._child.close()
            self._child = None

    def _lost_worker(self, task: Task, verdict: str, detail: str) -> None:
        """Charge the loss to the run key under way; between two run keys, to the worker."""
        if self._child:
            self._child.kill()
            printed = self._child.stderr_tail().strip()
            if printed:
                detail = f"{detail}; last words: {one_line(printed.splitlines()[-1])}"
        run = self._current
        if run:
            self._finish(task, run, self._result(task, run, verdict, phase=self._phase, detail=detail))
        else:
            self._worker_fault(verdict, detail)
        self._lose(f"{verdict} in {self._phase}")

    def _worker_fault(self, verdict: str, detail: str) -> None:
        """A result in the role `shutdown`: it names the run key that the worker finished last."""
        told = self._last and any((r.role, r.run) == ("shutdown", str(self._last[1])) for r in self.results)
        if self._last and not told:
            result = self._result(*self._last, verdict, phase=self._phase, detail=detail)
            self._keep(msgspec.structs.replace(result, role="shutdown"))
            self._last = None

    def _lose(self, why: str) -> None:
        self._drop_worker()
        self.failures.wanting.clear()
        self._losses += 1
        if self._losses >= LOSSES_ALLOWED:
            self._set_aside = f"device set aside after {LOSSES_ALLOWED} losses, the last: {why}"

    def _judge(self, task: Task, run: RunKey, dump: Path, event: Dumped) -> Result:
        if fault := event.nonce_fault(self.nonce):
            self._void(f"{run}: {fault}")
        seconds: dict[str, float] = msgspec.structs.asdict(event.seconds)
        for phase, spent in seconds.items():
            self.seconds[phase] += spent
        kernel = kernels.base(task.case.kernel)
        if kernel.control or kernel.open(task.case, self.language):
            size = kernels.tensor_bytes(kernel.output, task.case)
            return self._observe(task, run, read_dumps(dump, event.files, size), seconds)
        try:
            begin = time.perf_counter()
            expected = self.reference.expected(task.case)
            right = self.reference.tensor(task.case)
            self.seconds["waiting for the reference"] += time.perf_counter() - begin
        except InternalError as e:
            self._void(str(e), everywhere=True)
            return self._result(task, run, "not-run", detail=str(e))
        if expected.disagreement:
            self._void(f"reference and second disagree: {expected.disagreement}", everywhere=True)
        dumps = read_dumps(dump, event.files, len(right))
        verdict = judge(dumps, right, expected.element, expected.dims, [one_line(r, 500) for r in event.sanitizer])
        if task.role == "known-bad" and verdict.verdict in ("match", "sanitizer"):
            self._void(f"{run}: the known-bad twin matched, so this device's matches prove nothing")
        difference = verdict.difference
        named: str | None = None
        artefacts: list[str] = []
        if difference and task.role != "known-bad":
            found = operands_at(task.case, self.reference.inputs, difference.index)
            difference = msgspec.structs.replace(difference, operands=found)
            named = wrong_operations(task.case, self.reference.inputs, right, dumps[0])
            artefacts = self.failures.keep(run, dumps, right)
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
            detail=": ".join(filter(None, (verdict.detail, named))) or None,
            difference=difference,
            artefacts=artefacts,
            seconds=seconds | {"reference": expected.seconds},
        )

    def _observe(self, task: Task, run: RunKey, dumps: tuple[bytes, bytes], seconds: dict[str, float]) -> Result:
        """Of the control, and of what the language leaves open: its digest, and no judgement."""
        output = kernels.base(task.case.kernel).output
        seen = observe(dumps, output.element, kernels.dimensions(output, task.case))
        inputs = self.reference.inputs.of(task.case)[1]
        return self._result(
            task, run, seen.verdict, digest=seen.digest, inputs=inputs, detail=seen.detail, seconds=seconds
        )

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


def _unexpected(event: Mapping[str, Any]) -> ProtocolError:
    return ProtocolError(f"unexpected event {one_line(str(event), 200)}")
