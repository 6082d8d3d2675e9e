"""What a backend dispatches, and no more: buffers in argument order, passes over them.

Apart from `plans.py`, so that a probe of a driver loads neither the catalogue of kernels nor NumPy.
"""

from dataclasses import dataclass
from typing import Literal

Language = Literal["wgsl", "cuda", "opencl"]
LANGUAGES: tuple[Language, ...] = ("wgsl", "cuda", "opencl")

GUARD_WORDS = 64
"""Words behind each output that no kernel may touch."""

PARAMS_WORDS = 8
"""Run-time arguments of a dispatch at most."""

FILLED_WORDS = 1 << 20
"""A heap of more words is neither filled nor guarded: then it may have all that a device can bind."""


@dataclass(frozen=True)
class Buffer:
    """One kernel argument: `words` 32-bit words, without the guard."""

    name: str
    role: Literal["params", "input", "scratch", "heap", "output", "receipt"]
    words: int

    @property
    def writable(self) -> bool:
        """Whether the kernel may write it."""
        return self.role in ("scratch", "heap", "output", "receipt")

    @property
    def filled(self) -> bool:
        """Whether it begins as sentinels with a guard behind them. A large heap does not."""
        return self.writable and (self.role != "heap" or self.words <= FILLED_WORDS)


@dataclass(frozen=True)
class Pass:
    """One dispatch: entry point, workgroups and workgroup size in x, y, z, and its run-time arguments (u32)."""

    entry: str
    groups: tuple[int, int, int]
    workgroup: tuple[int, int, int]
    params: tuple[int, ...]
