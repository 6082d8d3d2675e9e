"""Kills and interrupts at random moments: at most the run key under way is lost, and resuming comes to the same results.

SAMEBITS_KILLS=50 does as many kills as an issue asks for; without it they are few.
"""

import errno
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mock_gates
import psutil
import pytest
from mock_gates import (
    LINEAR,
    STRUCK,
    STRUCK_RUN,
    WORKERS,
    Results,
    bad,
    folders,
    mock_device,
    options,
    own_lock,
    results_of,
)

from harness import devices, findings, gate, journal, kernels, lane, matrix, presets, process, store
from harness.cases import Case
from harness.errors import Incomplete, InputRefused, UsageError
from harness.gate import Outcome
from harness.records import Run

KILLS = int(os.environ.get("SAMEBITS_KILLS", "10"))
SEED = 20260101
CASES = (STRUCK, LINEAR)
ITEMS = ("mismatch", "match")


class Server:
    """Forks that run gates over ITEMS, and can be killed."""

    def __init__(self, shared: Path) -> None:
        environment = process.environment({"OPENBLAS_NUM_THREADS": "1"})
        command = [sys.executable, mock_gates.__file__]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.shared = shared

    def __call__(self, folder: Path, resume: str | None = None, kill_after: float | None = None) -> "Trial":
        """Run a gate with its records in `folder`; kill it after so many seconds, where any are given."""
        assert self.process.stdin and self.process.stdout
        folder.mkdir(exist_ok=True)
        request = {"folder": str(folder), "shared": str(self.shared), "items": ITEMS, "cases": CASES, "resume": resume}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        trial = Trial()
        timer: threading.Timer | None = None
        begin = time.monotonic()
        while trial.ended is None:
            message = json.loads(self.process.stdout.readline())
            if "pid" in message and kill_after is not None:
                timer = threading.Timer(kill_after, os.kill, [message["pid"], signal.SIGKILL])
                timer.start()
            trial.kept += [tuple(message["kept"])] if "kept" in message else []
            trial.ended = message.get("ended")
            trial.outcome |= message
        trial.seconds = time.monotonic() - begin
        if timer:
            timer.cancel()  # it may have ended before; its number is nobody's until the server forks again
            timer.join()
        return trial


class Trial:
    """What one gate said before it ended."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []
        self.ended: int | None = None
        self.outcome: dict[str, Any] = {}
        self.seconds = 0.0

    def runs(self) -> list[Run]:
        """The records that it made."""
        assert "outcome" in self.outcome, self.outcome
        return store.collect([Path(path) for path in self.outcome["outcome"]])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests here."""
    server = Server(tmp_path_factory.mktemp("shared"))
    yield server
    assert server.process.stdin and server.process.stdout
    server.process.stdin.close()
    server.process.wait(20)
    server.process.stdout.close()


@pytest.fixture(scope="module")
def undisturbed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, float]:
    """What comes out when nobody interrupts, and the seconds that it takes."""
    server(tmp_path_factory.mktemp("first"))
    trial = server(tmp_path_factory.mktemp("undisturbed"))
    runs = trial.runs()
    assert len(runs) == 2 and all(run.complete for run in runs)
    return results_of(runs), trial.seconds


def left(folder: Path) -> list[Run]:
    """Every run that can be read in `folder`; only one that was killed in its header cannot."""
    found = []
    for path in [*(folder / "out").rglob("*.jsonl.gz"), *(folder / "state" / "journals").glob("*.jsonl")]:
        try:
            found.append(store.load(path))
        except InputRefused as e:
            assert "holds no whole line" in str(e) and path.suffix == ".jsonl"
    return found


def done(runs: Sequence[Run]) -> set[tuple[str, str, str]]:
    """Device, role and run key of what is finished in any of them."""
    return {key for run in runs for key, (verdict, _) in results_of([run]).items() if verdict != "not-run"}


