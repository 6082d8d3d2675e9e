"""A small, bounded reader of GGUF files (versions 2 and 3, little-endian), the reference's own.

It trusts no number in the file: a count is believed only as far as the bytes that are left can hold it, so a hostile
file costs no more memory than its own size times a small factor, and every fault is a `GgufRefused` of one line.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu_ref.errors import GgufRefused

MAX_DIMENSIONS = 4
MAX_NESTING = 4
"""Arrays of arrays of arrays ...: deeper ones are refused."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

_TENSOR_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
"""GGUF's number: name, values in a block, bytes of a block."""

_OTHER_TYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 30: "BF16",
}  # fmt: skip
"""Types that are refused by name."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as released: type, dimensions as GGUF has them (`[K, R]` is R rows of K values), and its bytes."""

    name: str
    type: str
    dims: tuple[int, ...]
    data: memoryview

    @property
    def rows(self) -> int:
        """Number of rows; a row is the first dimension."""
        count = 1
        for d in self.dims[1:]:
            count *= d
        return count

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return len(self.data) // self.rows


class Gguf:
    """An open GGUF file: `metadata` by key, and `tensor(name)`. The bytes stay mapped as long as a tensor uses them."""

    def __init__(self, path: str | Path) -> None:
        self.name = Path(path).name
        if Path(path).is_dir():
            raise GgufRefused(f"{self.name}: it is a folder; name a GGUF file in it")
        if not Path(path).is_file():
            what = "it is no regular file" if Path(path).exists() else "there is no such file"
            raise GgufRefused(f"{self.name}: {what}; check the path, or fetch the model")
        try:
            with open(path, "rb") as file:
                self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:
            raise GgufRefused(f"{self.name}: the file is empty; fetch it again") from None
        except OSError as e:
            raise GgufRefused(f"{self.name}: cannot be read ({e.strerror}); check path and permissions") from None
        self._at = 0
        self.metadata: dict[str, Any] = {}
        self._tensors: dict[str, tuple[int, tuple[int, ...], int]] = {}
        self._read_header()
        self._start = self._align()

    @property
    def names(self) -> list[str]:
        """Names of all tensors, in the order of the file."""
        return list(self._tensors)

    def reads(self, name: str) -> bool:
        """Whether tensor `name` is of a type that the reference reads."""
        return self._tensors[name][0] in _TENSOR_TYPES

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; GgufRefused where there is none, or its type or place cannot be read."""
        if name not in self._tensors:
            raise self._refused(f"no tensor {name!r}", "ask for one of its tensors")
        number, dims, offset = self._tensors[name]
        if number not in _TENSOR_TYPES:
            known = ", ".join(t[0] for t in _TENSOR_TYPES.values())
            kind = _OTHER_TYPES.get(number, f"number {number}")
            raise self._refused(f"tensor {name!r} has type {kind}", f"the reference reads {known}")
        name_of_type, block, block_bytes = _TENSOR_TYPES[number]
        if dims[0] % block:
            raise self._refused(
                f"tensor {name!r}: rows of {dims[0]} values are no multiple of {name_of_type}'s {block}"
            )
        size = block_bytes
        for d in (dims[0] // block, *dims[1:]):
            size *= d
        start = self._start + offset
        if start + size > len(self._data):
            raise self._refused(f"tensor {name!r} ends at byte {start + size} of {len(self._data)}")
        return Tensor(name, name_of_type, dims, self._data[start : start + size])

    def _refused(self, fault: str, mend: str = "the file is damaged, fetch it again") -> GgufRefused:
        return GgufRefused(f"{self.name}: {fault}; {mend}")

    def _take(self, size: int, what: str) -> memoryview:
        """The next `size` bytes."""
        if size > len(self._data) - self._at:
            raise self._refused(f"{what} at byte {self._at} wants {size} bytes, {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code), what))[0]

    def _count(self, least: int, what: str) -> int:
        """A count of things that take at least `least` bytes each: refused where the file cannot hold them."""
        count: int = self._number("Q", what)
        if count * least > len(self._data) - self._at:
            left = len(self._data) - self._at
            raise self._refused(f"{what} at byte {self._at - 8} claims {count}, {left} bytes are left")
        return count

    def _string(self, what: str) -> str:
        """UTF-8; bytes that are none are kept as surrogates, as Python keeps them in file names."""
        raw = self._take(self._count(1, f"length of {what}"), what)
        return bytes(raw).decode("utf-8", "surrogateescape")

    def _value(self, kind: int, what: str, nesting: int = 0) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind], what)
        if kind == _BOOL:
            return self._bool(self._number("B", what), what)
        if kind == _STRING:
            return self._string(what)
        if kind != _ARRAY:
            raise self._refused(f"{what} has value type {kind}, which GGUF does not know")
        if nesting == MAX_NESTING:
            raise self._refused(f"{what} nests arrays deeper than {MAX_NESTING}")
        item: int = self._number("I", f"item type of {what}")
        if item in _SCALARS or item == _BOOL:
            code = _SCALARS.get(item, "B")
            count = self._count(struct.calcsize("<" + code), what)
            values = list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize("<" + code), what)))
            return [self._bool(v, what) for v in values] if item == _BOOL else values
        count = self._count(8 if item == _STRING else 12, what)
        return [self._value(item, what, nesting + 1) for _ in range(count)]

    def _bool(self, value: int, what: str) -> bool:
        if value > 1:
            raise self._refused(f"{what} is a truth value of {value}, neither 0 nor 1")
        return bool(value)

    def _read_header(self) -> None:
        magic = bytes(self._take(4, "magic"))
        if magic != b"GGUF":
            raise self._refused(f"it begins with {magic!r}, not b'GGUF'", "name a GGUF file")
        version: int = self._number("I", "version")
        if version not in (2, 3):
            kind = "a big-endian file" if version in (0x02000000, 0x03000000) else f"version {version}"
            raise self._refused(f"it is {kind}", "the reference reads little-endian versions 2 and 3")
        tensors = self._count(24, "number of tensors")
        keys = self._count(13, "number of metadata keys")
        for _ in range(keys):
            key = self._string("metadata key")
            if key in self.metadata:
                raise self._refused(f"metadata key {key!r} stands twice")
            kind_number: int = self._number("I", f"type of {key!r}")
            self.metadata[key] = self._value(kind_number, f"metadata {key!r}")
        for _ in range(tensors):
            self._read_tensor()

    def _read_tensor(self) -> None:
        name = self._string("tensor name")
        if name in self._tensors:
            raise self._refused(f"tensor {name!r} stands twice")
        rank: int = self._number("I", f"rank of {name!r}")
        if not 1 <= rank <= MAX_DIMENSIONS:
            raise self._refused(f"tensor {name!r} has {rank} dimensions, 1 to {MAX_DIMENSIONS} are possible")
        dims: tuple[int, ...] = struct.unpack(f"<{rank}Q", self._take(8 * rank, f"dimensions of {name!r}"))
        if 0 in dims:
            raise self._refused(f"tensor {name!r} has a dimension of 0")
        number, offset = struct.unpack("<IQ", self._take(12, f"place of {name!r}"))
        self._tensors[name] = (number, dims, offset)

    def _align(self) -> int:
        """Where tensor data begins; offsets must keep the file's alignment."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
            raise self._refused(f"general.alignment is {alignment!r}, not a multiple of 8")
        for name, (_, _, offset) in self._tensors.items():
            if offset % alignment:
                raise self._refused(f"tensor {name!r} begins at {offset}, no multiple of the alignment {alignment}")
        return -(-self._at // alignment) * alignment
