"""What one run on a device has found so far, shared by its lanes: results, losses, voids, seconds. Each dump is judged here.

After LOSSES_ALLOWED losses, in whichever lanes, the device is set aside and what remains is `not-run`.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness import kernels
from harness.backends.common import OPTIMISER
from harness.cases import RunKey
from harness.devices import Device
from harness.digest import numpy_type
from harness.errors import InternalError
from harness.evidence import Dumped, Failures, operands_at, read_dumps, wrong_operations
from harness.journal import Journal
from harness.process import one_line
from harness.records import Key
from harness.reference import Expected, Reference
from harness.tasks import Task, language_of
from harness.verdicts import Result, judge, observe

LOSSES_ALLOWED = 3

POLL_S = 0.5
"""Seconds after which a lane that waits for the reference looks whether it is to stop."""


class Stopped(Exception):
    """The run is over, by an interrupt or a fault of another lane; what is under way is not charged to the device."""


class Findings:
    """The results of one run, each in the journal before anybody is told. Any lane may call any of its verbs."""

    def __init__(self, device: Device, reference: Reference) -> None:
        self.device = device
        self.reference = reference
        self.language = language_of(device)
        self.compile_only = device.kind == "compile-only"
        self.nonce = secrets.randbelow(2**32 - 1) + 1
        self.results: dict[Key, Result] = {}
        self.seconds = {"compile": 0.0, "upload": 0.0, "run": 0.0, "waiting for the reference": 0.0}
        self.set_aside: str | None = None
        self.stopped = threading.Event()
        self._flags = " --optimiser off" if device.environment.get(OPTIMISER) == "off" else ""
        self._losses = 0
        self._voids: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, journal: Journal, failures: Path, progress: Callable[[Result], None]) -> None:
        """Results go to `journal` and then to `progress`; tensors and artefacts of failures into the folder `failures`."""
        self.journal, self.failures, self.progress = journal, Failures(failures), progress

    def keep(self, result: Result) -> None:
        """The result of a run key, or of a worker's end, of which there is one a run key: a second one adds nothing."""
        with self._lock:
            key = (result.role, result.run)
            if key in self.results and result.role == "shutdown":
                return
            self.results[key] = result
            self.journal.result(result)
            self.progress(result)

    def void(self, reason: str, *, everywhere: bool = False) -> None:
        """The results of this run count for nothing; `everywhere`: nor do those of any other."""
        with self._lock:
            if reason not in self._voids:
                self._voids.add(reason)
                self.journal.void(reason, everywhere=everywhere)

    def lost(self, why: str) -> None:
        """A worker was lost."""
        with self._lock:
            self._losses += 1
            if self._losses >= LOSSES_ALLOWED and not self.set_aside:
                self.set_aside = f"device set aside after {LOSSES_ALLOWED} losses, the last: {why}"

    def spent(self, seconds: Mapping[str, float]) -> None:
        """Add to the seconds of the phases."""
        with self._lock:
            for phase, more in seconds.items():
                self.seconds[phase] += more

    def judge(self, task: Task, run: RunKey, dump: Path, event: Dumped) -> Result:
        """What the dumps of a run key in the folder `dump` are worth; raises ProtocolError, Stopped."""
        if fault := event.nonce_fault(self.nonce):
            self.void(f"{run}: {fault}")
        seconds: dict[str, float] = msgspec.structs.asdict(event.seconds)
        self.spent(seconds)
        kernel = kernels.base(task.case.kernel)
        if kernel.control or kernel.open(task.case, self.language):
            size = kernels.tensor_bytes(kernel.output, task.case)
            return self._observe(task, run, read_dumps(dump, event.files, size), seconds)
        try:
            expected, right = self.right(task)
        except InternalError as e:
            return self.result(task, run, "not-run", detail=str(e))
        dumps = read_dumps(dump, event.files, len(right))
        verdict = judge(dumps, right, expected.element, expected.dims, [one_line(r, 500) for r in event.sanitizer])
        if task.role == "known-bad" and verdict.verdict in ("match", "sanitizer"):
            self.void(f"{run}: the known-bad twin matched, so this device's matches prove nothing")
        difference = verdict.difference
        named: str | None = None
        artefacts: list[str] = []
        if difference and task.role != "known-bad":
            found = operands_at(task.case, self.reference.inputs, difference.index)
            difference = msgspec.structs.replace(difference, operands=found)
            named = wrong_operations(task.case, self.reference.inputs, right, dumps[0])
            artefacts = self.failures.keep(run, dumps, right)
        return self.result(
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

    def right(self, task: Task) -> tuple[Expected, bytes]:
        """The right output of a case, waited for; InternalError where there is none, and then all runs are void."""
        begin = time.perf_counter()
        try:
            expected, right = self._expected(task), self.reference.tensor(task.case)
        except InternalError as e:
            self.void(str(e), everywhere=True)
            raise
        self.spent({"waiting for the reference": time.perf_counter() - begin})
        if expected.disagreement:
            self.void(f"reference and second disagree: {expected.disagreement}", everywhere=True)
        return expected, right

    def _expected(self, task: Task) -> Expected:
        while not self.stopped.is_set():
            try:
                return self.reference.expected(task.case, POLL_S)
            except TimeoutError:
                continue
        raise Stopped

    def _observe(self, task: Task, run: RunKey, dumps: tuple[bytes, bytes], seconds: dict[str, float]) -> Result:
        """Of the control, and of what the language leaves open: its digest, and no judgement."""
        output = kernels.base(task.case.kernel).output
        seen = observe(dumps, output.element, kernels.dimensions(output, task.case))
        inputs = self.reference.inputs.of(task.case)[1]
        return self.result(
            task, run, seen.verdict, digest=seen.digest, inputs=inputs, detail=seen.detail, seconds=seconds
        )

    def result(self, task: Task, run: RunKey, verdict: str, **more: Any) -> Result:
        """The result of a run key, with the command that repeats it; `more` are fields of `Result`."""
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
