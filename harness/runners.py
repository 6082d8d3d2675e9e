"""What computes a profile's forward pass: the seam between `samebits forward` and reference, second and devices."""

import json
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cpu_ref.errors import Refused
from harness import devices, memory, passes
from harness.device_session import RESIDENT_BYTES, Session
from harness.devices import Device
from harness.digest import digest_bytes
from harness.errors import InputRefused, InternalError, UsageError
from harness.kernels import KERNELS
from harness.lane import Budgets
from harness.process import environment, python
from harness.profiles import REFERENCES, Profile
from harness.schedules import NAMES
from harness.text import clean, near


def said(kind: str, detail: str) -> str:
    """A reference's refusal in words: its class says more than the text only of a broken range contract."""
    return f"{'range contract broken: ' if kind == 'RangeContract' else ''}{clean(detail)}"


@dataclass(frozen=True)
class Stage:
    """A tensor i64 of the document's stage table. `file`: its values, little-endian and row-major, where they were asked for."""

    name: str
    dims: tuple[int, ...]
    digest: str
    file: Path | None = None

    def values(self) -> npt.NDArray[np.int64]:
        """What the file holds; InternalError where that is no tensor of these dimensions."""
        assert self.file
        values = np.fromfile(self.file, "<i8")
        if values.size != np.prod(self.dims):
            raise InternalError(f"stage {self.name} has {values.size} values, its dimensions are {list(self.dims)}")
        return values.reshape(self.dims).astype(np.int64)


def is_told(profile: Profile, stage: str) -> bool:
    """Whether results give a stage's digest even where not every stage is asked for."""
    layer, _, name = stage.partition(".")
    return stage in ("embed", "hidden", "logits", "greedy") or (name == profile.layer and layer[1:].isdigit())


@dataclass(frozen=True)
class Finished:
    """The end of a pass: the model file's SHA-256 (None where a profile makes its weights), and the greedy choices."""

    model_sha256: str | None
    greedy: list[int]
    seconds: float


class Runner(Protocol):
    """One device that computes a profile on a model. Both verbs raise InputRefused where tokens or model are refused.

    `forward` tells `seen` each stage in the document's order, "greedy" last; with a folder it leaves the values there. Without
    one, and unless `every` stage is asked for, a device brings back those alone that `is_told`. Its `greedy` has one id a
    row. `generate` feeds the tokens, then each chosen one (never the last), and tells `seen` each.
    """

    @property
    def id(self) -> str:
        """What names it in results."""

    def forward(
        self, tokens: Sequence[int], folder: Path | None, seen: Callable[[Stage], None], every: bool = False
    ) -> Finished:
        """One pass over all tokens."""

    def generate(self, tokens: Sequence[int], count: int, seen: Callable[[int], None]) -> Finished:
        """`count` new tokens; `Finished.greedy` holds them."""


