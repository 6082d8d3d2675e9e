"""Child processes, and what is POSIX about them: the parent's end (the child's is `harness.channel`).

A child runs in a session of its own. It gets requests as JSON lines on stdin and answers with JSON lines on a private
pipe; what it prints, on stdout or stderr, is drained, bounded and decoded leniently, so a chatty driver breaks nothing.
No word of a child is trusted. When the parent dies the child ends too. Signal handlers are set nowhere.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from harness.channel import EVENT_FD, PARENT_PID
from harness.text import clean

LINE_LIMIT = 1 << 20
"""Bytes in one line of a child at most."""

HEAD_LIMIT = 4 << 10
TAIL_LIMIT = 64 << 10
"""Bytes kept of what a child prints: the first, where the cause stands, and the last."""

GRACE = 2.0
"""Seconds between TERM and KILL."""

_SETTLE = 1.0  # seconds that a child which closed its pipe has to be gone
_MEMORY_INTERVAL = 0.1  # one small file of /proc is read
_TREE_INTERVAL = 2.0  # all processes of the host are listed

_TOKEN = "SAMEBITS_CHILD"  # stays in the environment, so a descendant that left the session is still found


class ChildFault(Exception):
    """Base of what `Child.send` and `Child.receive` raise."""


class Closed(ChildFault):
    """The child is gone, or closed its pipe; the message says how it ended."""


class Timeout(ChildFault):
    """The child did not answer, or did not read, in time. It still runs."""


class ProtocolError(ChildFault):
    """The child sent what is no JSON object of bounded length. It still runs, and cannot be understood any more."""


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` of this installation; `-P` keeps files of the current folder from shadowing it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with `changes` (None removes a variable), fit for `python`."""
    env = dict(os.environ)
    root = Path(__file__).resolve().parents[1]
    # Where a checkout lies, only the parent's sys.path may know. An installed package must not be put there: in front
    # of the standard library, site-packages would shadow it.
    if root.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [env.get("PYTHONPATH")])])
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def one_line(text: str, limit: int = 300) -> str:
    """The first line of `text` that is not blank, without control characters, cut to `limit` characters."""
    return clean(next((line for line in text.splitlines() if line.strip()), ""), limit)


