"""One device held open, that computes kernels on arrays: the forward passes of profiles on devices are made of it.

As in a run, the device's worker is a child that sees one driver, each kernel runs twice on different sentinels behind guard
words, and the compiled nonce must come back. What differs: nothing is expected yet, so an output is only held to itself.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from harness import backends, devices, kernels, schedules
from harness.cases import Case, RunKey
from harness.devices import Device
from harness.digest import numpy_type
from harness.errors import DeviceFailed, Incomplete
from harness.evidence import Dumped, Fault, Submitted, read_dumps, read_fetched, understood
from harness.kernels import GUARD_WORDS
from harness.lane import Budgets
from harness.locks import device_lock
from harness.process import Child, ChildFault, ProtocolError, Timeout, environment, one_line, python
from harness.terminal import say
from harness.text import clean
from harness.verdicts import GUARD, judge

Array = npt.NDArray[Any]


RESIDENT_BYTES = 1 << 30
"""What a session leaves on its device at most, unless it is told otherwise."""


@dataclass(frozen=True)
class Constant:
    """Inputs that are the same whenever a kernel is asked for by this name and in this shape: they may stay on the device."""

    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """`size` bytes of a file, from `start` on."""

    file: Path
    start: int
    size: int


@dataclass(frozen=True)
class Step:
    """One kernel on named tensors: all arguments but params and receipt, in order, with the words that it has of each.

    `label`: what it makes, which a fault is told by.
    """

    label: str
    entry: kernels.Kernel
    schedule: str
    arguments: tuple[tuple[str, int], ...]
    passes: tuple[kernels.Pass, ...]

    def plain(self) -> dict[str, Any]:
        """For the worker."""
        return {
            "label": self.label,
            "kernel": self.entry.name,
            "variant": self.entry.variant,
            "schedule": self.schedule,
            "arguments": self.arguments,
            "passes": [[p.entry, p.groups, p.workgroup, p.params] for p in self.passes],
        }


@dataclass(frozen=True)
class Fetch:
    """`size` bytes of the tensor `name`, to be known by `label`."""

    label: str
    name: str
    size: int


@dataclass
class Submission:
    """What the device is to do in one go: see `harness.resident`. Sizes in bytes, multiples of 4.

    Uploads are bytes of a file, or what makes an array.
    """

    free: list[str] = field(default_factory=list)
    allocate: dict[str, int] = field(default_factory=dict)
    uploads: dict[str, Span | Callable[[], Array]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    receipts: bool = False


class _Judged(ProtocolError):
    """What a worker told, or left behind, and the verdict on it: see `DeviceFailed`."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict


