"""A lane: one worker process after another, which do the tasks that the lane is given. A worker is not trusted: what does
not fit is a ProtocolError, and it is replaced.

A crash, a hang or a lost device costs the run key under way and no other: the worker is replaced and the rest goes on.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import backends, devices, kernels, schedules
from harness.cases import RunKey
from harness.errors import InternalError
from harness.evidence import Compiled, Dumped, Fault, understood
from harness.findings import Findings, Stopped
from harness.process import Child, ChildFault, Closed, ProtocolError, Timeout, environment, one_line, python
from harness.tasks import Task
from harness.verdicts import Result


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


class Lane:
    """One worker at a time, with its own budgets, caches and dumps in `folder`. Its thread calls `work`; any may call `stop`."""

    def __init__(self, findings: Findings, folder: Path, budgets: Budgets, memory_limit: int | None) -> None:
        self.findings = findings
        self.budgets = budgets
        self.memory_limit = memory_limit
        self._folder = folder
        self._child: Child | None = None
        self._phase = "probe"
        self._current: RunKey | None = None  # under way, or what a new worker is opened for
        self._last: tuple[Task, RunKey] | None = None  # the last that a worker finished

    def work(self, take: Callable[[], Task | None]) -> None:
        """Do what `take` gives until it gives nothing more, or `stop` is called."""
        try:
            while task := take():
                self._do(task)
            self._close_worker()
        except Stopped:
            pass
        finally:
            self._drop_worker()

    def _do(self, task: Task) -> None:
        while task.runs and not self.findings.set_aside:
            self._attempt(task)

    def stop(self) -> None:
        """End the worker at once, after `findings.stopped` was set; nothing is charged to anybody."""
        if child := self._child:
            child.kill(grace=0)

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
        paths = {} if self.findings.compile_only else self.findings.reference.inputs.of(task.case)[0]
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
            "nonce": self.findings.nonce,
        }

    def _take_events(self, task: Task, dump: Path) -> None:
        """Until `case-done`: of each run key `started`, each phase once at most, and what came of it."""
        runs = list(task.runs)
        by_key = {str(r): r for r in runs}
        under_way, heard = False, set[str]()
        while (event := self._receive()).get("event") != "case-done":
            kind, run, phase = event.get("event"), by_key.get(str(event.get("run"))), str(event.get("phase"))
            if kind == "started" and not under_way and run in task.runs:
                self._current, self._phase = run, "run"
                under_way, heard = True, set()
                self.findings.journal.started(str(run))
            elif not under_way or run is None or run != self._current:
                raise _unexpected(event)
            elif kind == "phase" and phase in ("compile", "run") and phase not in heard:
                heard.add(phase)
                self._phase = phase
            elif kind == "compiled" and self.findings.compile_only:
                seconds = understood(event, Compiled).seconds.compile
                self.findings.spent({"compile": seconds})
                self._finish(task, run, self.findings.result(task, run, "compiled", seconds={"compile": seconds}))
                under_way = False
            elif kind == "dumped" and not self.findings.compile_only:
                self._finish(task, run, self.findings.judge(task, run, dump, understood(event, Dumped)))
                under_way = False
            elif kind == "fault":
                fault = understood(event, Fault)
                self._finish(
                    task, run, self.findings.result(task, run, fault.verdict, phase=self._phase, **fault.said())
                )
                under_way = False
                if fault.verdict == "device-lost":
                    return self._lose("device-lost")
            else:
                raise _unexpected(event)
        if task.runs:
            self._current = task.runs[0]
            raise ProtocolError(f"the worker left out {task.runs[0]}")
        self._ask_for_artefacts(task, runs)

    def _ask_for_artefacts(self, task: Task, runs: Sequence[RunKey]) -> None:
        for run in runs:
            folder = self.findings.failures.wanting.pop(run, None)
            if folder is None:
                continue
            wanted = {"kernel": task.case.kernel, "schedule": run.schedule, "variant": run.variant}
            self._receiver().send({"op": "artefacts", **wanted, "folder": str(folder)})
            event = self._receive()
            if event.get("event") != "artefacts":
                raise _unexpected(event)

    def _finish(self, task: Task, run: RunKey, result: Result) -> None:
        task.runs.remove(run)
        self._current, self._last = None, (task, run)
        self.findings.keep(result)

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
        changes = {
            **self.findings.device.environment,
            **backends.load(self.findings.device.api).cache_environment(cache),
        }
        command = python("harness.worker", self.findings.device.api, str(self.findings.device.index))
        self._child = Child(command, environment(changes), memory_limit=self.memory_limit)
        self._check_stopped()  # `stop` may have come before there was a child to end
        event = self._receive()
        if (event.get("event"), event.get("phase")) == ("phase", "probe"):
            event = self._receive()
        if event.get("event") == "fault":
            fault = understood(event, Fault)
            raise _NotOpened(fault.verdict, fault.detail)
        if event.get("event") != "opened":
            raise _unexpected(event)
        report = understood(event.get("report"), backends.Report)
        if not devices.is_of(self.findings.device, report):
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
            self._check_stopped()
            self._worker_fault("timeout" if isinstance(e, Timeout) else "crash", str(e))
        self._drop_worker()

    def _drop_worker(self) -> None:
        if self._child:
            self._child.close()
            self._child = None

    def _lost_worker(self, task: Task, verdict: str, detail: str) -> None:
        """Charge the loss to the run key under way; between two run keys, to the worker."""
        self._check_stopped()
        if self._child:
            self._child.kill()
            printed = self._child.stderr_tail().strip()
            if printed:
                detail = f"{detail}; last words: {one_line(printed.splitlines()[-1])}"
        run = self._current
        if run:
            self._finish(task, run, self.findings.result(task, run, verdict, phase=self._phase, detail=detail))
        else:
            self._worker_fault(verdict, detail)
        self._lose(f"{verdict} in {self._phase}")

    def _worker_fault(self, verdict: str, detail: str) -> None:
        """A result in the role `shutdown`: it names the run key that the worker finished last."""
        if self._last:
            result = self.findings.result(*self._last, verdict, phase=self._phase, detail=detail)
            self.findings.keep(msgspec.structs.replace(result, role="shutdown"))
            self._last = None

    def _lose(self, why: str) -> None:
        self._drop_worker()
        self.findings.lost(why)

    def _check_stopped(self) -> None:
        if self.findings.stopped.is_set():
            raise Stopped


def _unexpected(event: Mapping[str, Any]) -> ProtocolError:
    return ProtocolError(f"unexpected event {one_line(str(event), 200)}")
