"""Tasks: what a device has to do for a selection of cases, its checks first, as the run keys of one case each; and their queue."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from harness import backends, kernels, presets
from harness.cases import Case, RunKey
from harness.devices import Device
from harness.records import Planned
from harness.selections import Selection


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
    Those of a whole pass are its kernels'.
    """
    cases = [Task(s.case, "case", runs) for s in selections if (runs := s.runs(language))]
    found: list[Task] = []
    programs: dict[str, dict[tuple[str, str], None]] = {}
    for task in cases:
        for run in task.runs:
            for kernel, schedule in kernels.parts(task.case.kernel, run.schedule):
                programs.setdefault(kernel, {})[schedule, run.variant] = None
    for kernel, wanted in programs.items():
        if kernels.base(kernel).control:  # nothing is right or wrong there
            continue
        test = presets.SELF_TEST[kernel]
        twins = {variant: schedule for schedule, variant in reversed(wanted)}  # the first schedule of each variant
        found.append(Task(test, "self-test", [RunKey(test.id, s, v) for s, v in wanted]))
        found.append(Task(test, "known-bad", [RunKey(test.id, s, v) for v, s in twins.items()]))
    return found + cases


class Queue:
    """Tasks that lanes take from, in their order. A program belongs to the lane that took it first: it is compiled once."""

    def __init__(self, todo: Iterable[Task]) -> None:
        self._left = [Task(task.case, task.role, list(task.runs)) for task in todo]
        self._owners: dict[tuple[str, bool, str, str], int] = {}
        self._lock = threading.Lock()

    def take(self, lane: int) -> Task | None:
        """All run keys of the next task whose programs are the lane's, else one whose program is nobody's yet; None at the end."""
        with self._lock:
            self._left = [task for task in self._left if task.runs]
            for task in self._left:
                owners = {run: self._owners.get(_program(task, run)) for run in task.runs}
                own = [run for run, owner in owners.items() if owner == lane]
                runs = own or [run for run, owner in owners.items() if owner is None][:1]
                if runs:
                    self._owners[_program(task, runs[0])] = lane
                    task.runs = [run for run in task.runs if run not in runs]
                    return Task(task.case, task.role, runs)
        return None


def _program(task: Task, run: RunKey) -> tuple[str, bool, str, str]:
    return task.case.kernel, task.role == "known-bad", run.schedule, run.variant
