"""CUDA sources through CuPy: NVRTC on NVIDIA GPUs, hipRTC where CuPy was built for ROCm.

No GPU was at hand when this was written: CuPy's documented calls only, and few of them.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from harness import units
from harness.backends import Launch, Report
from harness.backends.common import buffer_bytes, check_alone, first_line, optimiser_off
from harness.backends.cuda_drivers import VARIABLE
from harness.backends.cuda_drivers import drivers as drivers
from harness.dispatch import PARAMS_WORDS, Buffer, Language, Pass
from harness.errors import CompileError, DeviceFault, DeviceLost, LaunchError, TooOld, Unsupported

if TYPE_CHECKING:
    from harness.kernels import Kernel

LANGUAGE: Language = "cuda"
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
SMI = ("uuid", "driver_version", "ecc.mode.current", "clocks.sm", "temperature.gpu", "mig.mode.current")

MOST_PARAMS = 4096
"""Arguments of dispatches that are kept on the device at most."""

OLD_DRIVER, NO_DEVICE = 35, 100
LOST = {46, 214, 226, 700, 702, 709, 710, *range(714, 720), 999}
"""cudaError numbers after which a context is of no more use: unavailable, uncorrectable memory, illegal access,
watchdog, destroyed context, assertion, machine faults, unknown."""


def cache_environment(folder: Path) -> dict[str, str]:
    """Variables that keep CuPy's and the driver's caches inside `folder`, or off."""
    return {
        "CUPY_CACHE_DIR": str(folder),
        "CUPY_CACHE_IN_MEMORY": "1",
        "CUDA_CACHE_DISABLE": "1",
        "CUDA_CACHE_PATH": str(folder),
        "AMD_COMGR_CACHE": "0",
        "XDG_CACHE_HOME": str(folder),
    }


def probe() -> list[dict[str, Any]]:
    """The visible GPUs, by PCI address; [] where there is none."""
    import cupy

    runtime = cupy.cuda.runtime
    _check_driver(runtime)
    try:
        count = runtime.getDeviceCount()
        _check_age(runtime)
        return [msgspec.to_builtins(_report(index)) for index in range(count)]
    except runtime.CUDARuntimeError as e:
        if e.status == NO_DEVICE:
            return []
        if e.status == OLD_DRIVER:
            raise _too_old(runtime, f"CUDA {_dotted(runtime.runtimeGetVersion())} of CuPy {cupy.__version__}") from None
        raise DeviceFault(f"{e} (cudaError {e.status}, CuPy {cupy.__version__})") from None


def _check_driver(runtime: Any) -> None:
    """Raises DeviceFault where CuPy was built for the other vendor, or the drivers of both are loaded."""
    wanted, there = os.environ.get(VARIABLE), "rocm" if runtime.is_hip else "nvidia"
    if wanted not in (None, there):
        raise DeviceFault(f"expected CuPy for {wanted}, see one for {there}: leave only one of its wheels installed")
    check_alone("libcuda|libamdhip64", "CUDA driver")


def _check_age(runtime: Any) -> None:
    """Raises TooOld where NVRTC's code is of a later CUDA than the driver can load: of one major version any will do."""
    if runtime.is_hip:
        return
    compiler = _compiler_version()
    if int(compiler.partition(".")[0]) > runtime.driverGetVersion() // 1000:
        raise _too_old(runtime, f"CUDA {compiler} of NVRTC")


def _too_old(runtime: Any, needed: str) -> TooOld:
    mend = "update the driver, or install 'samebits[cuda12]' in place of [cuda13]"
    return TooOld("a driver for CUDA", needed, _dotted(runtime.driverGetVersion()), mend)


def _dotted(version: int) -> str:
    """12040 -> 12.4."""
    return f"{version // 1000}.{version % 1000 // 10}"


def open_device(index: int) -> "Cuda":
    """The GPU at that place of `probe()`."""
    return Cuda(index)


