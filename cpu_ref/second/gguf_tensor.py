"""One tensor's bytes out of a GGUF file: walks the header, keeps nothing of the metadata but the alignment."""

import os
import struct

import numpy as np
import numpy.typing as npt

from cpu_ref.second.errors import GgufRefused

Q8_0 = 8
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_DEEPEST = 4


class _Walk:
    """A place in the file that only moves forward, and never past the end."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
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


def q8_0_tensor(path: str, wanted: str) -> tuple[tuple[int, ...], npt.NDArray[np.uint8]]:
    """Dimensions and bytes of the Q8_0 tensor `wanted`; GgufRefused where the file does not hold it whole."""
    if not os.path.isfile(path):
        raise GgufRefused("there is no such GGUF file; check the path, or fetch the model")
    try:
        walk = _Walk(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError):
        raise GgufRefused("the GGUF file is empty or cannot be read; check path and permissions") from None
    if bytes(walk.skip(4)) != b"GGUF" or walk.u32() not in (2, 3):
        raise GgufRefused("the file is no little-endian GGUF of version 2 or 3")
    tensors, keys = walk.u64(), walk.u64()
    alignment = 32
    for _ in range(keys):
        key, kind = walk.string(), walk.u32()
        start = walk.at
        walk.skip_value(kind)
        if key == b"general.alignment":
            alignment = int.from_bytes(walk.data[start : walk.at].data, "little") if kind == 4 else 0
    if not alignment:
        raise GgufRefused("general.alignment is not a positive u32; fetch the file again")
    found = None
    for _ in range(tensors):
        name, rank = walk.string(), walk.u32()
        place = struct.unpack(f"<{rank}QIQ", walk.skip(8 * rank + 12))
        if name == wanted.encode("utf-8", "surrogateescape"):
            found = place
    if found is None:
        raise GgufRefused(f"no tensor {wanted!r} in the GGUF file")
    *dims, kind, offset = found
    if kind != Q8_0 or not dims or dims[0] % 32:
        raise GgufRefused(f"tensor {wanted!r} has type number {kind} and dimensions {dims}, not whole Q8_0 rows")
    start = -(-walk.at // alignment) * alignment + offset
    size = dims[0] // 32 * 34
    for d in dims[1:]:
        size *= d
    if start + size > len(walk.data):
        raise GgufRefused(f"tensor {wanted!r} ends behind the end of the file; fetch it again")
    return tuple(dims), walk.data[start : start + size]
