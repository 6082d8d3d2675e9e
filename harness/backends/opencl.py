"""OpenCL through pyopencl: one visible platform, its devices, one in-order queue."""

import ctypes
import os
import re
import struct
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.backends import Launch, Report, oclgrind, pocl
from harness.backends.common import buffer_bytes, first_line, is_software, optimiser_off, vendor_name
from harness.backends.opencl_icds import drivers as drivers
from harness.backends.opencl_icds import library_named_by
from harness.backends.opencl_identity import identify, units_of
from harness.dispatch import PARAMS_WORDS, Buffer, Language, Pass
from harness.errors import CompileError, DeviceFault, DeviceLost, LaunchError, TooOld, Unsupported

if TYPE_CHECKING:
    from harness.kernels import Kernel

LANGUAGE: Language = "opencl"
CPU = "device-type-cpu"
"""A feature of our own: kernels for CPU devices ask for it."""

WANTED = (1, 2)
"""The oldest OpenCL that the kernels are written for."""

NOTHING = (2, 1)
"""The first OpenCL that takes a range of no work-item."""

STANDARDS = {"cl_khr_integer_dot_product": "CL3.0"}
"""Extensions whose functions compilers declare under a later standard alone; the extension asks for OpenCL 3.0 itself."""

LINE = "__kernel void line(__global uint *a) { a[0] = 1u; }"
"""What a device must build to be one that can be used."""

LOG_FRAME = r"$|clBuildProgram failed|Build on <|\(options:"
"""Lines that pyopencl puts around a compiler's log."""

MOST_PARAMS = 4096
"""Arguments of dispatches that are kept on the device at most."""

LOST = {-2, -36, -9999}
"""CL_DEVICE_NOT_AVAILABLE, CL_INVALID_COMMAND_QUEUE, and what NVIDIA returns for a kernel that broke the context."""


def cache_environment(folder: Path) -> dict[str, str]:
    """Variables that keep driver and library caches inside `folder`, or off.

    Mesa's stays on, in `folder`: Rusticl 22.3 builds a kernel anew at every launch, seconds each time, unless it finds it there.
    """
    return {
        "PYOPENCL_NO_CACHE": "1",
        "POCL_CACHE_DIR": str(folder),
        "MESA_SHADER_CACHE_DISABLE": "false",
        "MESA_SHADER_CACHE_DIR": str(folder),
        "CUDA_CACHE_DISABLE": "1",
        "NEO_CACHE_PERSISTENT": "0",
        "AMD_COMGR_CACHE": "0",
        oclgrind.LOG: str(folder / "oclgrind.log"),
        "XDG_CACHE_HOME": str(folder),
    }


def probe() -> list[dict[str, Any]]:
    """The devices of the one visible platform; [] where it has none."""
    devices = _devices()
    if devices and all(map(_age_problem, devices)):
        raise next(filter(None, map(_age_problem, devices)))
    _check_compiler(devices)
    return [msgspec.to_builtins(_report(device)) for device in devices]


def open_device(index: int) -> "OpenCL":
    """The device at that place of `probe()`."""
    devices = _devices()
    if index >= len(devices):
        raise DeviceLost(f"place {index} of {len(devices)} devices: gone since discovery")
    return OpenCL(devices[index])


def _devices() -> list[Any]:
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error as e:
        if "OCL_ICD_VENDORS" in os.environ:  # then the dynamic loader's own reason, as an OSError, says more
            ctypes.CDLL(library_named_by(Path(os.environ["OCL_ICD_VENDORS"])))
        raise DeviceFault(f"the loader found no platform: {e}") from None
    if len(platforms) != 1:
        raise DeviceFault(f"expected one platform, see {len(platforms)}: {', '.join(p.name for p in platforms)}")
    try:
        return list(platforms[0].get_devices())
    except cl.Error as e:
        if e.code == cl.status_code.DEVICE_NOT_FOUND:
            return []
        raise DeviceFault(f"clGetDeviceIDs: {e}") from None


def _version(device: Any) -> tuple[int, int]:
    """Its OpenCL; WANTED where it does not tell."""
    number = re.search(r"(\d+)\.(\d+)", device.version)
    return (int(number[1]), int(number[2])) if number else WANTED


def _age_problem(device: Any) -> TooOld | None:
    """The refusal of a device whose OpenCL is older than WANTED."""
    there = _version(device)
    if there >= WANTED:
        return None
    return TooOld(f"{' '.join(device.name.split())}: OpenCL", "1.2", f"{there[0]}.{there[1]}", "update the driver")


