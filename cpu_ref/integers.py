"""Between the bytes of a file and Python ints: little-endian two's complement, row-major."""

import sys
from array import array
from collections.abc import Iterable

_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_UNSIGNED = {4: "I", 8: "Q"}


def read_signed(data: bytes | memoryview, width: int) -> list[int]:
    """All integers of `width` bytes (1, 2, 4 or 8) in `data`."""
    values = array(_CODES[width])
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def write_signed(values: Iterable[int], width: int) -> bytes:
    """The bytes of integers that fit `width` bytes (1, 2, 4 or 8); OverflowError where one does not."""
    return _write(array(_CODES[width], values))


def write_residues(values: Iterable[int], width: int) -> bytes:
    """The bytes of integers in 0 .. 256^width - 1: read back as signed, each is the representative of its residue."""
    return _write(array(_UNSIGNED[width], values))


def _write(values: "array[int]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