def test_a_supervisor_killed_at_any_moment_loses_at_most_the_run_key_under_way(
    server: Server, undisturbed: tuple[Results, float], tmp_path: Path
) -> None:
    """And is gone on with, by gate run, journal or `last`, killed again every third time, to the same results."""
    expected, seconds = undisturbed
    chance = random.Random(SEED)
    resumed = {"gate run": 0, "journal": 0, "last": 0, "anew": 0}
    killed = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        kills = 2 if number % 3 == 2 else 1
        told = set[tuple[str, str]]()
        resume = None
        for _ in range(kills):
            trial = server(folder, resume, chance.uniform(0, seconds))
            told |= set(trial.kept)
            killed += trial.ended == signal.SIGKILL
            found = left(folder)
            kept = done(found)
            assert told <= {(role, run) for _, role, run in kept}, "told, and not kept"
            assert sum(len(run.under_way) for run in found) <= kills * WORKERS
            way = chance.choice(list(resumed)[:3]) if found else "anew"
            resumed[way] += 1
            newest = max(found, key=lambda r: r.header.started, default=None)
            resume = {"gate run": newest and newest.header.gate_run, "journal": newest and str(newest.path)}.get(
                way, "last" if newest else None
            )
        before = done(left(folder))
        trial = server(folder, resume)
        runs = trial.runs()
        assert results_of(runs) == expected and all(run.complete for run in runs)
        carried = results_of(left(folder))
        assert before <= done(runs) and carried.keys() >= before
        verdict, whole = matrix.judge(runs), matrix.judge(matrix.latest(store.collect([folder / "out"])))
        assert [row.counts for row in verdict.rows] == [row.counts for row in whole.rows]
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]
        shutil.rmtree(folder)
    print(f"{KILLS} trials, {killed} kills over {seconds:.2f} s each; resumed {resumed}")


def test_what_was_finished_is_not_run_again(server: Server, undisturbed: tuple[Results, float], tmp_path: Path) -> None:
    """A resumed run starts what is left, and no more."""
    expected, seconds = undisturbed
    server(tmp_path, kill_after=0.8 * seconds)
    before = left(tmp_path)
    assert done(before)
    runs = server(tmp_path, "last").runs()
    started = sum(line.count(b'"type":"started"') for line in _lines(runs))
    assert started == len(expected) - len(done(before))


def _lines(runs: Sequence[Run]) -> Iterator[bytes]:
    for run in runs:
        yield gzip.decompress(run.path.read_bytes())


@pytest.fixture
def here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for gates of this process."""
    for name, place in folders(tmp_path).items():
        monkeypatch.setenv(name, place)
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(gate, "device_lock", own_lock(tmp_path))
    return tmp_path


def gate_on(items: Sequence[str], folder: Path, patch: pytest.MonkeyPatch, **more: Any) -> Outcome:
    """A gate over `items` in this process."""
    patch.setattr(devices, "discover", lambda: [mock_device(item) for item in items])
    return gate.execute(options(folder, more.pop("cases", CASES), **more), lambda _: None)


def test_a_worker_killed_at_any_moment_costs_at_most_the_run_key_under_way(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many kills as KILLS: each is one crash at most, and all else is as if nothing had been."""
    cases = ("gemm_i32*", "linear_q8_0*")
    expected = results_of(gate_on(["match"], here, monkeypatch, cases=cases).runs())
    chance = random.Random(SEED)
    kills: list[int] = []

    class Doomed(process.Child):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.timer = threading.Timer(chance.uniform(0, 0.8), self.shoot)
            self.timer.start()

        def shoot(self) -> None:
            if len(kills) < KILLS and self._popen.poll() is None:
                kills.append(self.pid)
                os.kill(self.pid, signal.SIGKILL)

        def close(self, grace: float = 0.0) -> None:
            self.timer.cancel()
            self.timer.join()
            super().close(grace)

    monkeypatch.setattr(lane, "Child", Doomed)
    monkeypatch.setattr(findings, "LOSSES_ALLOWED", 1000)
    rounds = 0
    while len(kills) < KILLS:
        before, rounds = len(kills), rounds + 1
        (run,) = gate_on(["match"], here, monkeypatch, cases=cases).runs()
        lost = [r for r in bad(run).values() if r.verdict == "crash"]
        assert len(lost) == len(bad(run)) <= len(kills) - before
        assert all("killed by SIGKILL" in (r.detail or "") for r in lost) and run.complete
        struck = {(r.role, r.run) for r in lost}
        right = {k: v for k, v in results_of([run]).items() if k[1:] not in struck}
        assert right == {k: v for k, v in expected.items() if k[1:] not in struck}
    print(f"{len(kills)} workers killed in {rounds} gates")
    assert not any(psutil.pid_exists(pid) for pid in kills)