def _check_compiler(devices: Sequence[Any]) -> None:
    """Raises CompileError, with the first line of the log, where no device builds a line: it is there, and of no use."""
    import pyopencl as cl

    refused = None
    for device in devices:
        try:
            if not pocl.method_checked(device):
                cl.Program(cl.Context([device]), LINE).build(["-cl-std=CL1.2"])
            return
        except cl.Error as e:
            refused = refused or CompileError(first_line(str(e), LOG_FRAME))
    if refused:
        raise refused


def _report(device: Any) -> Report:
    import pyopencl as cl

    platform, name = device.platform, " ".join(device.name.split())
    real = device.type & (cl.device_type.GPU | cl.device_type.ACCELERATOR) and not device.type & cl.device_type.CPU
    software = not real or is_software(f"{platform.name} {name}")
    texts = ("name", "vendor", "version", "driver_version", "opencl_c_version", "profile", "extensions")
    numbers = ("max_mem_alloc_size", "global_mem_size", "local_mem_size", "max_work_group_size", "max_compute_units")
    identity = identify(device)
    raw = {f: str(getattr(device, f)) for f in texts} | {f: int(getattr(device, f)) for f in ("type", "vendor_id")}
    raw |= {f"platform_{f}": str(getattr(platform, f)) for f in ("name", "vendor", "version")}
    driver = device.driver_version.strip()
    method = os.environ.get(pocl.VARIABLE) if platform.name == pocl.PLATFORM else None
    compiler = f"{device.opencl_c_version.strip()} / {platform.version.strip()}"
    if method:
        compiler += f", work-group method {method}"
    if platform.name == oclgrind.PLATFORM:
        compiler += ", always without its optimiser"
    own = [CPU] if device.type & cl.device_type.CPU else []
    own += units_of(device)
    own += ["simulator"] if platform.name == oclgrind.PLATFORM else []
    own += ["work-group-method"] if method else []
    return Report(
        name=name,
        # A software device is its maker's, whoever made the processor.
        vendor=vendor_name(0, platform.vendor) if software else vendor_name(device.vendor_id, device.vendor),
        driver=driver if driver.startswith(platform.name) else f"{platform.name} {driver}",
        kind="software" if software else "hardware",
        compiler=compiler,
        uuid=identity.get("uuid"),
        pci=identity.get("pci"),
        features=sorted([*device.extensions.split(), *own]),
        limits={n: int(getattr(device, n)) for n in numbers},
        raw=raw,
    )


@dataclass
class Program:
    """A built program and its kernels. Intel's runtime frees a program that only its kernels hold."""

    build: Any
    entries: dict[str, Any]


@dataclass
class Bound:
    """Buffers on the device, in argument order, with the sizes in bytes."""

    buffers: Sequence[Buffer]
    memory: dict[str, Any]
    sizes: dict[str, int]


