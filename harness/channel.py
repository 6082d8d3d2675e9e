"""The child's end of the pipe to its parent (`harness.process.Child`): events out, requests in, and a death in time."""

import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgspec

EVENT_FD = "SAMEBITS_EVENT_FD"
PARENT_PID = "SAMEBITS_PARENT_PID"
"""Variables by which the parent tells the number of the private pipe, and its own."""

LAST_SECONDS = 1.0
"""What is left to a child that works on a request when its parent closes stdin."""


class Channel:
    """The child's end: `send` events, iterate over `requests`. Make it first of all, before a driver is loaded.

    Started by hand, without a parent's pipe, events go to standard output.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would wait for a hung driver to return
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = threading.Event()
        fd = os.environ.pop(EVENT_FD, None)
        self._supervised = fd is not None
        if fd is None:
            self._fd = os.dup(1)
            os.dup2(2, 1)
        else:
            self._fd = int(fd)
            os.set_inheritable(self._fd, False)  # a compiler that the driver starts must not hold the pipe open
            die_with_parent(int(os.environ.pop(PARENT_PID)))
        threading.Thread(target=self._listen, name="listener", daemon=True).start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Write one event as a line; ends the process where nobody listens any more."""
        data = memoryview(msgspec.json.encode(event) + b"\n")
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except BrokenPipeError:
                os._exit(1)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Requests as they come, until the parent closes stdin."""
        while True:
            self._idle.set()
            line = self._requests.get()
            if line is None:
                return
            self._idle.clear()
            yield msgspec.json.decode(line, type=dict[str, Any])

    def leave(self) -> NoReturn:
        """End at once and well, without the driver's own clean-up, which may hang or crash."""
        sys.stderr.flush()
        os._exit(0)

    def _listen(self) -> None:
        # Raw reads: a buffered stdin that a daemon thread holds makes the interpreter abort when it ends.
        rest = b""
        while chunk := os.read(0, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._requests.put(line)
        self._requests.put(None)
        # The parent is gone, or has given up. Where a hung driver keeps the interpreter, the kernel ends us instead.
        if self._supervised and not self._idle.wait(LAST_SECONDS):
            os._exit(1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends (Linux; elsewhere the end of stdin must do)."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