def _report(index: int) -> Report:
    import cupy

    runtime = cupy.cuda.runtime
    raw = runtime.getDeviceProperties(index)
    pci = runtime.deviceGetPCIBusId(index).lower()
    smi = {} if runtime.is_hip else _management(pci)
    uuid = raw.get("uuid") or b""
    version = DRIVER_VERSION.read_text("utf-8", "replace").splitlines()[0] if DRIVER_VERSION.is_file() else ""
    number = re.search(r"\b\d+\.\d+(\.\d+)?\b", version)
    driver = smi.get("driver_version") or (number[0] if number else "")
    api = runtime.driverGetVersion()
    numbers = {name: value for name, value in raw.items() if isinstance(value, int)}
    return Report(
        name=raw["name"].decode("utf-8", "replace"),
        vendor="AMD" if runtime.is_hip else "NVIDIA",
        driver=f"ROCm {api}" if runtime.is_hip else f"{driver} (CUDA {_dotted(api)})".strip(),
        kind="hardware",
        compiler=f"{'hipRTC' if runtime.is_hip else 'NVRTC'} {_compiler_version()} by CuPy {cupy.__version__}",
        # CuPy cuts a UUID at its first zero byte.
        uuid=uuid[:16].hex() if len(uuid) >= 16 else smi.get("uuid", "").removeprefix("GPU-").replace("-", "") or None,
        pci=pci,
        features=[] if runtime.is_hip else _features(raw["major"] * 10 + raw["minor"]),
        limits={name: numbers[name] for name in ("totalGlobalMem", "maxThreadsPerBlock") if name in numbers},
        raw={**numbers, **{f"smi {name}": value for name, value in smi.items() if name != "uuid"}, "module": version},
    )


def _features(capability: int) -> list[str]:
    return sorted([*units.cuda_instructions(capability), *units.cuda_units(capability)])


def _compiler_version() -> str:
    """The version of NVRTC; raises DeviceFault with the mend where it cannot be loaded."""
    from cupy.cuda import nvrtc

    try:
        return ".".join(map(str, nvrtc.getVersion()))
    except Exception as e:  # CuPy loads it on first use and raises what it likes
        raise DeviceFault(
            f"NVRTC cannot be loaded ({first_line(str(e))}): install the CUDA toolkit's libraries"
        ) from None


