"""Range contracts: the first value outside, in row-major order, is raised with operation, element and value."""

from collections.abc import Sequence
from dataclasses import dataclass

from cpu_ref.errors import RangeContract


@dataclass(frozen=True)
class Place:
    """Where a value arises: the operation with its layer, and the leading indices of its element (token, head, ...)."""

    op: str
    at: tuple[int, ...] = ()

    def hold(self, what: str, bits: int, shape: Sequence[int], values: Sequence[int]) -> None:
        """Every magnitude below 2^bits. `what` says which value of the operation; `values` are row-major in `shape`."""
        limit = 1 << bits
        if -limit < min(values) and max(values) < limit:
            return
        at = next(i for i, v in enumerate(values) if abs(v) >= limit)
        rest, element = at, list[int]()
        for size in reversed(shape):
            rest, index = divmod(rest, size)
            element.insert(0, index)
        raise RangeContract(f"{self.op}.{what}", (*self.at, *element), values[at], bits)
