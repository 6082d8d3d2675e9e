"""Interrupted commands, and folders that cannot be written or fill up: what is finished is kept, and the mend is named."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from mock_gates import (
    CASES,
    STRUCK_RUN,
    bad,
    done,
    folders,
    gate_on,
    journal_files,
    left,
    mock_device,
    options,
    own_lock,
)
from patience import MINUTES, until

from harness import devices, gate, journal, lane, process, store
from harness.errors import Incomplete


class Command:
    """`samebits` over mock devices with a lock of its own, as a process that can be signalled."""

    def __init__(self, folder: Path, items: Sequence[str], *arguments: object, ignore: bool = False) -> None:
        code = f"""
            import sys
            from pathlib import Path
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import mock_gates
            from harness import cli, devices, gate
            devices.discover = lambda **_: [mock_gates.mock_device(item) for item in {list(items)!r}]
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
            out, err = self.process.communicate(timeout=MINUTES)
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
    until(lambda: any(STRUCK_RUN in run.under_way for run in left(tmp_path)), "the device hangs")
    workers = psutil.Process(command.process.pid).children(recursive=True)
    (os.killpg if whole_group else os.kill)(command.process.pid, number)
    code, out, err = command.ended()
    assert code == 4 and "Traceback" not in err
    assert "--resume" in err and "not-run" in out
    first, second = sorted(store.collect([tmp_path / "out"]), key=lambda r: r.header.device.id, reverse=True)
    assert first.complete and second.footer and second.footer.reason == "interrupted" and not second.complete
    assert {r.verdict for r in second.results if r.run == STRUCK_RUN} <= {"not-run"}, "nobody waits for its budget"
    assert journal_files(tmp_path) == [] and list((tmp_path / "tmp").iterdir()) == []
    psutil.wait_procs(workers, MINUTES)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in workers)
    code, out, err = Command(tmp_path, ["first=match", "card=match"], "--resume", "--json").ended()
    assert code == 0, err
    judged = json.loads(out)
    planned = sum(p.role == "case" for p in first.header.planned)
    assert judged["complete"] and [d["counts"] for d in judged["devices"]] == [{"match": planned}] * 2


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
    monkeypatch.setattr(devices, "discover", lambda **_: [mock_device("match")])
    said: list[str] = []
    outcome = gate.execute(options(here, [STRUCK_RUN]), said.append)
    assert not bad(outcome.runs()[0])
    assert sum("other users' samebits are not waited for" in text for text in said) == 1
