"""Several workers on one device: what befalls one leaves the other's results alone, and all come to what one alone comes to."""

import gzip
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from mock_gates import STRUCK_RUN, bad, gate_on, journal_files, left_behind, mock_device, use_folders
from patience import MINUTES, until
from test_rogue_workers import rogue

from harness import lane, supervisor, tasks
from harness.cases import RunKey, parse_case
from harness.errors import Incomplete
from harness.lane import Budgets
from harness.process import Child, Timeout
from harness.records import Run
from harness.reference import Reference
from harness.supervisor import LANES, RUNS_A_LANE, DeviceRun
from harness.tasks import Queue, Task
from harness.verdicts import Result

GEMMS = ("gemm_i32;*", "gemm_i8;*", "gemm_f32;*")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for gates, in which nothing is left behind."""
    use_folders(monkeypatch, tmp_path)
    yield tmp_path
    assert left_behind(tmp_path) == []


class Opened(Child):
    """Counts the workers, the greatest number at a time, and what each was asked."""

    now: ClassVar[list["Opened"]] = []
    most: ClassVar[int] = 0
    asked: ClassVar[list[tuple[int, dict[str, object]]]] = []

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        Opened.now.append(self)
        Opened.most = max(Opened.most, len(Opened.now))

    def send(self, message: object, timeout: float = 10.0) -> None:
        """Remembers it."""
        assert isinstance(message, dict)
        Opened.asked.append((self.pid, message))
        super().send(message, timeout)

    def close(self, grace: float = 0.0) -> None:
        """It is one less."""
        if self in Opened.now:
            Opened.now.remove(self)
        super().close(grace)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> type[Opened]:
    """The workers of this test."""
    Opened.now, Opened.most, Opened.asked = [], 0, []
    monkeypatch.setattr(lane, "Child", Opened)
    return Opened


def run_of(item: str, folder: Path, patch: pytest.MonkeyPatch, **more: object) -> Run:
    """The record of a gate over one mock device."""
    (run,) = gate_on([item], folder, patch, **more).runs()
    return run


def timeless(run: Run) -> list[Result]:
    """The results, in the record's order, without what is a run's own: seconds, and the folder of its failures."""
    own = run.header.run_id
    return [
        msgspec.structs.replace(r, seconds={}, artefacts=[a.removeprefix(own) for a in r.artefacts])
        for r in run.results
    ]


@pytest.mark.parametrize(
    "item", ["match", "mismatch", "crash", "hang-run", "compile-error", "device-lost", "compile-only"]
)
def test_records_of_one_and_of_three_workers_are_equal_but_for_their_times(
    item: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Result by result, in one order; the fault strikes one run key, and no other lane's."""
    cases = GEMMS if item == "match" else GEMMS[:1]
    one, three = (run_of(item, here, monkeypatch, cases=cases, workers=n) for n in (1, 3))
    assert timeless(one) == timeless(three) and len(one.results) == len(one.header.planned) > 50
    assert one.complete and three.complete and one.footer and three.footer
    assert one.footer.counts == three.footer.counts and one.voids == three.voids == ()
    assert (STRUCK_RUN in {r.run for r in bad(three).values()}) == (item != "match")


