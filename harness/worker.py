"""The child: opens one device, runs cases, dumps what the device wrote. It never learns what is right.

Requests come as JSON lines on standard input, events leave on a private descriptor, so that a driver that prints
cannot break the protocol. The worker installs no signal handlers: a hung or crashed driver is the supervisor's affair.
A case with `keep` leaves its buffers on the device under that name; the next one of the same name, case and runs may leave
out inputs, which then hold what they held.

    -> {"op": "case", "case": ID, "runs": [{"schedule": S, "variant": V}, ...], "inputs": {name: path}, "dump": folder,
        "known_bad": false, "nonce": 123, "keep": NAME or none}
    -> {"op": "submit", ...}                    a list of kernels on tensors that stay on the device: `harness.resident`
    -> {"op": "artefacts", "kernel": K, "schedule": S, "variant": V, "folder": folder}     what a program was compiled to
    -> {"op": "close"}
    <- opened(report) · phase(phase, run) · started(run) · dumped(run, files, receipts, seconds, sanitizer)
       · compiled(run, seconds), of a compile-only device instead
       · submitted(receipts, seconds, sanitizer)
       · fault(run, verdict, ...) · case-done · artefacts(files) · closed · host-fault(detail): no driver's doing
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import backends, kernels, schedules
from harness.backends import Backend
from harness.cases import Case, RunKey, parse_case
from harness.channel import Channel
from harness.errors import DeviceFault, DeviceLost, LaunchError, Unsupported
from harness.kernels import GUARD_WORDS, Buffer, Kernel, Language
from harness.resident import Resident
from harness.verdicts import GUARD, SENTINELS

GUARD_BYTES = GUARD.to_bytes(4, "little") * GUARD_WORDS


class Worker:
    """One open device and its compiled programs."""

    def __init__(self, channel: Channel, api: str, index: int) -> None:
        self.channel = channel
        self.phase("probe")
        module = backends.load(api)
        self.language: Language = module.LANGUAGE
        self.backend: Backend = module.open_device(index)
        self.programs: dict[tuple[str, str, str, bool], Any] = {}
        self.resident = Resident(self.backend, channel, self.program)
        self.kept: dict[str, tuple[str, dict[tuple[str, bool], Any]]] = {}
        channel.send({"event": "opened", "report": self.backend.report})

    def phase(self, name: str, run: str | None = None) -> None:
        """Tell the supervisor which budget runs from now on."""
        self.channel.send({"event": "phase", "phase": name, "run": run})

    def case(self, request: dict[str, Any]) -> None:
        """Run every run key of one case; a fault ends its run key only, a lost device ends the worker."""
        case = parse_case(request["case"])
        data = {name: Path(path).read_bytes() for name, path in request["inputs"].items()}
        bound = self._bound(case.id, request.get("keep"))
        for run in request["runs"]:
            key = str(RunKey(case.id, run["schedule"], run["variant"]))
            kernel = kernels.find(case.kernel, run["variant"])
            self.channel.send({"event": "started", "run": key})
            try:
                self._run(case, kernel, run["schedule"], key, request, data, bound)
            except DeviceFault as fault:
                self._fault(key, fault)
                if isinstance(fault, DeviceLost):
                    self.channel.leave()
            except MemoryError:
                self._fault(key, LaunchError("the worker itself is out of memory"))
        self.channel.send({"event": "case-done"})

    def _bound(self, case: str, keep: str | None) -> dict[tuple[str, bool], Any]:
        """Buffers of an earlier case of that name and id, or none yet."""
        if keep is None:
            return {}
        if self.kept.get(keep, ("",))[0] != case:
            self.kept[keep] = (case, {})
        return self.kept[keep][1]

    def artefacts(self, request: dict[str, Any]) -> None:
        """Write what the backend can show of a program that failed."""
        program = self.programs.get((request["kernel"], request["variant"], request["schedule"], False))
        files = {} if program is None else self.backend.artefacts(program)
        with suppress(OSError):  # the records' folder may be full; what was judged stands
            for name, content in files.items():
                (Path(request["folder"]) / name).write_bytes(content)
        self.channel.send({"event": "artefacts", "files": list(files)})

    def _fault(self, key: str, fault: DeviceFault) -> None:
        event = {"event": "fault", "run": key, "verdict": fault.verdict, "detail": str(fault)[:4000]}
        if isinstance(fault, Unsupported):
            event |= {"feature": fault.feature, "needed": fault.needed, "there": fault.there}
        self.channel.send(event)

    def _run(
        self,
        case: Case,
        kernel: Kernel,
        schedule: str,
        key: str,
        request: dict[str, Any],
        data: dict[str, bytes],
        bound: dict[tuple[str, bool], Any],
    ) -> None:
        begin = time.perf_counter()
        program = self.program(kernel, schedule, key, request["nonce"], request["known_bad"])
        compiled = time.perf_counter()
        if self.backend.report.kind == "compile-only":
            self.channel.send({"event": "compiled", "run": key, "seconds": {"compile": compiled - begin}})
            return
        self.phase("run", key)
        plan = kernel.plan(case, schedule)
        # Only split_k needs a large scratch buffer: two sets of buffers serve all schedules of a case.
        place = (kernel.variant, schedule == "split_k")
        changed: dict[str, bytes] = {}
        if place not in bound:
            bound[place] = self.backend.bind(plan.buffers, words_of(plan.buffers, data))
        elif request.get("keep"):
            changed = words_of(plan.buffers, data)
        uploaded = time.perf_counter()
        files, receipts = [], []
        for number, sentinel in enumerate(SENTINELS):
            fill = fill_of(plan.buffers, sentinel) | changed
            out = self.backend.run(program, bound[place], plan.passes, fill)
            path = Path(request["dump"]) / f"{schedule}-{kernel.variant}-{number}.bin"
            try:
                path.write_bytes(out[kernel.output.name])
            except OSError as e:
                self.channel.send({"event": "host-fault", "detail": f"{e.strerror}: {path.parent}"})
                self.channel.leave()
            files.append(str(path))
            receipts.append([out["receipt"][4 * i : 4 * i + 4].hex() for i in plan.receipts])
        done = time.perf_counter()
        reports: list[str] = getattr(self.backend, "sanitizer_reports", list)()
        seconds = {"compile": compiled - begin, "upload": uploaded - compiled, "run": done - uploaded}
        event = {"event": "dumped", "run": key, "files": files, "receipts": receipts, "seconds": seconds}
        self.channel.send(event | {"sanitizer": [str(r)[:500] for r in reports[:8]]})

    def program(self, kernel: Kernel, schedule: str, key: str, nonce: int, known_bad: bool = False) -> Any:
        """The kernel as the device has it, compiled when it is first asked for; raises Unsupported and CompileError."""
        for feature in kernel.needs.get(self.language, ()):
            if feature not in self.backend.report.features:
                raise Unsupported(feature)
        place = (kernel.name, kernel.variant, schedule, known_bad)
        if place not in self.programs:
            self.phase("compile", key)
            constants = constants_of(schedule, nonce, known_bad)
            text = kernels.source(kernel, self.language)
            self.programs[place] = self.backend.compile(kernel, text, constants)
        return self.programs[place]


def constants_of(schedule: str, nonce: int, known_bad: bool) -> dict[str, int]:
    """The compile-time constants that every kernel takes."""
    return {"SCHEDULE": schedules.NAMES.index(schedule), "KNOWN_BAD": int(known_bad), "NONCE": nonce}


def words_of(buffers: Sequence[Buffer], data: dict[str, bytes]) -> dict[str, bytes]:
    """The bytes to upload, padded to whole words."""
    sizes = {b.name: 4 * b.words for b in buffers}
    return {name: raw.ljust(sizes[name], b"\0") for name, raw in data.items() if name in sizes}


def fill_of(buffers: Sequence[Buffer], sentinel: int) -> dict[str, bytes]:
    """What buffers to be filled hold before a run: sentinels, then the guard; the receipt starts as zeros."""
    word = sentinel.to_bytes(4, "little")
    return {b.name: (bytes(4) if b.role == "receipt" else word) * b.words + GUARD_BYTES for b in buffers if b.filled}


def main() -> None:
    """`python -m harness.worker API INDEX`, started by the supervisor only."""
    channel = Channel()
    try:
        worker = Worker(channel, sys.argv[1], int(sys.argv[2]))
    except DeviceFault as fault:
        channel.send({"event": "fault", "verdict": fault.verdict, "detail": str(fault)[:4000]})
        channel.leave()
    for request in channel.requests():
        if request["op"] == "close":
            break
        if request["op"] == "artefacts":
            worker.artefacts(request)
        elif request["op"] == "submit":
            worker.resident.submit(request)
        else:
            worker.case(request)
    worker.phase("shutdown")
    worker.backend.close()
    channel.send({"event": "closed"})


if __name__ == "__main__":
    main()