class Command:
    """`samebits` over mock devices with a lock of its own, as a process that can be signalled."""

    def __init__(self, folder: Path, items: Sequence[str], *arguments: object, ignore: bool = False) -> None:
        code = f"""
            import sys
            from pathlib import Path
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import mock_gates
            from harness import cli, devices, gate
            devices.discover = lambda *_: [mock_gates.mock_device(item) for item in {list(items)!r}]
            gate.device_lock = mock_gates.own_lock(Path({str(folder)!r}))
            cli.main()
        """
        folder.mkdir(exist_ok=True)
        changes = folders(folder) | {"SAMEBITS_EXPECT": None}
        selected = [part for case in CASES for part in ("--case", case)]
        program = [sys.executable, "-c", textwrap.dedent(code), "gate", "--preset", "tiny", *selected]
        self.process = subprocess.Popen(
            [*program, "--out", str(folder / "out"), *map(str, arguments)],
            env=process.environment(changes),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell's background job has it ignored; a terminal's has not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignore else signal.SIG_DFL),
        )

    def wait_for(self, word: str) -> None:
        """Until it says so on standard error."""
        assert self.process.stderr
        for line in self.process.stderr:
            if word in line:
                return
        raise AssertionError(f"it never said {word}")

    def ended(self) -> tuple[int, str, str]:
        """Exit code, standard output, the rest of standard error."""
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


@pytest.mark.parametrize(
    ("number", "whole_group", "ignore"),
    [
        (signal.SIGINT, False, False),
        (signal.SIGINT, True, False),
        (signal.SIGTERM, False, False),
        (signal.SIGTERM, False, True),
    ],
    ids=["SIGINT", "SIGINT from a terminal", "SIGTERM", "SIGTERM in the background"],
)
def test_an_interrupted_command_seals_its_record_and_is_gone_on_with(
    number: signal.Signals, whole_group: bool, ignore: bool, tmp_path: Path
) -> None:
    """Exit code 4, a footer that says so, no traceback, no worker left; `--resume` completes it."""
    command = Command(tmp_path, ["first=match", "card=hang-run"], ignore=ignore)
    command.wait_for("mock:card:0")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not any(STRUCK_RUN in run.under_way for run in left(tmp_path)):
        time.sleep(0.05)
    workers = psutil.Process(command.process.pid).children(recursive=True)
    begin = time.monotonic()
    (os.killpg if whole_group else os.kill)(command.process.pid, number)
    code, out, err = command.ended()
    assert code == 4 and "Traceback" not in err and time.monotonic() - begin < 10
    assert "--resume" in err and "not-run" in out
    first, second = sorted(store.collect([tmp_path / "out"]), key=lambda r: r.header.device.id, reverse=True)
    assert first.complete and second.footer and second.footer.reason == "interrupted" and not second.complete
    assert journal_files(tmp_path) == [] and list((tmp_path / "tmp").iterdir()) == []
    psutil.wait_procs(workers, 5)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in workers)
    code, out, err = Command(tmp_path, ["first=match", "card=match"], "--resume", "--json").ended()
    assert code == 0, err
    judged = json.loads(out)
    planned = sum(p.role == "case" for p in first.header.planned)
    assert judged["complete"] and [d["counts"] for d in judged["devices"]] == [{"match": planned}] * 2


