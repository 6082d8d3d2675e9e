"""Tensors of a model file: read by the gguf package once the validator found the file sound, and seen by the reference too."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader

from harness import gguf_check
from harness.digest import digest_array
from harness.errors import InputRefused, InternalError
from harness.gguf_check import Placed, Sound
from harness.text import clean


class _Reader(GGUFReader):  # type: ignore[misc, unused-ignore]
    """The package's reader over a plain array: slices of a memmap cost three times as much, and it takes 600,000."""

    @property  # type: ignore[override, unused-ignore]
    def data(self) -> npt.NDArray[np.uint8]:
        """The file's bytes."""
        return self._bytes

    @data.setter
    def data(self, mapped: npt.NDArray[np.uint8]) -> None:
        self._bytes = np.asarray(mapped)


class Opened:
    """A sound file and the package's view of it."""

    def __init__(self, path: Path) -> None:
        self.sound: Sound = gguf_check.check(path)
        try:
            reader = _Reader(path)
        except (ValueError, KeyError) as e:  # an older package knows fewer tensor types
            raise InputRefused(f"{self.sound.name}: the gguf package refuses it: {e}; install a newer one") from e
        self._tensors: dict[str, Any] = {t.name: t for t in reader.tensors}
        self._fields: dict[str, Any] = dict(reader.fields)

    def value(self, key: str) -> Any:
        """A metadata value, text, number or list; None where the file has none. InputRefused where text is no UTF-8."""
        try:
            return self._fields[key].contents() if key in self._fields else None
        except UnicodeDecodeError:
            raise InputRefused(f"{self.sound.name}: {clean(key, 80)} is no UTF-8; fetch it again") from None

    def tensor(self, name: str) -> npt.NDArray[np.uint8]:
        """Its bytes, [rows, bytes a row], whatever they hold."""
        if name not in self.sound.tensors:
            raise InputRefused(f"{self.sound.name}: there is no tensor {name!r}; `samebits inspect` lists them")
        wanted, t = self.sound.tensors[name], self._tensors[name]
        if (int(t.data_offset), int(t.n_bytes)) != (wanted.start, wanted.size):
            raise InternalError(f"{self.sound.name}: validator and gguf package place tensor {name!r} differently")
        data: npt.NDArray[np.uint8] = t.data.reshape(-1).view(np.uint8).reshape(wanted.rows, -1)
        return data

    def usable(self, name: str) -> npt.NDArray[np.uint8]:
        """`tensor(name)` of a type that samebits reads, with finite scales; raises InputRefused."""
        data = self.tensor(name)
        gguf_check.check_scales(self.sound.name, self.sound.tensors[name], data)
        return data


@lru_cache(maxsize=2)
def _opened(path: Path, size: int, changed: int) -> Opened:
    return Opened(path)


def opened(path: Path) -> Opened:
    """The file, opened once a process as long as it does not change; raises InputRefused."""
    there = path.stat() if path.is_file() else None
    return _opened(path, there.st_size if there else 0, there.st_mtime_ns if there else 0)


@dataclass(frozen=True)
class Inspected:
    """A tensor as both readers see it; `reference` is None for a type that the reference does not read."""

    tensor: Placed
    digest: str
    reference: str | None


def inspect(path: Path) -> tuple[Sound, list[Inspected]]:
    """Every tensor's digest by harness and by reference; InternalError where they differ, InputRefused as `opened`."""
    file = opened(path)
    command = [sys.executable, "-m", "cpu_ref.tensors", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise InternalError(f"the reference died on {file.sound.name} (exit {done.returncode})") from None
    if "error" in answer:
        raise InternalError(f"the harness reads {file.sound.name}, the reference refuses it: {answer['error']}")
    listed = []
    for name, placed in file.sound.tensors.items():
        data = file.usable(name) if placed.type in gguf_check.SCALES else file.tensor(name)
        digest, reference = digest_array(data), answer["digests"].get(name)
        if reference != (digest if placed.type in gguf_check.SCALES else None):
            raise InternalError(f"{file.sound.name}: tensor {name!r} is {digest} here, {reference} by the reference")
        listed.append(Inspected(placed, digest, reference))
    return file.sound, listed