def test_no_program_is_compiled_by_two_workers(
    here: Path, opened: type[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of the workers has some to do."""
    assert run_of("match", here, monkeypatch, cases=GEMMS, workers=3).complete
    owners: dict[tuple[object, ...], set[int]] = {}
    for worker, message in opened.asked:
        if message["op"] == "case":
            for run in message["runs"]:  # type: ignore[attr-defined]
                kernel = parse_case(str(message["case"])).kernel
                owners.setdefault((kernel, message["known_bad"], *run.values()), set()).add(worker)
    assert all(len(workers) == 1 for workers in owners.values()) and len(owners) > 20
    assert len(set.union(*owners.values())) == opened.most == 3


def test_hardware_has_one_worker_whatever_is_asked_for(
    here: Path, opened: type[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang would take both."""
    run = run_of("match@NVIDIA", here, monkeypatch, workers=3)
    assert run.header.device.kind == "hardware" and run.complete and opened.most == 1


def test_without_a_number_there_is_a_lane_a_core_and_none_that_is_not_worth_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most LANES; one for a handful of run keys; one for hardware."""
    with Reference() as reference:
        soft, hard = (DeviceRun(mock_device(item), reference, Budgets()) for item in ("match", "match@AMD"))
        told = DeviceRun(mock_device("match"), reference, Budgets(), None, 3)
    for cores, count in ((1, 1), (2, 2), (3, 3), (64, LANES)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert soft.lanes(10_000) == count and hard.lanes(10_000) == 1
    assert (soft.lanes(0), soft.lanes(1), soft.lanes(2 * RUNS_A_LANE)) == (1, 1, 2)
    assert (told.lanes(1), told.lanes(10_000)) == (3, 3)


def test_losses_count_for_the_device_whichever_lanes_have_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three lanes loses a worker once, not three times; what was under way beside is charged or judged as ever."""
    run = run_of("crash/all", here, monkeypatch, cases=GEMMS, workers=3)
    crashed = [r for r in run.results if r.verdict == "crash"]
    assert 3 <= len(crashed) <= 5 and not run.complete
    rest = {r.detail for r in run.results if r.verdict == "not-run"}
    assert rest == {"device set aside after 3 losses, the last: crash in run"}


def test_a_lane_that_hangs_does_not_hold_up_the_others(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its budget runs out the other goes on: here it does not run out before."""

    def beside(path: Path) -> int:
        """Results between the start of what hangs and its end, or the end of the file."""
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()
        told = [(line["type"], line.get("run")) for line in map(msgspec.json.decode, lines)]
        start = told.index(("started", STRUCK_RUN))
        end = told.index(("result", STRUCK_RUN)) if ("result", STRUCK_RUN) in told else len(told)
        return [kind for kind, _ in told[start:end]].count("result")

    class Waiting(Child):
        def receive(self, timeout: float) -> dict[str, object]:
            try:
                return super().receive(timeout)
            except Timeout:
                until(lambda: beside(journal_files(here)[0]) > 10, "the other lane goes on")
                raise

    monkeypatch.setattr(lane, "Child", Waiting)
    run = run_of("hang-run", here, monkeypatch, cases=GEMMS[:2], workers=2)
    assert [(r.run, r.verdict) for r in bad(run).values()] == [(STRUCK_RUN, "timeout")] and run.complete
    assert beside(run.path) > 10


def test_a_full_disk_in_one_lane_stops_all_and_charges_none(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with the mend in a line; no crash stands in the journal, and it is gone on with."""
    full = "if kind == 'dumped': event = {'event': 'host-fault', 'detail': 'No space left on device: /tmp/x'}"
    honest = lane.python
    rogue({STRUCK_RUN: full}, monkeypatch)
    with pytest.raises(Incomplete, match=r"No space left .*TMPDIR"):
        run_of("match", here, monkeypatch, cases=GEMMS[:2], workers=3)
    monkeypatch.setattr(lane, "python", honest)
    run = run_of("match", here, monkeypatch, cases=GEMMS[:2], workers=2, resume="last")
    assert run.header.parent and run.complete and not bad(run)


def test_an_interrupt_stops_a_lane_that_waits_for_the_reference(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer that takes minutes."""
    waiting = threading.Event()

    def never(*_: object) -> None:
        waiting.set()
        time.sleep(0.05)
        raise TimeoutError

    def interrupted(*_: object) -> Iterator[None]:
        assert waiting.wait(MINUTES)
        raise KeyboardInterrupt

    monkeypatch.setattr(Reference, "expected", never)
    monkeypatch.setattr(supervisor, "as_completed", interrupted)
    outcome = gate_on(["match"], here, monkeypatch, workers=2)
    (run,) = outcome.runs()
    assert outcome.interrupted and {r.verdict for r in run.results} == {"not-run"} and 1 <= len(run.under_way) <= 2


def test_a_queue_gives_each_lane_its_own_programs_in_the_order_of_the_tasks() -> None:
    """A lane's first program is the first that nobody has; all that it owns of a task comes at once; nothing comes twice."""
    first, second = (parse_case(f"gemm_i32;m={m};n=1;k=1;dist=full;seed=0") for m in (1, 2))

    def runs(case: tasks.Case, *schedules: str) -> list[RunKey]:
        return [RunKey(case.id, schedule, "base") for schedule in schedules]

    names = ("forward", "reverse", "tree")
    todo = [Task(first, "self-test", runs(first, *names)), Task(second, "case", runs(second, *names))]
    queue = Queue(todo)
    assert queue.take(0) == Task(first, "self-test", runs(first, "forward"))
    assert queue.take(1) == Task(first, "self-test", runs(first, "reverse"))
    assert queue.take(0) == Task(first, "self-test", runs(first, "tree"))
    assert queue.take(0) == Task(second, "case", runs(second, "forward", "tree")) and queue.take(0) is None
    assert queue.take(1) == Task(second, "case", runs(second, "reverse")) and queue.take(1) is None
    assert todo[0].runs == runs(first, *names)
    twins = Queue([Task(first, role, runs(first, "forward")) for role in ("self-test", "known-bad")])
    assert [twins.take(lane) for lane in (0, 1)] == [
        Task(first, r, runs(first, "forward")) for r in ("self-test", "known-bad")
    ]