class Child:
    """A running child process. Use it in `with`, which ends the whole tree, or call `close`.

    `memory_limit` in bytes is held against the resident memory of the child and its descendants. A child dies with the
    thread that started it, so start it in one that outlives it. Raises OSError where it cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, memory_limit: int | None = None) -> None:
        self._token = uuid.uuid4().hex
        self._limit = memory_limit
        self._over: int | None = None
        self._killed = False
        self._broken: str | None = None
        self._buffer = bytearray()
        self._output = _Bounded()
        self._kill_lock = threading.Lock()
        self._events, event_end = os.pipe()
        self._printed, print_end = os.pipe()
        self._stop, self._stopper = os.pipe()
        own = {EVENT_FD: str(event_end), PARENT_PID: str(os.getpid()), _TOKEN: self._token}
        try:
            self._popen = subprocess.Popen(
                argv,
                env={**env, **own},
                stdin=subprocess.PIPE,
                stdout=print_end,
                stderr=print_end,
                bufsize=0,
                pass_fds=[event_end],
                start_new_session=True,
            )
        except BaseException:
            self._release()
            raise
        finally:
            os.close(event_end)
            os.close(print_end)
        assert self._popen.stdin is not None
        self._stdin = self._popen.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._minder = threading.Thread(target=self._mind, name=f"minder of {self.pid}", daemon=True)
        self._minder.start()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the child's session and group."""
        return self._popen.pid

    def send(self, message: Mapping[str, Any], timeout: float = 10.0) -> None:
        """Write one request; raises `Closed`, or `Timeout` where the child does not read."""
        deadline = time.monotonic() + timeout
        data = memoryview(msgspec.json.encode(message) + b"\n")
        while data:
            try:
                data = data[os.write(self._stdin.fileno(), data) :]
            except BlockingIOError:
                if not _ready(self._stdin.fileno(), select.POLLOUT, deadline):
                    raise Timeout(f"the child read nothing for {timeout:g} s") from None
            except (BrokenPipeError, ValueError):  # ValueError: closed by us
                raise self._gone() from None

    def receive(self, timeout: float) -> dict[str, Any]:
        """The next event, within `timeout` seconds; raises `Closed`, `Timeout` or `ProtocolError`."""
        deadline = time.monotonic() + timeout
        while self._broken is None:
            end = self._buffer.find(b"\n", 0, LINE_LIMIT + 1)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return self._decode(line)
            if len(self._buffer) > LINE_LIMIT:
                self._broken = f"a line of more than {LINE_LIMIT} bytes"
                break
            if not _ready(self._events, select.POLLIN, deadline):
                raise Timeout(f"no answer for {timeout:g} s")
            chunk = os.read(self._events, 1 << 16)
            if not chunk:
                raise self._gone()
            self._buffer += chunk
        raise ProtocolError(self._broken)

    def wait(self, timeout: float) -> bool:
        """Whether the child ended by itself within `timeout` seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        return self._popen.returncode is not None

    def kill(self, grace: float = GRACE) -> None:
        """End the child and all its descendants: TERM, after `grace` seconds KILL. Any thread, any number of times."""
        with self._kill_lock:
            if grace > 0:
                _await_end(self._signal(signal.SIGTERM), grace)
            for _ in range(3):  # a descendant may have forked while it was being killed
                members = self._signal(signal.SIGKILL)
                if not members:
                    break
                _await_end(members, GRACE)
            self.wait(GRACE)

    def close(self, grace: float = 0.0) -> None:
        """End the tree (see `kill`) and release the pipes. Only the thread that receives may call it."""
        if self._stdin.closed:
            return
        self.kill(grace)
        self._minder.join(_SETTLE)
        os.write(self._stopper, b"x")  # a survivor may still hold the pipe open
        self._minder.join()
        self._stdin.close()
        self._release()

    def exit_word(self) -> str:
        """How the child ended, in words: `exit 3`, `killed by SIGSEGV`, `still running`."""
        code = self._popen.poll()
        if self._over is not None:
            return f"killed: {_gib(self._over)} of memory, over the limit of {_gib(self._limit or 0)}"
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        stray = code == -signal.SIGKILL and not self._killed
        return f"killed by {name}" + (" (not by samebits: was the host out of memory?)" if stray else "")

    def stderr_tail(self) -> str:
        """What the child printed: the first 4 KiB, the last 64 KiB, and how much was left out."""
        return self._output.text()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _decode(self, line: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            shown = one_line(line[:200].decode("utf-8", "replace"), 80)
            self._broken = f"not a JSON object: {shown!r} ({one_line(str(error))})"
            raise ProtocolError(self._broken) from None

    def _gone(self) -> Closed:
        ended = self.wait(_SETTLE)
        self._minder.join(0.2)  # what it printed last is the reason
        return Closed(self.exit_word() if ended else "closed its pipe and runs on")

    def _members(self) -> set[psutil.Process]:
        """The living processes of the tree, those included that were reparented, or left the session."""
        reaped = self._popen.poll() is not None
        found: set[psutil.Process] = set()
        with suppress(psutil.Error):
            if not reaped:
                root = psutil.Process(self.pid)
                found = {root, *root.children(recursive=True)}
        reused = reaped and psutil.pid_exists(self.pid)  # the number may name another session by now
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                same_session = not reused and os.getsid(process.pid) == self.pid
                if same_session or process.environ().get(_TOKEN) == self._token:
                    found.add(process)
        return {p for p in found if _alive(p)}

    def _signal(self, number: int) -> set[psutil.Process]:
        """Signal the whole tree and its group; returns whom."""
        members = self._members()
        self._killed = self._killed or bool(members)
        if self._popen.returncode is None:
            with suppress(OSError):
                os.killpg(self.pid, number)
        for process in members:
            with suppress(psutil.Error, OSError):
                process.send_signal(number)
        return members

    def _mind(self) -> None:
        """Drain what the child prints and hold its memory to the limit, in a thread, until the pipe ends."""
        poller = select.poll()
        poller.register(self._printed, select.POLLIN)
        poller.register(self._stop, select.POLLIN)
        draining, check, tree_check = True, 0.0, 0.0
        while draining or self._limit is not None:
            ready = {fd for fd, _ in poller.poll(None if self._limit is None else _MEMORY_INTERVAL * 1000)}
            if self._stop in ready:
                return
            if self._printed in ready:
                data = os.read(self._printed, 1 << 16)
                self._output.add(data)
                if not data:
                    poller.unregister(self._printed)
                    draining = False
            now = time.monotonic()
            ended = self._popen.returncode is not None
            if self._limit is not None and self._over is None and not ended and now >= check:
                check = now + _MEMORY_INTERVAL
                whole = now >= tree_check
                tree_check = now + _TREE_INTERVAL if whole else tree_check
                self._check_memory(whole)
            if ended and not draining:
                return

    def _check_memory(self, whole_tree: bool) -> None:
        assert self._limit is not None
        used = 0
        with suppress(psutil.Error):
            root = psutil.Process(self.pid)
            for process in [root, *(root.children(recursive=True) if whole_tree else [])]:
                with suppress(psutil.Error):
                    used += process.memory_info().rss
        if used > self._limit and self._popen.returncode is None:
            self._over = used
            self._signal(signal.SIGKILL)

    def _release(self) -> None:
        for fd in (self._events, self._printed, self._stop, self._stopper):
            os.close(fd)


class _Bounded:
    """The beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        with self._lock:
            room = HEAD_LIMIT - len(self._head)
            self._head += data[:room]
            self._tail += data[room:]
            if (excess := len(self._tail) - TAIL_LIMIT) > 0:
                del self._tail[:excess]
                self._dropped += excess

    def text(self) -> str:
        with self._lock:
            middle = f"\n[{self._dropped} bytes left out]\n".encode() if self._dropped else b""
            text = (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text.replace("\r\n", "\n"))


def _ready(fd: int, what: int, deadline: float) -> bool:
    poller = select.poll()
    poller.register(fd, what)
    return bool(poller.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _await_end(processes: Iterable[psutil.Process], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    pause = 0.002
    while any(_alive(p) for p in processes) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"
