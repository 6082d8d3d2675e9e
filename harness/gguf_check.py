"""Is this a sound GGUF file? Asked before the gguf package sees it, by a validator that shares nothing with `cpu_ref`.

The gguf package believes what a header says: sizes wrap, a short read passes silently, a claimed count becomes a loop. Here
every number is checked against the bytes that are there, all sizes are Python ints, and nothing is allocated by a number
that the file merely claims. Every fault is an `InputRefused` of one line: file, thing, mend.
"""

import mmap
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from harness.errors import InputRefused
from harness.text import clean

TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
}
"""GGUF's number of a tensor type: name, values in a block, bytes of a block. What is not here is refused by its number."""

SCALES = {
    "F32": ("<u4", (0,)),
    "F16": ("<u2", (0,)),
    "Q4_0": ("<u2", (0,)),
    "Q4_1": ("<u2", (0, 2)),
    "Q8_0": ("<u2", (0,)),
}
"""The types that samebits reads: the float in a block that must be finite, and where in the block it stands."""

MAX_DIMENSIONS = 4
MAX_NESTING = 4
MAX_TENSORS = MAX_KEYS = 1 << 16
MAX_KEY = (1 << 16) - 1
MAX_NAME = 64
MAX_STRING = 1 << 24
MAX_ITEMS = 1 << 22
"""Items of all metadata arrays together: the gguf package takes about 10 us and 300 bytes for each."""
MAX_ALIGNMENT = 1 << 20
MAX_HEADER = 1 << 30

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INTEGERS = (0, 1, 2, 3, 4, 5, 10, 11)
_U32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9

_DAMAGED = "the file is damaged, fetch it again"


@dataclass(frozen=True)
class Placed:
    """A tensor and where its bytes lie in the file; `[K, R, ...]` is R*... rows of K values."""

    name: str
    type: str
    dims: tuple[int, ...]
    start: int
    size: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return prod(self.dims[1:])


@dataclass
class Sound:
    """What the validator found: `tensors` in the order of the file."""

    name: str
    version: int = 0
    alignment: int = 32
    tensors: dict[str, Placed] = field(default_factory=dict)


def check(path: Path) -> Sound:
    """Read the whole header of the GGUF file; raises InputRefused unless all of it is sound."""
    name = clean(path.name or str(path))
    if path.is_dir():
        raise InputRefused(f"{name}: it is a folder; name a GGUF file in it")
    if not path.is_file():
        what = "it is no regular file" if path.exists() else "there is no such file"
        raise InputRefused(f"{name}: {what}; check the path, or get a model with `samebits fetch-model`")
    try:
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(name, data).read()
    except ValueError:  # what mmap says to a file without bytes
        raise InputRefused(f"{name}: the file is empty; fetch it again") from None
    except OSError as e:
        raise InputRefused(f"{name}: cannot be read ({e.strerror}); check its permissions") from None


