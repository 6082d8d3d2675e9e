"""The host's device lock: who waits, for whom, and that nothing in an open folder can harm."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from harness import locks, process
from harness.errors import UsageError
from harness.locks import device_lock

HOLDER = """
import sys, time
from pathlib import Path
from harness.locks import device_lock
sys.argv = ["/usr/bin/samebits", "gate", "--device", "lavapipe\\x1b[2J"]
with device_lock(print, Path(FOLDER)):
    print("held", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another samebits that holds the lock."""
    script = HOLDER.replace("FOLDER", repr(str(tmp_path / "samebits")))
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, env=process.environment({}), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def test_the_second_waits_and_says_for_whom_and_goes_on_when_the_first_dies(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        other.kill()

    with device_lock(say, tmp_path / "samebits"):
        assert other.wait() == -signal.SIGKILL
    assert said == [
        f"waiting for process {other.pid} (samebits gate --device lavapipe[2J) to finish: "
        "one samebits at a time on this host's devices"
    ]


def test_all_users_can_take_the_shared_lock_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "samebits"
    old = os.umask(0o077)
    try:
        with device_lock(pytest.fail, folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert stat.S_IMODE((folder / locks.LOCK).stat().st_mode) == 0o666
            [note] = folder.glob("holder-*.json")
            assert stat.S_IMODE(note.stat().st_mode) == 0o644
            assert json.loads(note.read_text())["pid"] == os.getpid()
    finally:
        os.umask(old)
    assert not list(folder.glob("holder-*.json"))
    with device_lock(pytest.fail, folder):
        pass


def test_an_error_inside_lets_the_lock_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), device_lock(pytest.fail, tmp_path / "samebits"):
        raise ZeroDivisionError
    with device_lock(pytest.fail, tmp_path / "samebits"):
        pass


@pytest.mark.parametrize("obstacle", ["missing parent", "a file", "a link", "a folder in place of the lock"])
def test_without_a_shared_folder_the_lock_is_the_users_own_and_that_is_said_once(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_runtime_dir", lambda name: str(tmp_path / "own" / name))
    shared = tmp_path / "shared"
    match obstacle:
        case "missing parent":
            shared = tmp_path / "no" / "such"
        case "a file":
            shared.touch()
        case "a link":
            (tmp_path / "elsewhere").mkdir()
            shared.symlink_to(tmp_path / "elsewhere")
        case _:
            (shared / locks.LOCK).mkdir(parents=True)
    said: list[str] = []
    with device_lock(said.append, shared):
        assert (tmp_path / "own/samebits" / locks.LOCK).exists()
    assert len(said) == 1
    assert "other users' samebits are not waited for" in said[0]


def test_without_any_folder_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(platformdirs, "user_runtime_dir", lambda name: str(tmp_path / "file" / name))
    with (
        pytest.raises(UsageError, match="XDG_RUNTIME_DIR"),
        device_lock(lambda _: None, tmp_path / "no" / "such"),
    ):
        pass


def test_planted_notes_neither_block_nor_mislead_nor_get_followed(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    folder = tmp_path / "samebits"
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.mkfifo(folder / "holder-0.json")
    (folder / "holder-00.json").symlink_to(victim)
    (folder / f"holder-{os.getpid()}.json").symlink_to(victim)
    for number, text in enumerate(("", "[" * 100_000, "[1]", "{}", '{"pid": "x"}', '{"pid": -1, "command": ""}', "\0")):
        (folder / f"holder-000{number}.json").write_text(text)
    (folder / "holder-0009.json").write_text(json.dumps({"pid": 1 << 22, "started": 0, "command": "long dead"}))
    (folder / "holder-0008.json").write_text(json.dumps({"pid": 1 << 222, "started": 0, "command": "no number"}))
    # A killed process's note, whose number a living one has got since.
    (folder / "holder-0010.json").write_text(json.dumps({"pid": os.getpid(), "started": 1.0, "command": "killed"}))
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        other.kill()

    with device_lock(say, folder):
        pass
    assert said[0].startswith(f"waiting for process {other.pid} (samebits gate")
    assert victim.read_text() == "precious"