def _management(pci: str) -> dict[str, str]:
    """What nvidia-smi says of the state of a GPU, where there is such a command."""
    command = ["nvidia-smi", f"--id={pci}", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        return dict(zip(SMI, (field.strip() for field in answer.split(",")), strict=False))
    return {}


@dataclass
class Bound:
    """Arrays on the device, in argument order."""

    buffers: Sequence[Buffer]
    memory: dict[str, Any]


@dataclass
class Program:
    """Compiled entry points, and what they were compiled from."""

    entries: dict[str, Any]
    text: str
    options: tuple[str, ...]


class Cuda:
    """An open GPU and its default stream."""

    def __init__(self, index: int) -> None:
        import cupy
        from cupy.cuda import compiler, driver, memory, nvrtc, runtime

        self.cupy = cupy
        self.nvrtc = nvrtc
        self.params: dict[tuple[int, ...], Any] = {}
        self.errors = (
            runtime.CUDARuntimeError,
            driver.CUDADriverError,
            nvrtc.NVRTCError,
            compiler.CompileException,
            memory.OutOfMemoryError,
        )
        _check_driver(runtime)
        with self._faults(LaunchError):
            self.report = _report(index)
            self.device = cupy.cuda.Device(index)
            self.device.use()

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> Program:
        """Builds for this GPU and takes out every entry point."""
        options = ("--std=c++17", *(f"-D{name}={value}u" for name, value in constants.items()))
        if optimiser_off():
            options += ("-O0" if self.cupy.cuda.runtime.is_hip else "--device-debug",)
        capability = self.device.compute_capability
        if not self.cupy.cuda.runtime.is_hip and int(capability) < 75 and self.nvrtc.getVersion()[0] >= 13:
            raise CompileError(f"NVRTC 13 knows no sm_{capability}: install 'samebits[cuda12]' in place of [cuda13]")
        with self._faults(CompileError):
            module = self.cupy.RawModule(code=text, options=options, backend="nvrtc")
            entries = {entry: module.get_function(entry) for entry in kernel.entries}
        return Program(entries, text, options)

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Bound:
        """Allocates and uploads; words that `data` does not reach are zero."""
        sizes = {b.name: buffer_bytes(b) for b in buffers}
        there = self.report.limits["totalGlobalMem"]
        if sum(sizes.values()) > there:
            raise Unsupported("global-memory", str(sum(sizes.values())), str(there))
        with self._faults(LaunchError):
            memory = {name: self.cupy.empty(size, dtype=np.uint8) for name, size in sizes.items()}
            for name, content in data.items():
                self._write(memory[name], content.ljust(sizes[name], b"\0"))
        return Bound(buffers, memory)

    def _write(self, array: Any, content: bytes) -> None:
        array[: len(content)].set(np.frombuffer(content, dtype=np.uint8))

    def run(
        self, program: Program, bound: Bound, passes: Sequence[Pass], fill: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Fills, dispatches, waits and reads back."""
        self._check_lanes(passes)
        with self._faults(LaunchError):
            for name, content in fill.items():
                self._write(bound.memory[name], content)
            self.device.synchronize()
            begin = time.perf_counter()
            for p in passes:
                self._write(bound.memory["params"], np.array(p.params, dtype="<u4").tobytes())
                program.entries[p.entry](p.groups, p.workgroup, tuple(bound.memory.values()))
                self.device.synchronize()
            self.dispatch_s = time.perf_counter() - begin
            wanted = [b.name for b in bound.buffers if b.role in ("output", "receipt")]
            return {name: bound.memory[name].get().tobytes() for name in wanted}

    def _check_lanes(self, passes: Sequence[Pass]) -> None:
        needed, there = max(prod(p.workgroup) for p in passes), self.report.limits["maxThreadsPerBlock"]
        if needed > there:
            raise Unsupported("maxThreadsPerBlock", str(needed), str(there))

    def allocate(self, size: int) -> Any:
        """See `Backend.allocate`."""
        with self._faults(LaunchError):
            return self.cupy.empty(size, dtype=np.uint8)

    def write(self, memory: Any, content: bytes) -> None:
        """See `Backend.write`."""
        with self._faults(LaunchError):
            self._write(memory, content)

    def submit(self, launches: Iterable[Launch]) -> None:
        """See `Backend.submit`: on one stream. Arguments of a dispatch stay on the device for the next like it."""
        with self._faults(LaunchError):
            for launch in launches:
                self._check_lanes(launch.passes)
                for p in launch.passes:
                    if p.params not in self.params:
                        words = np.zeros(PARAMS_WORDS, dtype="<u4")
                        words[: len(p.params)] = p.params
                        self.params[p.params] = self.cupy.asarray(words)
                    arguments = (self.params[p.params], *launch.memory)
                    launch.program.entries[p.entry](p.groups, p.workgroup, arguments)

    def read(self, memory: Any, at: int, size: int) -> bytes:
        """See `Backend.read`."""
        with self._faults(LaunchError):
            content: bytes = memory[at : at + size].get().tobytes()
            if len(self.params) > MOST_PARAMS:
                self.params.clear()  # nothing is under way
        return content

    def free(self, memory: Any) -> None:
        """See `Backend.free`: CuPy takes the memory back with its last reference, for what is queued behind."""

    def artefacts(self, program: Program) -> dict[str, bytes]:
        """PTX and cubin, from a second compilation with the same options, which CuPy does not hand out of the first."""
        if self.cupy.cuda.runtime.is_hip:
            return {}
        architecture = f"--gpu-architecture=sm_{self.device.compute_capability}"
        source = self.nvrtc.createProgram(program.text, "kernel.cu", (), ())
        try:
            self.nvrtc.compileProgram(source, (*program.options, architecture))
            return {"kernel.ptx": self.nvrtc.getPTX(source), "kernel.cubin": self.nvrtc.getCUBIN(source)}
        except self.errors:
            return {}
        finally:
            self.nvrtc.destroyProgram(source)

    def close(self) -> None:
        """Drains the stream and frees what CuPy keeps."""
        with self._faults(LaunchError):
            self.device.synchronize()
            self.cupy.get_default_memory_pool().free_all_blocks()

    @contextmanager
    def _faults(self, kind: type[DeviceFault]) -> Iterator[None]:
        """Turns what CuPy raises into a DeviceFault."""
        try:
            yield
        except self.errors as e:
            raise (DeviceLost if getattr(e, "status", None) in LOST else kind)(first_line(str(e))) from e
