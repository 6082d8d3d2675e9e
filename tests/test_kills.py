"""Kills at random moments: at most the run key under way is lost, and resuming comes to the same results.

SAMEBITS_KILLS=50 does as many kills as an issue asks for; without it they are few.
"""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mock_gates
import psutil
import pytest
from mock_gates import CASES, WORKERS, Results, bad, done, gate_on, left, living, results_of
from patience import MINUTES, until

from harness import findings, lane, matrix, process, store
from harness.records import Run

KILLS = int(os.environ.get("SAMEBITS_KILLS", "6"))
SEED = 20260101
ITEMS = ("mismatch", "match")


class Server:
    """Forks that run gates over ITEMS, and can be killed."""

    def __init__(self, shared: Path) -> None:
        environment = process.environment({"OPENBLAS_NUM_THREADS": "1"})
        command = [sys.executable, mock_gates.__file__]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.shared = shared

    def __call__(
        self, folder: Path, resume: str | None = None, kill_after: float | None = None, kill_at: int | None = None
    ) -> "Trial":
        """Run a gate with its records in `folder`; kill it after so many seconds, or results, where any are given."""
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
                timer = threading.Timer(kill_after, kill, [message["pid"]])
                timer.start()
            trial.kept += [tuple(message["kept"])] if "kept" in message else []
            if len(trial.kept) == kill_at:
                kill(trial.outcome["pid"])
            trial.ended = message.get("ended")
            trial.outcome |= message
        trial.seconds = time.monotonic() - begin
        if timer:
            timer.cancel()  # it may have ended before; its number is nobody's until the server forks again
            timer.join()
        return trial


def kill(pid: int) -> None:
    """It may have ended just now."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


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
    server.process.wait(MINUTES)
    server.process.stdout.close()


@pytest.fixture(scope="module")
def undisturbed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, float]:
    """What comes out when nobody interrupts, and the seconds that it takes."""
    server(tmp_path_factory.mktemp("first"))
    trial = server(tmp_path_factory.mktemp("undisturbed"))
    runs = trial.runs()
    assert len(runs) == 2 and all(run.complete for run in runs)
    return results_of(runs), trial.seconds


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
        until(lambda folder=folder: not living(folder), "the end of every worker")
        shutil.rmtree(folder)
    print(f"{KILLS} trials, {killed} kills over {seconds:.2f} s each; resumed {resumed}")


def test_what_was_finished_is_not_run_again(server: Server, undisturbed: tuple[Results, float], tmp_path: Path) -> None:
    """A resumed run starts what is left, and no more."""
    expected, _ = undisturbed
    server(tmp_path, kill_at=len(expected) // 2)
    before = left(tmp_path)
    assert len(done(before)) >= len(expected) // 2
    runs = server(tmp_path, "last").runs()
    started = sum(line.count(b'"type":"started"') for line in _lines(runs))
    assert started == len(expected) - len(done(before))


def _lines(runs: Sequence[Run]) -> Iterator[bytes]:
    for run in runs:
        yield gzip.decompress(run.path.read_bytes())


def test_a_worker_killed_at_any_moment_costs_at_most_the_run_key_under_way(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many kills as KILLS: each is one crash at most, and all else is as if nothing had been."""
    cases = ("gemm_i32*",)
    expected = results_of(gate_on(["match"], here, monkeypatch, cases=cases).runs())
    chance = random.Random(SEED)
    kills: list[psutil.Process] = []

    class Doomed(process.Child):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.timer = threading.Timer(chance.uniform(0, 0.8), self.shoot)
            self.timer.start()

        def shoot(self) -> None:
            if len(kills) < KILLS and self._popen.poll() is None:
                kills.append(psutil.Process(self.pid))
                kill(self.pid)

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
    assert not any(killed.is_running() for killed in kills)
