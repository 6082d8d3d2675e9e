"""The worker's side of a model: named tensors that stay on the device, and lists of kernels on them.

One request is one submission: what it gives back, allocates and uploads comes first, then its steps are queued in order
without waiting, then what it fetches is read. A step names every argument but the first, which holds its run-time arguments,
and the last, its program's receipt.

    -> {"op": "submit", "nonce": N, "free": [NAME, ...], "allocate": {NAME: bytes},
        "upload": [{"name", "file", "start", "size"}, ...],
        "steps": [{"label", "kernel", "variant", "schedule", "arguments": [[NAME of a tensor, words], ...],
                   "passes": [[entry, groups, workgroup, params], ...]}, ...],
        "fetch": [{"name", "size", "file"}, ...], "receipts": whether to read all receipts}
    <- phase · started(run: LABEL) as each step is queued · submitted(receipts, seconds, sanitizer) · fault(run, ...)

What is not uploaded starts filled with a sentinel and ends in guard words, which a fetch brings too. A receipt is zero when
its program is first used and each time it was read.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import kernels
from harness.backends import Backend, Launch
from harness.channel import Channel
from harness.errors import DeviceFault, DeviceLost
from harness.kernels import GUARD_WORDS, RECEIPT_WORDS, Pass
from harness.verdicts import GUARD, SENTINELS

GUARD_BYTES = GUARD.to_bytes(4, "little") * GUARD_WORDS


class Resident:
    """Named tensors of one open device. `program`: kernel, schedule, label, nonce -> what the device compiled."""

    def __init__(self, backend: Backend, channel: Channel, program: Callable[..., Any]) -> None:
        self.backend, self.channel, self.program = backend, channel, program
        self.tensors: dict[str, tuple[Any, int]] = {}
        self.receipts: dict[tuple[str, str, str], Any] = {}

    def submit(self, request: dict[str, Any]) -> None:
        """One submission; a fault ends it, and with a lost device the worker."""
        self.label = "tensors"
        try:
            self._submit(request)
        except DeviceFault as fault:
            event = {"event": "fault", "run": self.label, "verdict": fault.verdict, "detail": str(fault)[:4000]}
            self.channel.send(event)
            if isinstance(fault, DeviceLost):
                self.channel.leave()
        except OSError as e:  # not the driver's doing: the disk is full, the model file is gone
            self.channel.send({"event": "host-fault", "detail": f"{e.strerror}: {e.filename}"})
            self.channel.leave()

    def _submit(self, request: dict[str, Any]) -> None:
        self._phase("run")
        begin = time.perf_counter()
        for name in request["free"]:
            self.backend.free(self.tensors.pop(name)[0])
        sent = {upload["name"] for upload in request["upload"]}
        for name, size in request["allocate"].items():
            memory = self.backend.allocate(size + len(GUARD_BYTES))
            self.tensors[name] = memory, size
            if name not in sent:
                self.backend.write(memory, SENTINELS[0].to_bytes(4, "little") * (size // 4) + GUARD_BYTES)
        for upload in request["upload"]:
            with Path(upload["file"]).open("rb") as file:
                file.seek(upload["start"])
                content = file.read(upload["size"])
            self.backend.write(self.tensors[upload["name"]][0], content + bytes(-len(content) % 4))
        uploaded = time.perf_counter()
        launches = [(step["label"], self._launch(step, request["nonce"])) for step in request["steps"]]
        compiled = time.perf_counter()
        self._phase("run")
        self.backend.submit(self._told(launches))
        for fetch in request["fetch"]:
            memory, size = self.tensors[fetch["name"]]
            content = self.backend.read(memory, 0, fetch["size"])
            Path(fetch["file"]).write_bytes(content + self.backend.read(memory, size, len(GUARD_BYTES)))
        receipts = self._receipts() if request["receipts"] else []
        done = time.perf_counter()
        seconds = {"compile": compiled - uploaded, "upload": uploaded - begin, "run": done - compiled}
        reports: list[str] = getattr(self.backend, "sanitizer_reports", list)()
        event = {"event": "submitted", "receipts": receipts, "seconds": seconds}
        self.channel.send(event | {"sanitizer": [str(r)[:500] for r in reports[:8]]})

    def _told(self, launches: Iterable[tuple[str, Launch]]) -> Iterator[Launch]:
        """The launches; before each is queued the supervisor learns of it, for a driver may die of it."""
        for self.label, launch in launches:
            self.channel.send({"event": "started", "run": self.label})
            yield launch

    def _launch(self, step: dict[str, Any], nonce: int) -> Launch:
        self.label = step["label"]
        kernel = kernels.find(step["kernel"], step["variant"])
        program = self.program(kernel, step["schedule"], self.label, nonce)
        place = (kernel.name, kernel.variant, step["schedule"])
        if place not in self.receipts:
            self.receipts[place] = self.backend.allocate(4 * RECEIPT_WORDS)
            self.backend.write(self.receipts[place], bytes(4 * RECEIPT_WORDS))
        memory = (*(self.tensors[name][0] for name, _ in step["arguments"]), self.receipts[place])
        words = (*(count for _, count in step["arguments"]), RECEIPT_WORDS)
        passes = tuple(Pass(entry, tuple(g), tuple(w), tuple(params)) for entry, g, w, params in step["passes"])
        return Launch(program, memory, words, passes)

    def _receipts(self) -> list[list[Any]]:
        """Kernel, variant, schedule and receipt words of every program, which then start anew."""
        found = []
        for place, memory in self.receipts.items():
            words = self.backend.read(memory, 0, 4 * RECEIPT_WORDS)
            self.backend.write(memory, bytes(4 * RECEIPT_WORDS))
            found.append([*place, [words[4 * i : 4 * i + 4].hex() for i in range(RECEIPT_WORDS)]])
        return found

    def _phase(self, name: str) -> None:
        self.channel.send({"event": "phase", "phase": name, "run": self.label})
