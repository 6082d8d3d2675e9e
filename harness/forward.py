"""A profile's forward pass on several devices, compared stage by stage, to the bit.

The reference is what others are held to, or the first device where it is not among them. Where there is something to
compare, every digest is taken from the bytes that a device left.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.digest import digest_bytes
from harness.errors import InputRefused, InternalError
from harness.profiles import Profile
from harness.runners import Finished, Runner, Stage


@dataclass(frozen=True)
class Mismatch:
    """The first wrong bit of a device: the stage, the element and both values, or what is missing altogether.

    `against`: the device that it was held to.
    """

    device: str
    against: str
    stage: str
    element: tuple[int, ...]
    expected: int | str
    actual: int | str

    def __str__(self) -> str:
        place = list(self.element) if self.element else ""
        return f"{self.device}: {self.stage}{place} = {self.actual}, expected {self.expected}"


@dataclass(frozen=True)
class Pass:
    """What one device made of the tokens: digests by stage, in order."""

    id: str
    finished: Finished
    stages: dict[str, str]

    def plain(self, profile: Profile, with_stages: bool) -> dict[str, Any]:
        """For JSON."""
        layers = [digest for name, digest in self.stages.items() if is_layer(profile, name)]
        found: dict[str, Any] = {
            "id": self.id,
            "embed": self.stages["embed"],
            "layers": layers,
            "hidden": self.stages["hidden"],
            "logits": self.stages["logits"],
            "greedy": self.finished.greedy,
            "seconds": self.finished.seconds,
        }
        return found | ({"stages": self.stages} if with_stages else {})


def is_layer(profile: Profile, stage: str) -> bool:
    """Whether the stage's digest stands for a layer."""
    layer, _, name = stage.partition(".")
    return name == profile.layer and layer[1:].isdigit()


def forward(
    devices: Sequence[Runner], tokens: Sequence[int], seen: Callable[[str, Stage], None], every: bool = False
) -> tuple[list[Pass], list[Mismatch]]:
    """One pass on each device, in the order given, and the first difference of each to the reference, or to the first.

    A single device may leave out stages whose digests are not told, unless `every` stage is asked for.
    """
    passes: dict[str, Pass] = {}
    mismatches: list[Mismatch] = []
    expected: dict[str, Stage] = {}
    with tempfile.TemporaryDirectory(prefix="samebits-forward-", ignore_cleanup_errors=True) as root:
        for device in _yardstick_first(devices):
            taken = _Taken(device.id, next(iter(passes), ""), expected, seen)
            folder = Path(root, str(len(passes))) if len(devices) > 1 else None
            if folder:
                folder.mkdir()
            finished = device.forward(tokens, folder, taken.take, every)
            passes[device.id] = Pass(device.id, finished, {name: s.digest for name, s in taken.stages.items()})
            mismatches += taken.mismatches()[:1]
            expected = expected or taken.stages
    _one_model([p.finished for p in passes.values()])
    return [passes[device.id] for device in devices], mismatches


class _Taken:
    """The stages of one device as they come, held to `expected` where that is not empty."""

    def __init__(
        self, device: str, against: str, expected: dict[str, Stage], seen: Callable[[str, Stage], None]
    ) -> None:
        self.device, self.against, self.expected, self.seen = device, against, expected, seen
        self.stages: dict[str, Stage] = {}
        self._wrong: list[Mismatch] = []

    def take(self, stage: Stage) -> None:
        if stage.file:
            _check_file(stage)
        self.stages[stage.name] = stage
        if self.expected and not self._wrong:
            self._wrong += _difference(self.device, self.against, self.expected.get(stage.name), stage)
        if self.expected and stage.file:
            stage.file.unlink()
        self.seen(self.device, stage)

    def mismatches(self) -> list[Mismatch]:
        """What differs, the first stage first."""
        missing = [name for name in self.expected if name not in self.stages]
        return self._wrong + [Mismatch(self.device, self.against, name, (), "a stage", "none") for name in missing]


def generate(
    devices: Sequence[Runner], tokens: Sequence[int], count: int, seen: Callable[[str, int], None]
) -> tuple[dict[str, Finished], list[Mismatch]]:
    """`count` new tokens by each device, and the first that differs from the reference's, or the first device's."""
    found: dict[str, Finished] = {}
    mismatches = []
    for device in _yardstick_first(devices):
        made = device.generate(tokens, count, lambda token, id_=device.id: seen(id_, token))  # type: ignore[misc]
        expected = next(iter(found.values()), made).greedy
        for i, (a, b) in enumerate(zip(made.greedy, expected, strict=True)):
            if a != b:
                mismatches.append(Mismatch(device.id, next(iter(found)), "greedy", (i,), b, a))
                break
        found[device.id] = made
    _one_model(list(found.values()))
    return {device.id: found[device.id] for device in devices}, mismatches


def _yardstick_first(devices: Sequence[Runner]) -> list[Runner]:
    return sorted(devices, key=lambda device: device.id != "reference")


def _check_file(stage: Stage) -> None:
    digest = digest_bytes("i64", stage.dims, stage.values().astype("<i8").tobytes())
    if digest != stage.digest:
        raise InternalError(f"stage {stage.name}: its file has digest {digest}, its runner says {stage.digest}")


def _difference(device: str, against: str, expected: Stage | None, stage: Stage) -> list[Mismatch]:
    if expected is None:
        return [Mismatch(device, against, stage.name, (), "no such stage", "a stage")]
    if expected.dims != stage.dims:
        return [Mismatch(device, against, stage.name, (), f"dimensions {list(expected.dims)}", str(list(stage.dims)))]
    if expected.digest == stage.digest:
        return []
    right, wrong = expected.values(), stage.values()
    place = tuple(int(i) for i in np.argwhere(right != wrong)[0])
    return [Mismatch(device, against, stage.name, place, int(right[place]), int(wrong[place]))]


def _one_model(finished: Sequence[Finished]) -> None:
    if len({f.model_sha256 for f in finished}) > 1:
        raise InputRefused("the model file changed while the devices read it; run again")
