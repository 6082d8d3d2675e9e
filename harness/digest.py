"""Canonical bytes and SHA-256 of a tensor, as `docs/profiles/common.md` defines them."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ELEMENT_TYPES = {
    "i8": "<i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "u8": "<u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "f32": "<f4",
}


def numpy_type(element: str) -> np.dtype[np.generic]:
    """The little-endian NumPy type of an element type such as `i32`."""
    return np.dtype(ELEMENT_TYPES[element])


def header(element: str, dims: Sequence[int]) -> bytes:
    """ASCII header `i64[28,576]` and its closing zero byte."""
    return f"{element}[{','.join(map(str, dims))}]".encode("ascii") + b"\0"


def digest_bytes(element: str, dims: Sequence[int], data: bytes | memoryview) -> str:
    """SHA-256 (hex) of row-major little-endian `data`; raises ValueError where its length does not fit `dims`."""
    size = numpy_type(element).itemsize
    for d in dims:
        size *= d
    view = memoryview(data).cast("B")
    if len(view) != size:
        raise ValueError(f"{element}{list(dims)} takes {size} bytes, not {len(view)}")
    sha = hashlib.sha256(header(element, dims))
    sha.update(view)
    return sha.hexdigest()


def digest_array(array: npt.NDArray[np.generic]) -> str:
    """SHA-256 (hex) of a NumPy integer array, in its own element type."""
    kind = f"{array.dtype.kind}{array.dtype.itemsize * 8}"
    data = np.ascontiguousarray(array, dtype=numpy_type(kind))
    return digest_bytes(kind, array.shape, data.tobytes())
