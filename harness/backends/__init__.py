"""Backends: one module an API, the same few verbs each. Adding one is a module and a line in REGISTRY.

A module has

    LANGUAGE                 "wgsl", "cuda" or "opencl": which sources it compiles
    drivers() -> [Driver]    which drivers the machine has, by looking at files and variables only: no GPU library is
                             loaded, nothing is run; called in the supervisor
    probe() -> [dict]        the devices that the one visible driver has, as raw reports (see `Report`); runs in a
                             child whose environment was narrowed to that driver; raises CompileError where none of
                             them builds a line
    open_device(index) -> Backend    the device at that place of `probe()`; runs in the worker, likewise narrowed
    cache_environment(folder)        variables that keep the caches of driver and libraries inside `folder`, or off

Each imports its GPU library inside those functions, never at the top. wgpu, CUDA and OpenCL are never loaded in one
process.
"""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from harness.dispatch import Buffer, Pass

if TYPE_CHECKING:
    from harness.kernels import Kernel

REGISTRY: dict[str, str] = {
    "vulkan": "harness.backends.wgpu",
    "opengl": "harness.backends.opengl",
    "metal": "harness.backends.metal",
    "d3d12": "harness.backends.d3d12",
    "opencl": "harness.backends.opencl",
    "cuda": "harness.backends.cuda",
    "nvrtc": "harness.backends.nvrtc",
    "hiprtc": "harness.backends.hiprtc",
    "cuda_host": "harness.backends.cuda_host",
    "mock": "harness.backends.mock",
}
"""API name -> module."""


ONLY_TINY = {
    "simulator": "a simulator, too slow for more than the preset tiny unless it is named",
    "sanitizers": "built with sanitizers, so slower: run under the preset tiny, else when it is named",
    "compile-only": "compiles and runs nothing: run under the preset tiny, which holds every kernel, else when it is named",
    "work-group-method": "one more way of a compiler that has a row already: run under the preset tiny, else when it is named",
}
"""Features of our own: a device with one of them is run unnamed under `tiny` only. -> what its row says."""


class Driver(msgspec.Struct, frozen=True):
    """One driver that discovery probes in a child of its own.

    `label` is short, stable and unique in its API (`lvp`, `pocl`, `intel-cpu`, `g++`); `environment` narrows a child
    to this driver (None removes a variable); `origin` says where it was found (a file, a wheel, a command).
    `problem` is set where looking at files already shows that it cannot work (a text file, a missing library).
    """

    api: str
    label: str
    origin: str
    environment: dict[str, str | None] = {}
    problem: str | None = None


class Report(msgspec.Struct, frozen=True):
    """What a driver says of one device. `raw` keeps every field the API gave, for the record.

    `kind` is "hardware", "software" or "compile-only"; `uuid` and `pci` are None where the API cannot say them.
    `features` are names such as `shader-int64`; `limits` are numbers by their API names.
    """

    name: str
    vendor: str
    driver: str
    kind: str
    compiler: str = ""
    uuid: str | None = None
    pci: str | None = None
    features: list[str] = []
    limits: dict[str, int] = {}
    raw: dict[str, Any] = {}


@dataclass(frozen=True)
class Launch:
    """A program on buffers of `allocate`: every argument in order but the first, params; `words` that each has for it."""

    program: Any
    memory: tuple[Any, ...]
    words: tuple[int, ...]
    passes: tuple[Pass, ...]


class Backend(Protocol):
    """An open device. Every failure is a `DeviceFault` of harness.errors; anything else counts as a crash.

    Cases go through `bind` and `run`; a model, whose tensors stay on the device, through `allocate` .. `free`.

    `dispatch_s`: seconds that the dispatches of the last `run` took, without fills and read-back.
    A backend with sanitizers also has `sanitizer_reports() -> list[str]`: what they reported since the last call.
    """

    report: Report
    dispatch_s: float

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> Any:
        """Build the program for `text` (preludes and kernel) with compile-time `constants`; returns a handle."""

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Any:
        """Allocate `buffers` (those to be filled get GUARD_WORDS more), upload `data` by buffer name; a handle."""

    def run(self, program: Any, bound: Any, passes: Sequence[Pass], fill: Mapping[str, bytes]) -> dict[str, bytes]:
        """Write `fill` into the writable buffers, dispatch `passes` in order, wait, return the bytes of output and
        receipt, guards included. May be called again with the same handles."""

    def allocate(self, size: int) -> Any:
        """A buffer of `size` bytes for `submit`, a multiple of 4, with anything in it; a handle."""

    def write(self, memory: Any, content: bytes) -> None:
        """Put `content`, whole words, at the buffer's beginning, after all that was submitted before."""

    def submit(self, launches: Iterable[Launch]) -> None:
        """Queue the launches in order, each taken when the one before it is queued, without waiting in between or at the end."""

    def read(self, memory: Any, at: int, size: int) -> bytes:
        """Wait for all that was submitted; `size` bytes from byte `at` on, both multiples of 4."""

    def free(self, memory: Any) -> None:
        """Give a buffer back; what was submitted before may still use it."""

    def artefacts(self, program: Any) -> dict[str, bytes]:
        """Compiled forms where the API gives them (`kernel.ptx`, `kernel.spv`, `kernel.so`), by file name."""

    def close(self) -> None:
        """Release the device."""


def load(api: str) -> ModuleType:
    """The backend module of `api`."""
    return importlib.import_module(REGISTRY[api])