def check_scales(file: str, tensor: Placed, data: npt.NDArray[np.uint8]) -> None:
    """Raise InputRefused where a tensor's type is one that samebits does not read, or a scale is infinite or NaN."""
    if tensor.type not in SCALES:
        raise InputRefused(
            f"{file}: tensor {_shown(tensor.name)} has type {tensor.type}; samebits reads {', '.join(SCALES)}"
        )
    _, block, width = next(t for t in TYPES.values() if t[0] == tensor.type)
    kind, places = SCALES[tensor.type]
    exponent = 0x7F800000 if kind == "<u4" else 0x7C00
    blocks = data.reshape(-1, width)
    for place in places:
        scales = np.ascontiguousarray(blocks[:, place : place + int(kind[-1])]).view(kind).ravel()
        wrong = np.flatnonzero((scales & exponent) == exponent)
        if len(wrong):
            row, number = divmod(int(wrong[0]), tensor.dims[0] // block)
            raise InputRefused(
                f"{file}: tensor {_shown(tensor.name)}, row {row}, block {number}: scale 0x"
                f"{int(scales[wrong[0]]):0{2 * int(kind[-1])}x} is infinite or NaN; fetch the file again"
            )


def _shown(name: str) -> str:
    return clean(repr(name), 80)


class _Header:
    """A walk through the header, forward only, never past the end of the file."""

    def __init__(self, name: str, data: mmap.mmap) -> None:
        self.data, self.size, self.at = data, len(data), 0
        self.found = Sound(name)
        self.items = 0
        self.integers: dict[str, int] = {}
        self.kinds: dict[str, int] = {}

    def refuse(self, fault: str, mend: str = _DAMAGED) -> NoReturn:
        raise InputRefused(f"{self.found.name}: {fault}; {mend}")

    def read(self) -> Sound:
        tensors, keys = self.begin()
        for _ in range(keys):
            self.key()
        self.split()
        self.align()
        entries: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(tensors):
            name, entry = self.entry()
            if name in entries:
                self.refuse(f"tensor {_shown(name)} stands twice")
            entries[name] = entry
        if self.at > MAX_HEADER:
            self.refuse(f"the header takes {self.at} bytes, {MAX_HEADER} are possible")
        start = -(-self.at // self.found.alignment) * self.found.alignment
        for name, (number, dims, offset) in entries.items():
            self.found.tensors[name] = self.place(name, number, dims, start, offset)
        self.overlap()
        return self.found

    def begin(self) -> tuple[int, int]:
        """Magic and version; the numbers of tensors and of keys."""
        magic = self.data[:4]
        if magic != b"GGUF":
            self.refuse(f"it begins with {magic!r}, not b'GGUF'", "name a GGUF file")
        self.at = 4
        version = self.u32("the version")
        if version in (1 << 24, 2 << 24, 3 << 24):
            self.refuse("it is big-endian", "samebits reads little-endian files: convert it, or fetch that form")
        if version not in (2, 3):
            self.refuse(f"it is of version {version}", "samebits reads versions 2 and 3: convert it anew")
        self.found.version = version
        tensors = self.count("the number of tensors", 32, MAX_TENSORS)
        return tensors, self.count("the number of keys", 13, MAX_KEYS)

    def skip(self, size: int, what: str) -> int:
        """Go over `size` bytes; where they begin."""
        if size > self.size - self.at:
            self.refuse(f"{what} at byte {self.at} takes {size} bytes, {self.size - self.at} are left")
        self.at += size
        return self.at - size

    def u32(self, what: str) -> int:
        return int.from_bytes(self.data[self.skip(4, what) : self.at], "little")

    def count(self, what: str, least: int, most: int) -> int:
        """A count of things of `least` bytes or more each."""
        number = int.from_bytes(self.data[self.skip(8, what) : self.at], "little")
        if number > most:
            self.refuse(f"{what} at byte {self.at - 8} is {number}, {most} are possible")
        if number * least > self.size - self.at:
            self.refuse(f"{what} at byte {self.at - 8} is {number}, too much for the {self.size - self.at} bytes left")
        return number

    def name(self, what: str, most: int) -> str:
        """A key or a tensor's name: UTF-8, as all readers need it."""
        raw = self.data[self.skip(self.count(f"the length of {what}", 1, most), what) : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} {clean(repr(raw), 80)} is no UTF-8")

    def key(self) -> None:
        key = self.name("a key", MAX_KEY)
        if key in self.kinds or key.startswith("GGUF."):  # the gguf package keeps its own there
            self.refuse(f"key {_shown(key)} stands twice" if key in self.kinds else f"key {_shown(key)} is reserved")
        kind = self.kinds[key] = self.u32(f"the type of {_shown(key)}")
        start = self.at
        self.value(kind, _shown(key))
        if kind in _INTEGERS:
            self.integers[key] = int.from_bytes(self.data[start : self.at], "little")

    def value(self, kind: int, what: str, nesting: int = 0) -> None:
        if kind in _WIDTHS:
            start = self.skip(_WIDTHS[kind], what)
            if kind == _BOOL and self.data[start] > 1:
                self.refuse(f"{what} is a truth value of {self.data[start]}, neither 0 nor 1")
        elif kind == _STRING:
            self.skip(self.count(f"the length of {what}", 1, MAX_STRING), what)
        elif kind == _ARRAY:
            self.array(what, nesting)
        else:
            self.refuse(f"{what} has value type {kind}, which GGUF does not know")

    def array(self, what: str, nesting: int) -> None:
        if nesting == MAX_NESTING:
            self.refuse(f"{what} nests arrays deeper than {MAX_NESTING}")
        kind = self.u32(f"the item type of {what}")
        least = 8 if kind == _STRING else 12 if kind == _ARRAY else _WIDTHS.get(kind, 0)
        if not least:
            self.refuse(f"{what} has items of value type {kind}, which GGUF does not know")
        count = self.count(f"the length of {what}", least, MAX_ITEMS - self.items)
        self.items += count
        if kind == _STRING:
            self.strings(count, what)
        elif kind == _ARRAY:
            for _ in range(count):
                self.array(what, nesting + 1)
        else:
            start = self.skip(count * least, what)
            if kind == _BOOL and max(self.data[start : self.at], default=0) > 1:
                self.refuse(f"{what} holds a truth value that is neither 0 nor 1")

    def strings(self, count: int, what: str) -> None:
        """A vocabulary has 50,000 of them, so they are gone over without a call for each."""
        data, at, last, unpack = self.data, self.at, self.size - 8, struct.Struct("<Q").unpack_from
        for _ in range(count):
            length = unpack(data, at)[0] if at <= last else MAX_STRING + 1
            if length > MAX_STRING or length > last - at:
                self.refuse(f"a string of {what} at byte {at} does not end inside the file")
            at += 8 + length
        self.at = at

    def split(self) -> None:
        """One file of a split model is no model."""
        wrong = [k for k in ("split.count", "split.no") if k in self.kinds and k not in self.integers]
        if wrong:
            self.refuse(f"{wrong[0]} is no whole number")
        count, number = self.integers.get("split.count", 0), self.integers.get("split.no", 0)
        if count > 1 or number:
            of = f" of {count}" if count > 1 else ""
            self.refuse(
                f"it is file {number + 1}{of} of a split model", "join the whole set first: llama-gguf-split --merge"
            )

    def align(self) -> None:
        if "general.alignment" not in self.kinds:
            return
        alignment = self.integers.get("general.alignment", 0)
        power = alignment & (alignment - 1) == 0 and 8 <= alignment <= MAX_ALIGNMENT
        if self.kinds["general.alignment"] != _U32 or not power:
            self.refuse(f"general.alignment is no 32-bit power of two from 8 to {MAX_ALIGNMENT}")
        self.found.alignment = alignment

    def entry(self) -> tuple[str, tuple[int, tuple[int, ...], int]]:
        """A tensor of the directory: name; type number, dimensions, offset."""
        name = self.name("a tensor's name", MAX_NAME)
        rank = self.u32(f"the rank of {_shown(name)}")
        if not 1 <= rank <= MAX_DIMENSIONS:
            self.refuse(f"tensor {_shown(name)} has {rank} dimensions, 1 to {MAX_DIMENSIONS} are possible")
        start = self.skip(8 * rank + 12, f"the entry of {_shown(name)}")
        *dims, number, offset = struct.unpack_from(f"<{rank}QIQ", self.data, start)
        return name, (number, tuple(dims), offset)

    def place(self, name: str, number: int, dims: tuple[int, ...], start: int, offset: int) -> Placed:
        shown = _shown(name)
        if number not in TYPES:
            self.refuse(f"tensor {shown} has type number {number}, which samebits does not know", "convert it anew")
        kind, block, width = TYPES[number]
        if 0 in dims:
            self.refuse(f"tensor {shown} has a dimension of 0")
        if dims[0] % block:
            self.refuse(f"tensor {shown} has rows of {dims[0]} values, no multiple of {kind}'s {block}")
        if offset % self.found.alignment:
            self.refuse(f"tensor {shown} begins at {offset}, no multiple of the alignment {self.found.alignment}")
        size = prod(dims) // block * width
        if start + offset + size > self.size:
            self.refuse(f"tensor {shown} ends at byte {start + offset + size} of {self.size}")
        return Placed(name, kind, dims, start + offset, size)

    def overlap(self) -> None:
        order = sorted(self.found.tensors.values(), key=lambda t: t.start)
        for before, after in pairwise(order):
            if after.start < before.start + before.size:
                self.refuse(f"tensors {_shown(before.name)} and {_shown(after.name)} overlap at byte {after.start}")
