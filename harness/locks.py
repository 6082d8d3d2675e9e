"""One samebits at a time on a host's devices: whoever comes second waits, and is told for whom.

The lock is shared by all users of the host, under /run/lock. Where that cannot be had it is the user's own. It is let
go by the kernel when its holder dies. The folder is open to all, so nothing that lies in it is trusted.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock
import platformdirs
import psutil

from harness.errors import UsageError
from harness.text import clean

SHARED = Path("/run/lock/samebits")
LOCK = "device.lock"
POLL = 0.25
TELL_AGAIN = 60.0
"""Seconds after which a waiting samebits says again for whom."""

_NOTE_LIMIT = 4096


@contextmanager
def device_lock(say: Callable[[str], None], shared: Path = SHARED) -> Iterator[None]:
    """Hold the host's device lock; waits for it as long as it takes. `say` gets sentences for the user."""
    lock = _shared_lock(shared, say)
    if lock is None:
        folder = _own_folder()
        say(f"no lock in {shared} can be had; other users' samebits are not waited for ({folder})")
        lock = _acquire(folder, say)
    note = Path(lock.lock_file).with_name(f"holder-{os.getpid()}.json")
    try:
        _write_note(note)
        yield
    finally:
        with suppress(OSError):
            note.unlink()
        lock.release()


def _shared_lock(folder: Path, say: Callable[[str], None]) -> filelock.BaseFileLock | None:
    """The acquired lock that all users share, or None where this host has no place for one."""
    try:
        folder.mkdir()
        folder.chmod(0o1777)  # mkdir's own mode is cut by the umask
    except FileExistsError:
        pass
    except OSError:
        return None
    if folder.is_symlink() or not folder.is_dir():
        return None
    try:
        return _acquire(folder, say)
    except OSError:  # another user's file that we may not open, a read-only folder
        return None


def _own_folder() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
        folder = Path(platformdirs.user_runtime_dir("samebits"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"it belongs to user {folder.stat().st_uid}")
    except OSError as error:
        raise UsageError(f"no folder for the device lock: {folder}: {error}; set XDG_RUNTIME_DIR") from None
    return folder


def _acquire(folder: Path, say: Callable[[str], None]) -> filelock.BaseFileLock:
    lock = filelock.FileLock(folder / LOCK, mode=0o666)
    told, told_at = "", 0.0
    while True:
        try:
            lock.acquire(timeout=0)
            return lock
        except filelock.Timeout:
            holder = _holder(folder)
            if holder != told or time.monotonic() - told_at > TELL_AGAIN:
                say(f"waiting for {holder} to finish: one samebits at a time on this host's devices")
                told, told_at = holder, time.monotonic()
            time.sleep(POLL)


def _holder(folder: Path) -> str:
    """Who holds the lock, by the notes of living processes; they are hints, written by anyone.

    A process that was killed leaves its note, and its number may be another's by now: so the time of its start counts too.
    """
    for note in sorted(folder.glob("holder-*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError, psutil.Error):
            # No link is followed, and a planted pipe does not block.
            fd = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                content = json.loads(os.read(fd, _NOTE_LIMIT))
            finally:
                os.close(fd)
            pid = int(content["pid"])
            if pid > 0 and abs(psutil.Process(pid).create_time() - float(content["started"])) < 1.0:
                return f"process {pid} ({clean(str(content['command']), 120)})"
    return "another samebits"


def _write_note(note: Path) -> None:
    """Say beside the lock who holds it. A note that cannot be written costs the waiting user a name, no more."""
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:1000]
    with suppress(OSError):
        note.unlink(missing_ok=True)  # of a dead process that had our number
    with suppress(OSError):
        fd = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            started = psutil.Process().create_time()
            json.dump({"pid": os.getpid(), "started": started, "command": command}, file)
