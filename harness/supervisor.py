"""The parent: shares the tasks of one device out over lanes, a worker process each, until all is done or the device is set aside.

Hardware has one lane: two workers on one GPU would hang or lose it together. A device that is this machine's processors, or
a compiler, has a lane a core, for most of its time goes into compiling, which takes one core.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from harness import kernels
from harness.devices import Device
from harness.errors import Incomplete
from harness.findings import Findings
from harness.journal import Journal
from harness.lane import Budgets, Lane
from harness.records import Key
from harness.reference import Reference
from harness.tasks import Queue, Task
from harness.verdicts import Result
from harness.whole_pass import WholePasses

LANES = 4
"""Lanes of a device at most, where nobody says how many."""

RUNS_A_LANE = 16
"""Run keys for which a lane more is worth the start of a worker."""


class DeviceRun:
    """One device's execution of tasks."""

    def __init__(
        self,
        device: Device,
        reference: Reference,
        budgets: Budgets,
        memory_limit: int | None = None,
        workers: int | None = None,
    ) -> None:
        self.device = device
        self.findings = Findings(device, reference)
        self.budgets = budgets
        self.memory_limit = memory_limit
        self.workers = workers
        self.worker_s = 0.0

    def execute(
        self,
        todo: Sequence[Task],
        journal: Journal,
        failures: Path,
        finished: Mapping[Key, Result],
        progress: Callable[[Result], None],
    ) -> list[Result]:
        """Do all tasks but what is in `finished`, which comes from an interrupted run; all results, in no order.

        The caller holds the host's device lock. Tensors and artefacts of failures go into the folder `failures`. Raises Incomplete.
        """
        findings = self.findings
        findings.begin(journal, failures, progress)
        for known in finished.values():  # first of all, so that every record stands alone, whenever it ends
            findings.keep(known)
        left = [Task(t.case, t.role, [r for r in t.runs if (t.role, str(r)) not in finished]) for t in todo]
        folder = Path(tempfile.mkdtemp(prefix="samebits-run-"))
        try:
            whole = [task for task in left if kernels.base(task.case.kernel).whole]
            rest = [task for task in left if task not in whole]
            count = self.lanes(sum(len(task.runs) for task in rest))
            self._work([self._lane(folder / str(n)) for n in range(count)], Queue(rest), whole)
        except OSError as e:
            what = f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}"
            raise Incomplete(
                f"{self.device.id}: {what}; mend it (TMPDIR names the folder), then go on with --resume"
            ) from e
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for task in left:
            for run in task.runs:
                if (task.role, str(run)) not in findings.results:
                    findings.keep(findings.result(task, run, "not-run", detail=findings.set_aside))
        return list(findings.results.values())

    def lanes(self, runs: int) -> int:
        """How many lanes do so many run keys."""
        if self.device.kind == "hardware":
            return 1
        if self.workers:
            return self.workers
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(cores, LANES, runs // RUNS_A_LANE))

    def _lane(self, folder: Path) -> Lane:
        folder.mkdir()
        return Lane(self.findings, folder, self.budgets, self.memory_limit)

    def _work(self, lanes: Sequence[Lane], queue: Queue, whole: Sequence[Task]) -> None:
        """Each lane in a thread, which outlives its workers; an interrupt, or a fault of this host, stops them all.

        Then whole passes, which have the device for themselves.
        """
        begin = time.monotonic()
        with ThreadPoolExecutor(len(lanes), thread_name_prefix="lane") as threads:
            try:
                jobs = [threads.submit(lane.work, partial(self._take, queue, n)) for n, lane in enumerate(lanes)]
                for job in as_completed(jobs):
                    job.result()
                lanes_done = time.monotonic()
                WholePasses(self.findings, self.budgets).work(whole)
                self.worker_s = len(lanes) * (lanes_done - begin) + time.monotonic() - lanes_done
            finally:
                self.findings.stopped.set()
                for lane in lanes:
                    lane.stop()

    def _take(self, queue: Queue, lane: int) -> Task | None:
        return None if self.findings.set_aside else queue.take(lane)