class ReferenceRunner:
    """The exact reference or the second implementation, as a child process that speaks `cpu_ref.forward`'s protocol.

    With `keep` the process stays after an answer, its model loaded and its matrices built, until `close`.
    """

    def __init__(self, name: str, profile: Profile, model: str, *, keep: bool = False) -> None:
        self.id, self.profile, self.model, self.keep = name, profile, model, keep
        self._process: subprocess.Popen[str] | None = None

    def forward(
        self, tokens: Sequence[int], folder: Path | None, seen: Callable[[Stage], None], every: bool = False
    ) -> Finished:
        """See `Runner`."""
        request = {"op": "forward", "tokens": list(tokens), "folder": str(folder) if folder else None}

        def stage(answer: dict[str, Any]) -> None:
            file = folder / answer["file"] if folder else None
            seen(Stage(answer["stage"], tuple(answer["dims"]), answer["digest"], file))

        return self._ask(request, "stage", stage)

    def generate(self, tokens: Sequence[int], count: int, seen: Callable[[int], None]) -> Finished:
        """See `Runner`."""
        request = {"op": "generate", "tokens": list(tokens), "count": count}
        return self._ask(request, "token", lambda answer: seen(answer["token"]))

    def _ask(self, request: dict[str, Any], step: str, seen: Callable[[dict[str, Any]], None]) -> Finished:
        with closing(self._answers(request | {"profile": self.profile.name, "model": self.model})) as answers:
            sha256 = next(answers)["model_sha256"]
            for answer in answers:
                if step in answer:
                    seen(answer)
                else:
                    return Finished(sha256, answer["greedy"], answer["seconds"])
        raise InternalError(f"the {self.id} process ended in the middle of its answer")

    def _answers(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        command, pipe, whole = python(f"{REFERENCES[self.id]}.forward"), subprocess.PIPE, False
        if self._process is None:
            self._process = subprocess.Popen(command, env=environment({}), stdin=pipe, stdout=pipe, text=True)
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            if not self.keep:
                process.stdin.close()
            for line in process.stdout:
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    kind = InternalError if answer["error"] in ("InternalError", "TableRefused") else InputRefused
                    raise kind(f"{self.id}: {said(answer['error'], answer['detail'])}")
                whole = "greedy" in answer
                yield answer
        finally:
            if not (self.keep and whole):
                self.close()
        raise InternalError(f"the {self.id} process ended without an answer")

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None  # another thread may be closing it too
        if process:
            with process:
                process.kill()


@dataclass
class DeviceRunner:
    """A device, whose kernels make each stage. `budgets`, `locked`: see `Session`.

    With `keep` the device stays open after a pass, with its weights and programs, until `close` or a fault; the next pass
    may have another schedule.
    """

    device: Device
    profile: Profile
    passes: ModuleType
    model: str
    schedule: str
    variant: str = "base"
    resident: int = RESIDENT_BYTES
    budgets: Budgets | None = None
    locked: bool = False
    keep: bool = False
    _open: "tuple[ExitStack, Session, Any] | None" = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """See `Runner`."""
        return self.device.id

    @cached_property
    def loaded(self) -> Any:
        """The model; InputRefused where the profile does not cover it."""
        with refusals(f"{self.id}: "):
            return _load(self.passes, self.model)

    def prepare(self, tokens: Sequence[int], count: int = 0) -> memory.Memory:
        """What the pass, and `count` new tokens, take; InputRefused where model, tokens or device do not allow it."""
        model = self.loaded
        _check_tokens(self.passes, model, tokens, count, f"{self.id}: ")
        needed: memory.Memory = self.passes.memory(model, len(tokens), len(tokens) + max(count - 1, 0), self.schedule)
        memory.check(self.device, needed, self.resident)
        return needed

    def forward(
        self, tokens: Sequence[int], folder: Path | None, seen: Callable[[Stage], None], every: bool = False
    ) -> Finished:
        """See `Runner`."""
        values = np.zeros(0, np.int64)
        self.prepare(tokens)
        with refusals(f"{self.id}: "), self._opened() as (computer, model):
            begin = time.perf_counter()
            wanted = bool if every or folder else partial(is_told, self.profile)
            for number, (name, made) in enumerate(computer.run(tokens, self.passes.Cache(len(tokens)), wanted)):
                values = made.astype("<i8")
                file = folder / f"{number}.i64" if folder else None
                if file:
                    file.write_bytes(values.tobytes())
                seen(Stage(name, values.shape, digest_bytes("i64", values.shape, values.tobytes()), file))
        return Finished(model.sha256, values.tolist(), round(time.perf_counter() - begin, 3))

    def generate(self, tokens: Sequence[int], count: int, seen: Callable[[int], None]) -> Finished:
        """See `Runner`."""
        chosen, feed = list[int](), list(tokens)
        self.prepare(tokens, count)
        with refusals(f"{self.id}: "), self._opened() as (computer, model):
            begin, cache = time.perf_counter(), self.passes.Cache(len(tokens) + count)
            while len(chosen) < count:
                *_, (_, greedy) = computer.run(feed, cache, lambda stage: False)
                feed = [int(greedy[-1])]
                chosen += feed
                seen(feed[0])
        return Finished(model.sha256, chosen, round(time.perf_counter() - begin, 3))

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        model = self.loaded
        if self._open is None:
            with ExitStack() as stack:
                session = stack.enter_context(
                    Session(self.device, self.schedule, self.budgets, self.variant, self.resident, self.locked)
                )
                computer = self.passes.OnDevice(session, model, self.resident)
                self._open = stack.pop_all(), session, computer
        _, session, computer = self._open
        session.schedule, whole = self.schedule, False
        try:
            yield computer, model
            computer.anew()
            whole = self.keep
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """End what is open."""
        opened, self._open = self._open, None
        if opened:
            opened[0].close()


@contextmanager
def refusals(who: str) -> Iterator[None]:
    """What the reference's reader refuses becomes InputRefused, told by `who`."""
    try:
        yield
    except Refused as e:
        raise InputRefused(who + said(type(e).__name__, str(e))) from None


def _check_tokens(module: ModuleType, model: Any, tokens: Sequence[int], count: int, who: str = "") -> None:
    """InputRefused, told by `who`, where the model does not take the tokens, or has no room for `count` new ones."""
    with refusals(who):
        module.check(model, tokens)
    if len(tokens) + count > model.context:
        raise InputRefused(
            f"{who}{len(tokens)} tokens and {count} new ones: this model's context holds {model.context}"
        )


@lru_cache(maxsize=1)
def _load(module: ModuleType, source: str) -> Any:
    """One model for all devices of a command."""
    return module.load(source)


def runners(
    selectors: Sequence[str],
    profile: Profile,
    model: str,
    schedule: str | None,
    variant: str | None = None,
    resident: int | None = None,
    *,
    tokens: Sequence[int],
    count: int = 0,
) -> list[Runner]:
    """What computes `profile` by the names given: `reference`, `second`, and devices in the order of their rows.

    Raises UsageError, also where a device is named twice, NoDevice where a selector matches none, and, before devices are
    looked for, InputRefused where the model or its `tokens`, with `count` new ones, are none for devices.
    """
    _check_forms(profile, schedule, variant)
    for selector in selectors:
        if selectors.count(selector) > 1:
            raise UsageError(f"--device {clean(selector)} is given twice; name each device once")
    references = [s for s in selectors if s in REFERENCES]
    chosen: list[Runner] = [ReferenceRunner(selector, profile, model) for selector in references]
    wanted = [s for s in selectors if s not in REFERENCES]
    if not wanted:
        for option, value in (("schedule", schedule), ("variant", variant), ("resident-bytes", resident)):
            if value is not None:
                raise UsageError(f"--{option} {value} is for devices: {' and '.join(REFERENCES)} have none")
        return chosen
    module = passes.find(profile)
    if module is None:
        raise UsageError(f"device {clean(wanted[0])!r}: {profile.name} runs on {' and '.join(REFERENCES)} only")
    with refusals(""):
        loaded = _load(module, model)
    _check_tokens(module, loaded, tokens, count)
    for device in _distinct(wanted):
        if device.kind == "compile-only":
            raise UsageError(f"{device.id} compiles kernels and runs none; name a device that does")
        kept = RESIDENT_BYTES if resident is None else resident
        chosen.append(DeviceRunner(device, profile, module, model, schedule or "forward", variant or "base", kept))
    return chosen


def _distinct(selectors: Sequence[str]) -> list[Device]:
    """The devices that are named, in the order of their rows; UsageError where two selectors name the same one."""
    there, by = devices.discover(selectors=selectors), dict[str, str]()
    for selector in selectors:
        for device in devices.select(there, [selector]):
            if device.id in by:
                raise UsageError(
                    f"--device {clean(selector)} names {device.id}, and {clean(by[device.id])} does already"
                )
            by[device.id] = selector
    return [device for device in there if device.id in by]


def _check_forms(profile: Profile, schedule: str | None, variant: str | None) -> None:
    """Raise UsageError for a schedule that there is not, or a variant that no kernel of the profile has, or not under it."""
    if schedule is not None and schedule not in NAMES:
        raise UsageError(f"unknown schedule {schedule!r}; there are {', '.join(NAMES)}{near(schedule, NAMES)}")
    names = {name for kernels in profile.operations.values() for name in kernels}
    entries = [kernel for kernel in KERNELS if kernel.name in names]
    if variant is not None and variant not in (there := dict.fromkeys(kernel.variant for kernel in entries)):
        raise UsageError(
            f"unknown variant {variant!r}; kernels of {profile.name} have {', '.join(there)}{near(variant, there)}"
        )
    for kernel in entries:
        if kernel.variant == variant and kernel.reduces and (schedule or "forward") not in kernel.schedules:
            raise UsageError(f"variant {variant} has no schedule {schedule}; it has {', '.join(kernel.schedules)}")