def journal_files(folder: Path) -> list[Path]:
    """Unsealed journals."""
    return list((folder / "state" / "journals").iterdir())


def test_an_interrupt_between_a_write_and_its_bookkeeping_leaves_a_record_that_reads(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer counts what is on the disk."""
    honest = journal.Journal.result

    def interrupted(self: journal.Journal, result: Any) -> None:
        honest(self, result)
        if result.run == STRUCK_RUN:
            raise KeyboardInterrupt

    monkeypatch.setattr(journal.Journal, "result", interrupted)
    outcome = gate_on(["match"], here, monkeypatch)
    (run,) = outcome.runs()
    assert outcome.interrupted and run.footer and run.footer.reason == "interrupted"
    assert run.footer.counts["match"] == sum(r.verdict == "match" for r in run.results)


def test_a_resumed_run_that_is_interrupted_at_once_still_holds_all_that_was_done(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is carried over is written first; and it is looked for in every run that came before."""
    first = gate_on(["card=crash/all"], here, monkeypatch)
    (run,) = first.runs()
    monkeypatch.setattr(lane.Lane, "_do", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    (again,) = gate_on(["card=match"], here, monkeypatch, resume=first.gate_run).runs()
    assert again.header.parent == run.header.run_id and done([again]) == done([run])
    monkeypatch.setattr(findings.Findings, "keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    (empty,) = gate_on(["card=match"], here, monkeypatch, resume=first.gate_run).runs()
    assert empty.header.parent == again.header.run_id and not done([empty])
    monkeypatch.undo()


def test_a_device_that_was_set_aside_is_gone_on_with_until_it_is_done(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resumption has three losses of its own; faults stay, and the last run names its parents in a line."""
    outcome = gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1)
    chain = [outcome.runs()[0]]
    while not chain[-1].complete:
        chain += gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1, resume="last").runs()
    planned = len(chain[0].header.planned)
    twins = sum(p.role == "known-bad" for p in chain[0].header.planned)
    crashes = [sum(r.verdict == "crash" for r in run.results) for run in chain]
    assert crashes[:-1] == list(range(3, 3 * len(chain), 3))[: len(chain) - 1] and crashes[-1] == planned - twins
    assert [run.header.parent for run in chain[1:]] == [run.header.run_id for run in chain[:-1]]
    assert matrix.latest(store.collect([here / "out"]))[0].header.run_id == chain[-1].header.run_id
    assert len(matrix.latest(store.collect([here / "out"]))) == 1


def test_no_fault_is_resumed_away(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a mismatch, not a crash, and not a hang in the end of a worker, though the device has been mended since."""
    items = ["a=mismatch+hang-shutdown", "b=crash"]
    outcome = gate_on(items, here, monkeypatch)
    before = results_of(outcome.runs())
    resumed = gate_on(["a=match", "b=match"], here, monkeypatch, resume=outcome.gate_run).runs()
    assert results_of(resumed) == before
    assert {v for _, _, v in [(k, r, v) for k, (v, r) in before.items()]} >= {"mismatch", "crash", "timeout"}


def test_a_void_run_is_done_anew(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results count for nothing, so none is carried over."""
    outcome = gate_on(["card=wrong-nonce"], here, monkeypatch)
    (run,) = gate_on(["card=match"], here, monkeypatch, resume=outcome.gate_run).runs()
    assert not run.voids and not bad(run) and run.header.parent == outcome.runs()[0].header.run_id


def test_of_a_fork_the_worse_result_stays(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two resumptions of one run, of which one found a fault."""
    monkeypatch.setattr(lane.Lane, "_do", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    root = gate_on(["card=match"], here, monkeypatch)
    monkeypatch.undo()
    for name, place in folders(here).items():
        monkeypatch.setenv(name, place)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(gate, "device_lock", own_lock(here))
    (one,) = gate_on(["card=mismatch"], here, monkeypatch, resume=root.gate_run).runs()
    moved = here / "elsewhere"
    one.path.rename(moved)
    gate_on(["card=match"], here, monkeypatch, resume=root.gate_run)
    moved.rename(one.path)
    (last,) = gate_on(["card=match"], here, monkeypatch, resume=root.gate_run).runs()
    assert [(r.run, r.verdict) for r in bad(last).values()] == [(STRUCK_RUN, "mismatch")]


def test_a_journal_killed_in_its_header_does_not_hinder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a damaged record that has nothing to do with it."""
    outcome = gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1)
    (here / "state" / "journals" / "torn.jsonl").write_bytes(b'{"type":"hea')
    (here / "out" / "damaged.jsonl.gz").write_bytes(b"no")
    (run,) = gate_on(["card=match"], here, monkeypatch, cases=[STRUCK], resume="last").runs()
    assert run.header.gate_run == outcome.gate_run and run.complete


@pytest.mark.parametrize("resume", ["last", "0" * 32, "no/such/journal.jsonl"])
def test_nothing_to_resume_is_a_usage_error_before_anything_runs(
    resume: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what was asked for, and the mend."""
    with pytest.raises(UsageError, match=r"nothing to resume as .*; name a record, or leave --resume out"):
        gate_on(["match"], here, monkeypatch, resume=resume)
    assert not (here / "state" / "journals").exists() or journal_files(here) == []


def test_another_driver_is_not_resumed_and_nothing_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even on the device before it."""
    outcome = gate_on(["a=match", "b=match~1"], here, monkeypatch, cases=[STRUCK_RUN])
    records = set((here / "out").rglob("*.gz"))
    with pytest.raises(UsageError, match=r"it ran on mock:b:0 .*mock 1.* not mock:b:0 .*mock 2"):
        gate_on(["a=match", "b=match~2"], here, monkeypatch, cases=[STRUCK_RUN], resume=outcome.gate_run)
    assert set((here / "out").rglob("*.gz")) == records


def test_a_soak_is_gone_on_with_round_by_round(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that are done are carried over, the one under way is completed, and the next begins."""

    def rounds() -> Iterator[list[Case]]:
        for seed in range(1, 100):
            yield [Case("gemm_i32", (("m", 17), ("n", 19), ("k", 23)), "full", seed)]

    monkeypatch.setattr(presets, "soak_rounds", rounds)
    monkeypatch.setattr(presets, "SOAK_ELEMENTS", 3 * 7 * 2 * 17 * 19)
    honest = lane.Lane._do

    def interrupted(self: lane.Lane, task: Any) -> None:
        honest(self, task)
        if task.role == "case" and task.case.seed == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(lane.Lane, "_do", interrupted)
    soak = {"preset": "soak", "cases": ()}

    def gate_of(resume: str | None) -> Outcome:
        monkeypatch.setattr(devices, "discover", lambda: [mock_device("match")])
        return gate.execute(gate.Options(out=here / "out", resume=resume, **soak), lambda _: None)

    first = gate_of(None)
    assert first.interrupted and len(first.records) == 2
    monkeypatch.setattr(lane.Lane, "_do", honest)
    runs = gate_of("last").runs()
    assert len(runs) == 3 and all(run.complete and not bad(run) for run in runs)
    assert [run.header.parent is not None for run in sorted(runs, key=lambda r: r.header.planned[-1].run)] == [
        True, True, False,
    ]  # fmt: skip
    kept = matrix.latest(store.collect([here / "out"]))
    assert sorted(r.header.run_id for r in kept) == sorted(r.header.run_id for r in runs)


@pytest.mark.parametrize(("seconds", "families"), [(0.001, ["gemm"]), (None, ["gemm", "linear"])])
def test_the_time_of_a_soak_ends_it_after_a_family_and_not_after_a_round(
    here: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, families: list[str]
) -> None:
    """A round can take minutes. What was done is whole: the record of each family is complete, and nothing is not-run."""
    gemm = Case("gemm_i32", (("m", 17), ("n", 19), ("k", 23)), "full", 1)
    linear = Case("linear_q8_0", (("m", 2), ("n", 5), ("k", 64)), "full", 1)
    monkeypatch.setattr(presets, "soak_rounds", lambda: iter([[gemm, linear]] * 2))
    monkeypatch.setattr(presets, "SOAK_ELEMENTS", 1)
    monkeypatch.setattr(devices, "discover", lambda: [mock_device("match")])
    soak = gate.Options("soak", here / "out", soak_seconds=seconds)
    outcome = gate.execute(soak, lambda _: None)
    runs = outcome.runs()
    assert [kernels.FAMILY_OF[run.header.planned[-1].case.partition(";")[0]] for run in runs] == families
    assert all(run.complete and not bad(run) for run in runs) and not outcome.interrupted


@pytest.mark.parametrize("place", ["state", "out"])
def test_a_folder_that_cannot_be_written_is_one_line_with_the_mend(place: str, tmp_path: Path) -> None:
    """Exit code 2, before anything runs."""
    (tmp_path / place).write_text("a file in its place")
    code, out, err = Command(tmp_path, ["match"]).ended()
    mend = {"state": "SAMEBITS_STATE_DIR", "out": "--out"}[place]
    assert code == 2 and out == "" and "Traceback" not in err
    assert mend in err.splitlines()[-1] and str(tmp_path / place) in err.splitlines()[-1]


def test_a_state_folder_that_fills_up_loses_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that has no room is taken back whole; with room the run goes on."""
    honest, left_over = journal._write_all, [20]

    def write(descriptor: int, data: bytes) -> None:
        left_over[0] -= 1
        if left_over[0] < 0:
            honest(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(descriptor, data)

    monkeypatch.setattr(journal, "_write_all", write)
    with pytest.raises(Incomplete, match=r"No space left on device; make room, then go on with --resume") as error:
        gate_on(["match"], here, monkeypatch)
    (path,) = journal_files(here)
    assert str(path) in str(error.value)
    kept = store.load(path)
    assert path.read_bytes().count(b"\n") == 20 and done([kept])
    monkeypatch.setattr(journal, "_write_all", honest)
    (run,) = gate_on(["match"], here, monkeypatch, resume=str(path)).runs()
    assert run.complete and not bad(run) and run.header.parent == kept.header.run_id


def test_an_output_folder_that_fills_up_keeps_the_journal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was run is not run again when it can be written."""
    honest = journal._store

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "_store", full)
    with pytest.raises(Incomplete, match="the journal is kept"):
        gate_on(["match"], here, monkeypatch)
    (path,) = journal_files(here)
    monkeypatch.setattr(journal, "_store", honest)
    monkeypatch.setattr(lane, "Child", None)  # no worker is needed
    (run,) = gate_on(["match"], here, monkeypatch, resume=str(path)).runs()
    assert run.complete and not bad(run)


def test_where_run_lock_is_missing_the_lock_is_the_users_own_and_that_is_said(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate runs all the same."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here / "own"))
    monkeypatch.setattr(gate, "device_lock", own_lock(here / "no" / "such"))
    monkeypatch.setattr(devices, "discover", lambda: [mock_device("match")])
    said: list[str] = []
    outcome = gate.execute(options(here, [STRUCK_RUN]), said.append)
    assert not bad(outcome.runs()[0])
    assert sum("other users' samebits are not waited for" in text for text in said) == 1
