"""A GGUF file by one walk through its header: single metadata values, and where each tensor lies. Arrays are passed over."""

import os
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref.second.errors import GgufRefused

Bytes = npt.NDArray[np.uint8]

TYPES = {0: ("F32", 1, 4), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
"""By GGUF's number: name, values and bytes of a block."""

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEEPEST = 4


class _Walk:
    """A place in the file that only moves forward, and never past the end."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.at = 0

    def skip(self, size: int) -> bytes | memoryview:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise GgufRefused(f"the GGUF file ends at byte {len(self.data)}, inside its header; fetch it again")
        return self.data[start : self.at].data

    def u32(self) -> int:
        return int.from_bytes(self.skip(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.skip(8), "little")

    def string(self) -> bytes:
        return bytes(self.skip(self.u64()))

    def skip_value(self, kind: int, depth: int = 0) -> None:
        if kind in _SIZES:
            self.skip(_SIZES[kind])
        elif kind == _STRING:
            self.skip(self.u64())
        elif kind == _ARRAY and depth < _DEEPEST:
            item, count = self.u32(), self.u64()
            if item in _SIZES:
                self.skip(count * _SIZES[item])
            else:
                for _ in range(count):  # each takes bytes, so a false count meets the end of the file
                    self.skip_value(item, depth + 1)
        else:
            raise GgufRefused(f"a metadata value of type {kind} at byte {self.at}; fetch the file again")


class File:
    """`metadata` by key (arrays left out), and `tensor(name)`; GgufRefused where the file is damaged."""

    def __init__(self, path: str) -> None:
        if not os.path.isfile(path):
            raise GgufRefused("there is no such GGUF file; check the path, or fetch the model")
        try:
            walk = _Walk(np.memmap(path, np.uint8, "r"))
        except (OSError, ValueError):
            raise GgufRefused("the GGUF file is empty or cannot be read; check path and permissions") from None
        if bytes(walk.skip(4)) != b"GGUF" or walk.u32() not in (2, 3):
            raise GgufRefused("the file is no little-endian GGUF of version 2 or 3")
        tensors, keys = walk.u64(), walk.u64()
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key, kind = _text(walk.string()), walk.u32()
            start = walk.at
            walk.skip_value(kind)
            raw = bytes(walk.data[start : walk.at].data)
            if kind in _FORMATS:
                self.metadata[key] = struct.unpack("<" + _FORMATS[kind], raw)[0]
            elif kind == _STRING:
                self.metadata[key] = _text(raw[8:])
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise GgufRefused("general.alignment is not a positive whole number; fetch the file again")
        self._places: dict[str, tuple[int, ...]] = {}
        for _ in range(tensors):
            name, rank = _text(walk.string()), walk.u32()
            self._places[name] = struct.unpack(f"<{rank}QIQ", walk.skip(8 * rank + 12))
        self.names = list(self._places)
        self._data, self._start = walk.data, -(-walk.at // alignment) * alignment

    def tensor(self, name: str) -> tuple[str, tuple[int, ...], Bytes]:
        """Type, dimensions and bytes of a tensor that lies whole in the file."""
        if name not in self._places:
            raise GgufRefused(f"no tensor {name!r} in the GGUF file")
        *dims, number, offset = self._places[name]
        if number not in TYPES:
            raise GgufRefused(
                f"tensor {name!r} has type number {number}, which is none of {[t for t, *_ in TYPES.values()]}"
            )
        kind, block, block_bytes = TYPES[number]
        if not dims or 0 in dims or dims[0] % block:
            raise GgufRefused(f"tensor {name!r} has dimensions {dims}, not whole {kind} rows")
        size = dims[0] // block * block_bytes
        for d in dims[1:]:
            size *= d
        start = self._start + offset
        if start + size > len(self._data):
            raise GgufRefused(f"tensor {name!r} ends behind the end of the file; fetch it again")
        return kind, tuple(dims), self._data[start : start + size]


def block_bytes(kind: str) -> int:
    """Bytes of a block of that type."""
    return next(size for name, _, size in TYPES.values() if name == kind)


def block_tensor(path: str, wanted: str, kind: str) -> tuple[tuple[int, ...], Bytes]:
    """Dimensions and bytes of the tensor `wanted` of type `kind`; GgufRefused where the file does not hold it whole."""
    there, dims, data = File(path).tensor(wanted)
    if there != kind:
        raise GgufRefused(f"tensor {wanted!r} is {there}, not {kind}")
    return dims, data


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