class Session:
    """An open device. Use it in `with`: it holds the host's device lock, unless its user does (`locked`), and ends the worker.

    `schedule` is taken by every kernel that has it, the others have `forward` alone; `variant` likewise, else the base form.
    Constant inputs of the kernels that come first stay on the device, up to `resident` bytes of buffers; others are sent anew.
    """

    def __init__(
        self,
        device: Device,
        schedule: str = "forward",
        budgets: Budgets | None = None,
        variant: str = "base",
        resident: int = RESIDENT_BYTES,
        locked: bool = False,
    ) -> None:
        self.device, self.schedule, self.budgets, self.variant = device, schedule, budgets or Budgets(), variant
        self.resident, self.locked = resident, locked
        self._kept: dict[str, tuple[Case, int]] = {}
        self._nonce = secrets.randbelow(2**32 - 1) + 1
        self._phase = "probe"
        self._label = ""
        self._queued: dict[tuple[str, str, str], set[int]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not self.locked:
                stack.enter_context(device_lock(say))
            self._folder = Path(tempfile.mkdtemp(prefix="samebits-device-"))
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._tensors = self._folder / "tensors"
            self._tensors.mkdir()
            self._child = stack.enter_context(self._start())
            try:
                self._await_opened()
            except ChildFault as e:
                raise self._failed("opening it", e) from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def compute(
        self,
        kernel: str,
        dims: Mapping[str, int],
        options: Mapping[str, str] | None = None,
        constant: Constant | None = None,
        /,
        **inputs: Array,
    ) -> Array:
        """The output of a kernel; raises DeviceFailed where the device gives none, or no sure one.

        The dimensions stand in the order of the kernel's shape; each input is in its tensor's element type. `options`: what
        else an id of the kernel may hold.
        """
        entry = self.entry(kernel)
        case = Case(kernel, tuple(dims.items()), entry.distributions[0], 0, tuple((options or {}).items()))
        entry.check(case)
        try:
            return self._compute(entry, case, self._tensors, inputs, constant)
        except ChildFault as e:
            raise self._failed(kernel, e) from None
        except OSError as e:
            raise Incomplete(f"{e.strerror or e}: {self._folder.parent}; TMPDIR names another folder") from None
        finally:
            for file in self._tensors.iterdir():
                file.unlink(missing_ok=True)

    def submit(self, submission: Submission) -> dict[str, bytes]:
        """What `submission` fetches, by label; raises DeviceFailed, naming the step that was queued last.

        Guard words behind what is fetched must be whole; where receipts
        are asked for, every entry point that was queued since the last time must have left the compiled nonce.
        """
        self._label = "tensors"
        for step in submission.steps:
            place = (step.entry.name, step.entry.variant, step.schedule)
            self._queued.setdefault(place, set()).update(step.entry.entries.index(p.entry) for p in step.passes)
        try:
            return self._submit(submission)
        except ChildFault as e:
            raise self._failed(self._label, e) from None
        except OSError as e:
            raise Incomplete(f"{e.strerror or e}: {self._folder.parent}; TMPDIR names another folder") from None
        finally:
            for file in self._tensors.iterdir():
                file.unlink(missing_ok=True)

    def _submit(self, submission: Submission) -> dict[str, bytes]:
        uploads = []
        for number, (name, content) in enumerate(submission.uploads.items()):
            if not isinstance(content, Span):
                path = self._tensors / f"upload{number}.bin"
                raw = np.ascontiguousarray(content()).tobytes()
                path.write_bytes(raw)
                content = Span(path, 0, len(raw))
            uploads.append({"name": name, "file": str(content.file), "start": content.start, "size": content.size})
        fetched = {fetch.label: self._tensors / f"fetch{n}.bin" for n, fetch in enumerate(submission.fetches)}
        self._child.send(
            {
                "op": "submit",
                "nonce": self._nonce,
                "free": submission.free,
                "allocate": submission.allocate,
                "upload": uploads,
                "steps": [step.plain() for step in submission.steps],
                "fetch": [{"name": f.name, "size": f.size, "file": str(fetched[f.label])} for f in submission.fetches],
                "receipts": submission.receipts,
            },
            timeout=self.budgets.run,
        )
        self._phase = "run"
        while (event := self._receive()).get("event") == "started":
            self._label = clean(str(event.get("run")), 80)
        if event.get("event") != "submitted":
            raise ProtocolError(f"the worker spoke nonsense: {one_line(str(event))}")
        done = understood(event, Submitted)
        self._label = submission.steps[0].label if submission.steps else "tensors"
        if done.sanitizer:
            raise _Judged("sanitizer", f"sanitizer: {one_line(done.sanitizer[0])}")
        if submission.receipts:
            self._check_receipts(done.receipts)
        found: dict[str, bytes] = {}
        for fetch in submission.fetches:
            self._label = fetch.label
            found[fetch.label], guard = read_fetched(fetched[fetch.label], fetch.size)
            if guard != GUARD.to_bytes(4, "little") * GUARD_WORDS:
                raise _Judged("mismatch", "mismatch: wrote past the end")
        return found

    def _check_receipts(self, receipts: Sequence[tuple[str, str, str, list[str]]]) -> None:
        wanted = self._nonce.to_bytes(4, "little").hex()
        there = {(kernel, variant, schedule): words for kernel, variant, schedule, words in receipts}
        for place, entries in self._queued.items():
            for entry in entries:
                words = there.get(place, [])
                if entry >= len(words) or words[entry] != wanted:
                    self._label = place[0]
                    found = words[entry] if entry < len(words) else "nothing"
                    raise _Judged("void", f"the compiled nonce {wanted} did not come back, but {one_line(found)[:20]}")
        self._queued.clear()

    def _compute(
        self,
        entry: kernels.Kernel,
        case: Case,
        folder: Path,
        inputs: Mapping[str, Array],
        constant: Constant | None,
    ) -> Array:
        schedule = self.order(entry)
        keep, there = self._place(entry, case, schedule, constant)
        paths = {name: folder / f"{name}.bin" for name in ("order", *inputs) if name not in there}
        if "order" in paths:
            paths["order"].write_bytes(schedules.order_bytes(entry.terms(case), case.seed))
        for tensor in entry.inputs:
            if tensor.name in paths:
                kind = numpy_type(tensor.element)
                paths[tensor.name].write_bytes(np.ascontiguousarray(inputs[tensor.name], kind).tobytes())
        self._child.send(
            {
                "op": "case",
                "case": case.id,
                "runs": [{"schedule": schedule, "variant": entry.variant}],
                "inputs": {name: str(path) for name, path in paths.items()},
                "dump": str(folder),
                "known_bad": False,
                "nonce": self._nonce,
                "keep": keep,
            }
        )
        dumped = self._await_dump(str(RunKey(case.id, schedule, entry.variant)), case.kernel)
        if fault := dumped.nonce_fault(self._nonce):
            raise self._failed(case.kernel, _Judged("void", fault))
        dims = kernels.dimensions(entry.output, case)
        size = kernels.tensor_bytes(entry.output, case)
        dumps = read_dumps(folder, dumped.files, size)
        verdict = judge(dumps, dumps[0][:size], entry.output.element, dims, [one_line(s) for s in dumped.sanitizer])
        if verdict.verdict != "match":
            raise self._failed(case.kernel, _Judged(verdict.verdict, f"{verdict.verdict}: {verdict.detail}"))
        return np.frombuffer(dumps[0], numpy_type(entry.output.element), int(np.prod(dims))).reshape(dims)

    def _place(
        self, entry: kernels.Kernel, case: Case, schedule: str, constant: Constant | None
    ) -> tuple[str | None, tuple[str, ...]]:
        """Under what name the buffers of a case stay on the device, if they do, and which inputs are there already."""
        if constant is None:
            return None, ()
        kept, _ = self._kept.get(constant.name, (None, 0))
        if kept == case:
            return constant.name, ("order", *constant.inputs)
        needed = sum(4 * buffer.words for buffer in entry.plan(case, schedule).buffers)
        others = sum(size for name, (_, size) in self._kept.items() if name != constant.name)
        if others + needed > self.resident:
            return None, ()
        self._kept[constant.name] = (case, needed)
        return constant.name, ()

    def order(self, entry: kernels.Kernel) -> str:
        """The schedule that this session takes for a kernel."""
        return self.schedule if self.schedule in entry.schedules else "forward"

    def entry(self, kernel: str) -> kernels.Kernel:
        """The form of a kernel that this session takes."""
        there = kernels.variants(kernel, backends.load(self.device.api).LANGUAGE)
        return next((entry for entry in there if entry.variant == self.variant), kernels.base(kernel))

    def _start(self) -> Child:
        changes = {**self.device.environment, **backends.load(self.device.api).cache_environment(self._folder)}
        return Child(python("harness.worker", self.device.api, str(self.device.index)), environment(changes))

    def _receive(self) -> dict[str, Any]:
        event = self._child.receive(self.budgets.of(self._phase))
        if event.get("event") == "phase" and event.get("phase") in ("probe", "compile", "run"):
            self._phase = str(event["phase"])
            return self._receive()
        if event.get("event") == "host-fault":
            raise Incomplete(one_line(str(event.get("detail"))))
        if event.get("event") == "fault":
            fault = understood(event, Fault)
            self._label = clean(str(event.get("run")), 80)
            raise _Judged(fault.verdict, f"{fault.verdict}: {fault.detail}")
        return event

    def _await_opened(self) -> None:
        report = understood(self._receive().get("report"), backends.Report)
        if not devices.is_of(self.device, report):
            raise ProtocolError(f"the driver opened another device than it listed there: {report.name}")

    def _await_dump(self, run: str, kernel: str) -> Dumped:
        self._phase, dumped = "run", None
        while (event := self._receive()).get("event") != "case-done":
            if event.get("run") != run or event.get("event") not in ("started", "dumped"):
                raise ProtocolError(f"the worker spoke nonsense: {one_line(str(event))}")
            if event["event"] == "dumped":
                dumped = understood(event, Dumped)
        if dumped is None:
            raise ProtocolError("the worker left it out")
        return dumped

    def _failed(self, what: str, why: ChildFault) -> DeviceFailed:
        verdict = "timeout" if isinstance(why, Timeout) else getattr(why, "verdict", "crash")
        return DeviceFailed(f"{self.device.id}: {what}: {one_line(str(why))}", verdict, self._phase)
