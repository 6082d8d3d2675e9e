"""A model whose tensors stay on a device: weights once, activations and KV caches always, results only as they are asked for.

A `Tape` gathers steps, each one kernel on named device tensors, and hands them to a `Session` as one submission. It keeps
the books of what lies where: an activation is allocated when a step first makes it and grows when it must, a constant is
sent when a step first reads it, `order` and `scratch` of reductions are its own affair.

What a pass checks: the compiled nonce of each entry point once a pass, the guard words behind each tensor that comes back.
Unlike a case it runs once: a tensor that comes back starts as a sentinel only the first time, so that what no kernel wrote,
or what differs from run to run, shows in digests alone.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from harness import kernels, schedules
from harness.cases import Case
from harness.device_session import Fetch, Span, Step, Submission
from harness.digest import numpy_type
from harness.errors import InputRefused
from harness.families.layers import append_passes
from harness.plans import GUARD_WORDS, Kernel, Pass

Array = npt.NDArray[Any]

BINDING_BYTES = 1 << 27
"""What every API lets a kernel see of a buffer."""

KINDS = ("weights", "cache", "activations", "scratch")
"""Of device memory: released bytes, gains, biases and tables; keys and values; stages; partial sums and orders of sums."""


class Device(Protocol):
    """What a tape needs of a `Session`."""

    def entry(self, kernel: str) -> Kernel:
        """The form of a kernel that is taken."""

    def order(self, entry: Kernel) -> str:
        """The schedule that is taken for it."""

    def submit(self, submission: Submission) -> dict[str, bytes]:
        """Do it; what it fetches by label."""


class Books:
    """In the place of a device: nothing is computed, and what would lie there is counted."""

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule

    def entry(self, kernel: str) -> Kernel:
        """See `Device`."""
        return kernels.base(kernel)

    def order(self, entry: Kernel) -> str:
        """See `Device`."""
        return self.schedule if self.schedule in entry.schedules else "forward"

    def submit(self, submission: Submission) -> dict[str, bytes]:
        """See `Device`."""
        return {fetch.label: bytes(fetch.size) for fetch in submission.fetches}


@dataclass(frozen=True)
class Constant:
    """Content of a tensor that kernels only read: bytes of a file, or an array that is made when it is sent. `size` in bytes."""

    size: int
    content: Span | Callable[[], Array]


def _order(terms: int) -> Array:
    return np.array(schedules.tile_order(terms, 0), "<u4")


@dataclass
class Tape:
    """Steps of the next submission, and what lies on the device after it. `held`: tensor -> bytes and kind."""

    device: Device
    held: dict[str, tuple[int, str]] = field(default_factory=dict)
    _next: Submission = field(default_factory=Submission)
    _wanted: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def hold(self, name: str, size: int, kind: str) -> None:
        """See that `name` has `size` bytes; what it held is lost where it grows."""
        size = -(-size // 4) * 4
        there, _ = self.held.get(name, (0, kind))
        if there >= size:
            return
        if size + 4 * GUARD_WORDS > BINDING_BYTES:
            raise InputRefused(
                f"too large for a device: {name} takes {size} bytes, a kernel sees {BINDING_BYTES} at most"
            )
        if name in self.held and name not in self._next.allocate:
            self._next.free.append(name)
        self._next.allocate[name] = size
        self.held[name] = (size, kind)

    def drop(self, name: str) -> None:
        """Give a tensor back when the next submission begins."""
        del self.held[name]
        self._next.free.append(name)

    def clear(self) -> None:
        """Give back all tensors but the weights."""
        for name in [name for name, (_, kind) in self.held.items() if kind != "weights"]:
            self.drop(name)

    def constant(self, name: str, constant: Constant, kind: str = "weights", *, stays: bool = True) -> str:
        """See that `name` holds a constant; one that does not stay is sent each time."""
        new = name not in self.held
        self.hold(name, constant.size, kind)
        if new or not stays:
            self._next.uploads[name] = constant.content
        return name

    def step(
        self,
        label: str,
        kernel: str,
        dims: Mapping[str, int],
        arguments: Mapping[str, str],
        options: Mapping[str, str] | None = None,
        passes: Callable[[Case, str], tuple[Pass, ...]] | None = None,
    ) -> None:
        """One kernel on named tensors, its output's name in `arguments` too. `passes`: others than its case has."""
        entry = self.device.entry(kernel)
        case = Case(kernel, tuple(dims.items()), entry.distributions[0], 0, tuple((options or {}).items()))
        entry.check(case)
        schedule = self.device.order(entry)
        plan = entry.plan(case, schedule)
        bound = []
        for buffer in plan.buffers:
            if buffer.role in ("params", "receipt"):
                continue
            name, size = arguments.get(buffer.name, buffer.name), 4 * buffer.words
            if buffer.name == "order":
                name = f"order.{buffer.words}"
                self.constant(name, Constant(size, partial(_order, entry.terms(case))), "scratch")
            elif buffer.role != "input":
                self.hold(name, size, "scratch" if buffer.role == "scratch" else "activations")
            bound.append((name, min(buffer.words, self.held[name][0] // 4)))
        chosen = passes(case, schedule) if passes else plan.passes
        self._next.steps.append(Step(label, entry, schedule, tuple(bound), chosen))

    def copy(self, label: str, rows: str, to: str, w: int, span: tuple[int, int, int]) -> None:
        """Rows of `w` elements of 64 bits from one tensor to another: span = first row there, first row here, how many."""
        source, target, count = span
        entry = self.device.entry("kv_append")
        words = ((rows, 2 * w * (source + count)), (to, 2 * w * (target + count)))
        step = Step(label, entry, self.device.order(entry), words, append_passes(count, w, source, target))
        self._next.steps.append(step)

    def fetch(self, label: str, name: str, dims: tuple[int, ...], element: str = "i64") -> None:
        """Have the beginning of a tensor brought back by the next submission."""
        size = math.prod(dims) * np.dtype(numpy_type(element)).itemsize
        self._next.fetches.append(Fetch(label, name, -(-size // 4) * 4))
        self._wanted[label] = (dims, element)

    def submit(self, *, receipts: bool = False) -> dict[str, Array]:
        """Hand it all over; what was to be fetched, by label."""
        self._next.receipts = receipts
        submission, wanted = self._next, self._wanted
        self._next, self._wanted = Submission(), {}
        found = self.device.submit(submission)
        return {
            label: np.frombuffer(found[label], numpy_type(element), math.prod(dims)).reshape(dims)
            for label, (dims, element) in wanted.items()
        }

    def sizes(self) -> dict[str, int]:
        """Bytes on the device by kind."""
        found = dict.fromkeys(KINDS, 0)
        for size, kind in self.held.values():
            found[kind] += size
        return found
