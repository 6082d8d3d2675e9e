"""Canonical header and SHA-256 of a tensor, as profiles/common.md defines them."""

import hashlib
from collections.abc import Sequence

BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8}
"""Element types and their width in bytes."""


def tensor_size(element: str, dims: Sequence[int]) -> int:
    """Bytes of a tensor."""
    size = BYTES[element]
    for d in dims:
        size *= d
    return size


def tensor_digest(element: str, dims: Sequence[int], data: bytes | memoryview) -> str:
    """SHA-256 (hex) of row-major little-endian `data`; ValueError where its length is not that of the tensor."""
    view = memoryview(data).cast("B")
    if len(view) != tensor_size(element, dims):
        raise ValueError(f"{element}{list(dims)} takes {tensor_size(element, dims)} bytes, not {len(view)}")
    header = element + "[" + ",".join(str(d) for d in dims) + "]"
    sha = hashlib.sha256(header.encode("ascii") + b"\0")
    sha.update(view)
    return sha.hexdigest()