class OpenCL:
    """An open OpenCL device with one in-order queue."""

    def __init__(self, device: Any) -> None:
        import pyopencl as cl

        self.cl = cl
        self.report = _report(device)
        self.device = device
        with self._faults(LaunchError):
            self.context = cl.Context([device])
            self.queue = cl.CommandQueue(self.context)
        self.params: dict[tuple[int, ...], Any] = {}
        self.simulated = device.platform.name == oclgrind.PLATFORM
        self.reports = oclgrind.Reports()

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> Program:
        """Builds for the device and takes out every entry point."""
        if old := _age_problem(self.device):
            raise old
        standards = [STANDARDS[need] for need in kernel.needs.get("opencl", ()) if need in STANDARDS]
        options = [f"-cl-std={max(standards, default='CL1.2')}"]
        options += [f"-D{name}={value}u" for name, value in constants.items()]
        # Oclgrind's optimiser makes intrinsics (a funnel shift) that its interpreter does not know.
        if self.simulated or optimiser_off():
            options.append("-cl-opt-disable")
        program = self.cl.Program(self.context, text)
        with self._faults(CompileError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a log without an error is no news
            program.build(options)
        entries = {}
        for entry in kernel.entries:
            try:
                entries[entry] = self.cl.Kernel(program, entry)
            except self.cl.Error:
                raise CompileError(f"the build succeeded, but the program has no kernel {entry!r}") from None
        return Program(program, entries)

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Bound:
        """Allocates and uploads; words that `data` does not reach are zero."""
        sizes = {b.name: buffer_bytes(b) for b in buffers}
        largest = max(sizes.values())
        if largest > self.device.max_mem_alloc_size:
            raise Unsupported("max-mem-alloc-size", str(largest), str(self.device.max_mem_alloc_size))
        flags = self.cl.mem_flags
        with self._faults(LaunchError):
            memory = {}
            for b in buffers:
                access = flags.READ_WRITE if b.writable else flags.READ_ONLY
                memory[b.name] = self.cl.Buffer(self.context, access, sizes[b.name])
            for name, content in data.items():
                self.cl.enqueue_copy(self.queue, memory[name], content.ljust(sizes[name], b"\0"))
        return Bound(buffers, memory, sizes)

    def run(
        self, program: Program, bound: Bound, passes: Sequence[Pass], fill: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Fills, dispatches, waits and reads back."""
        self._check_workgroups(passes)
        if any(0 in p.groups for p in passes) and (there := _version(self.device)) < NOTHING:
            raise Unsupported("zero-size-ndrange", "OpenCL 2.1", f"OpenCL {there[0]}.{there[1]}")
        with self._faults(LaunchError):
            for name, content in fill.items():
                self.cl.enqueue_copy(self.queue, bound.memory[name], content)
            self.queue.finish()
            begin = time.perf_counter()
            for p in passes:
                params = struct.pack(f"<{len(p.params)}I", *p.params)
                self.cl.enqueue_copy(self.queue, bound.memory["params"], params)
                kernel = program.entries[p.entry]
                kernel.set_args(*bound.memory.values())
                whole = tuple(g * w for g, w in zip(p.groups, p.workgroup, strict=True))
                self.cl.enqueue_nd_range_kernel(self.queue, kernel, whole, p.workgroup).wait()
            self.dispatch_s = time.perf_counter() - begin
            results = {b.name: bytearray(bound.sizes[b.name]) for b in bound.buffers if b.role in ("output", "receipt")}
            for name, result in results.items():
                self.cl.enqueue_copy(self.queue, result, bound.memory[name])
        return {name: bytes(result) for name, result in results.items()}

    def _check_workgroups(self, passes: Sequence[Pass]) -> None:
        limit = self.device.max_work_group_size
        needed = max(prod(p.workgroup) for p in passes)
        if needed > limit:
            raise Unsupported("max-work-group-size", str(needed), str(limit))

    def allocate(self, size: int) -> Any:
        """See `Backend.allocate`."""
        if size > self.device.max_mem_alloc_size:
            raise Unsupported("max-mem-alloc-size", str(size), str(self.device.max_mem_alloc_size))
        with self._faults(LaunchError):
            return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)

    def write(self, memory: Any, content: bytes) -> None:
        """See `Backend.write`."""
        with self._faults(LaunchError):
            self.cl.enqueue_copy(self.queue, memory, content)

    def submit(self, launches: Iterable[Launch]) -> None:
        """See `Backend.submit`. Arguments of a dispatch stay on the device for the next like it."""
        with self._faults(LaunchError):
            for launch in launches:
                self._check_workgroups(launch.passes)
                for p in launch.passes:
                    kernel = launch.program.entries[p.entry]
                    kernel.set_args(self._arguments(p.params), *launch.memory)
                    whole = tuple(g * w for g, w in zip(p.groups, p.workgroup, strict=True))
                    self.cl.enqueue_nd_range_kernel(self.queue, kernel, whole, p.workgroup)
            self.queue.flush()

    def _arguments(self, params: tuple[int, ...]) -> Any:
        if params not in self.params:
            words = struct.pack(f"<{PARAMS_WORDS}I", *params, *[0] * (PARAMS_WORDS - len(params)))
            flags = self.cl.mem_flags.READ_ONLY | self.cl.mem_flags.COPY_HOST_PTR
            self.params[params] = self.cl.Buffer(self.context, flags, hostbuf=words)
        return self.params[params]

    def read(self, memory: Any, at: int, size: int) -> bytes:
        """See `Backend.read`."""
        content = bytearray(size)
        with self._faults(LaunchError):
            self.cl.enqueue_copy(self.queue, content, memory, src_offset=at)
            if len(self.params) > MOST_PARAMS:
                self.params.clear()  # nothing is under way
        return bytes(content)

    def free(self, memory: Any) -> None:
        """See `Backend.free`."""
        with self._faults(LaunchError):
            memory.release()

    def sanitizer_reports(self) -> list[str]:
        """What Oclgrind, if this is it, has reported since the last call."""
        return self.reports.new() if self.simulated else []

    def artefacts(self, program: Program) -> dict[str, bytes]:
        """The program's binary: PTX text from NVIDIA, the driver's own format elsewhere."""
        try:
            binary = program.build.binaries[0]
        except (self.cl.Error, IndexError):
            return {}
        return {"kernel.ptx" if b".target sm_" in binary[:4096] else "kernel.bin": bytes(binary)} if binary else {}

    def close(self) -> None:
        """Drains the queue and drops queue and context."""
        with self._faults(LaunchError):
            self.queue.finish()
        del self.queue, self.context

    @contextmanager
    def _faults(self, kind: type[DeviceFault]) -> Iterator[None]:
        """Turns what pyopencl raises into a DeviceFault."""
        try:
            yield
        except self.cl.Error as e:
            line = first_line(str(e), LOG_FRAME)
            raise (DeviceLost if e.code in LOST else kind)(line) from e
