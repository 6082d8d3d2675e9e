"""GGUF files packed by hand, for tests: nothing here comes from a GGUF library."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

F32, F16, Q4_0, Q4_1, Q5_0, Q8_0 = 0, 1, 2, 3, 6, 8


class Packed(NamedTuple):
    """A tensor for `gguf_file`: its directory entry and its bytes."""

    name: str
    dims: Sequence[int]
    type: int
    data: bytes


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    """A metadata entry; `value` is packed already."""
    return string(key) + struct.pack("<I", kind) + value


def text_pair(key: str, value: str) -> bytes:
    return pair(key, 8, string(value))


def array(kind: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + items


def entry(name: str, dims: Sequence[int], kind: int, offset: int) -> bytes:
    """A tensor's entry in the directory."""
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_header(pairs: Sequence[bytes], entries: Sequence[bytes], version: int = 3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, len(entries), len(pairs)) + b"".join([*pairs, *entries])


def gguf_file(
    pairs: Sequence[bytes] = (), tensors: Sequence[Packed] = (), version: int = 3, alignment: int = 32
) -> bytes:
    """A whole, well-formed file."""
    data, entries = b"", []
    for t in tensors:
        data += bytes(-len(data) % alignment)
        entries.append(entry(t.name, t.dims, t.type, len(data)))
        data += t.data
    header = gguf_header(pairs, entries, version)
    return header + bytes(-len(header) % alignment) + data
