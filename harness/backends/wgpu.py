"""WGSL through wgpu-py and wgpu-native, here on Vulkan: one visible driver, its adapters, one queue.

Another API of wgpu is a module of three lines that calls `probe_adapters`, `open_adapter` with its own type of backend,
and its own `drivers`.
"""

import ctypes
import functools
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.backends import Launch, Report, vulkan_identity
from harness.backends.common import buffer_bytes, is_software, optimiser_off, vendor_name
from harness.backends.vulkan_icds import drivers as drivers
from harness.backends.vulkan_icds import library_named_by
from harness.dispatch import PARAMS_WORDS, Buffer, Language, Pass
from harness.errors import CompileError, DeviceFault, DeviceLost, LaunchError, TooOld, Unsupported

if TYPE_CHECKING:
    from harness.kernels import Kernel

LANGUAGE: Language = "wgsl"
INSTANCE = {"Vulkan": "Vulkan", "OpenGL": "GL", "Metal": "Metal", "D3D12": "DX12"}
"""Type of backend, as an adapter tells it -> the name of the instance flag."""

FEATURES = ("shader-int64",)
LINE = (
    "@group(0) @binding(0) var<storage, read_write> a: array<u32>; @compute @workgroup_size(1) fn line() { a[0] = 1u; }"
)
"""What a device must build to be one that can be used."""

LIMITS = ("max-compute", "max-storage-buffer", "max-buffer")
"""Beginnings of the limits asked for at their full height: else a device has WebGPU's defaults, not its adapter's."""

MOST_PARAMS = 4096
"""Arguments of dispatches that are kept on the device at most."""


def cache_environment(folder: Path) -> dict[str, str]:
    """Variables that keep driver caches inside `folder`, or off."""
    return {
        "MESA_SHADER_CACHE_DISABLE": "true",
        "__GL_SHADER_DISK_CACHE": "0",
        "CUDA_CACHE_DISABLE": "1",
        "XDG_CACHE_HOME": str(folder),
    }


def probe() -> list[dict[str, Any]]:
    """The Vulkan adapters of the visible driver; [] where it has none."""
    return probe_adapters("Vulkan")


def open_device(index: int) -> "Wgpu":
    """The adapter at that place of `probe()`."""
    return open_adapter("Vulkan", index)


def probe_adapters(backend: str) -> list[dict[str, Any]]:
    """The adapters of one type of backend."""
    found = _adapters(backend)
    _check_compiler(found)
    return [msgspec.to_builtins(report) for _, report in found]


def _check_compiler(adapters: Sequence[tuple[Any, Report]]) -> None:
    """Raises DeviceFault, with its first words, where no adapter opens and builds a line: it is there, and of no use."""
    refused = None
    for adapter, report in adapters:
        try:
            device = Wgpu(adapter, report)
            try:
                device.build(LINE)
                return
            finally:
                device.close()
        except DeviceFault as fault:
            refused = refused or fault
    if refused:
        raise refused


def open_adapter(backend: str, index: int) -> "Wgpu":
    """The adapter at that place among those of one type of backend."""
    adapters = _adapters(backend)
    if index >= len(adapters):
        raise DeviceLost(f"place {index} of {len(adapters)} devices: gone since discovery")
    return Wgpu(*adapters[index])


def _adapters(backend: str) -> list[tuple[Any, Report]]:
    identities = vulkan_identity.query() if backend == "Vulkan" else []
    if backend == "Vulkan" and not identities:  # and wgpu, which takes half a second to load, need not be asked
        if "VK_DRIVER_FILES" in os.environ:
            # Raises OSError with the dynamic loader's own reason where the driver's library does not load.
            ctypes.CDLL(library_named_by(Path(os.environ["VK_DRIVER_FILES"]))[0])
        return []
    import wgpu

    _start(backend)
    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == backend]
    _check_age(backend, adapters, identities)
    keys = [(a.info["device"], a.info["vendor_id"], a.info["device_id"]) for a in adapters]
    if backend == "Vulkan":
        _check_alone(keys, identities)
    matched = vulkan_identity.match(keys, identities)
    return [(a, _report(a, identity)) for a, identity in zip(adapters, matched, strict=True)]


def _check_alone(keys: Sequence[tuple[str, int, int]], identities: Sequence[vulkan_identity.Identity]) -> None:
    """Raises DeviceFault where the devices are not those of one driver."""
    if len(seen := {i.driver for i in identities}) > 1:
        raise DeviceFault(f"expected one driver, see {', '.join(sorted(seen))}")
    if strange := {name for name, *_ in set(keys) - {i.key for i in identities}}:
        raise DeviceFault(f"wgpu sees what the driver does not list: {', '.join(sorted(strange))}")


def _check_age(backend: str, adapters: Sequence[Any], identities: Sequence[vulkan_identity.Identity]) -> None:
    """Raises TooOld where the driver's devices cannot compute by this API, DeviceFault where wgpu takes none of them."""
    mend = "update the driver; a card that no newer one knows can be tried by another API"
    if adapters and all(a.limits["max-compute-workgroups-per-dimension"] == 0 for a in adapters):
        needed = "OpenGL 4.3 or OpenGL ES 3.1 (compute shaders)" if backend == "OpenGL" else "one with compute shaders"
        raise TooOld(backend, needed, adapters[0].info["description"] or adapters[0].info["device"], mend)
    if identities and not adapters:
        newest = max(identities, key=lambda i: [int(n) for n in i.api.split(".")])
        if newest.api.startswith("1.0."):
            raise TooOld(f"{newest.name}: Vulkan", "1.1", newest.api, mend)
        names = ", ".join(i.name for i in identities)
        raise DeviceFault(f"wgpu takes none of the driver's devices ({names}, Vulkan {newest.api}): {mend}")


@functools.cache
def _start(backend: str) -> None:
    """Starts wgpu with one API; else it starts all it knows, and lists its OpenGL adapter under each Vulkan driver."""
    from wgpu.backends.wgpu_native import extras

    extras.set_instance_extras(backends=[INSTANCE[backend]])


def _report(adapter: Any, identity: vulkan_identity.Identity | None) -> Report:
    import wgpu
    from wgpu.backends import wgpu_native

    info = dict(adapter.info)
    said = (info["device"], info["vendor"], info["description"])
    software = info["adapter_type"] not in ("DiscreteGPU", "IntegratedGPU") or any(map(is_software, said))
    return Report(
        name=info["device"],
        vendor=vendor_name(info["vendor_id"], info["vendor"]),
        driver=identity.driver if identity else info["description"] or info["vendor"],
        kind="software" if software else "hardware",
        compiler=f"naga of wgpu-native {wgpu_native.__version__}",
        uuid=identity.uuid if identity else None,
        pci=identity.pci if identity else None,
        features=sorted([*adapter.features, *(identity.units if identity else ())]),
        limits={name: int(value) for name, value in adapter.limits.items()},
        raw={
            **(identity.raw if identity else {}),
            **info,
            "wgpu": wgpu.__version__,
            "vulkan": identity and identity.api,
        },
    )


class _Errors(logging.Handler):
    """Errors that wgpu only logs: those that no call of ours raised, a lost device among them."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@dataclass
class Bound:
    """Buffers on the device, in argument order, and their bind group."""

    buffers: Sequence[Buffer]
    memory: dict[str, Any]
    group: Any


class Wgpu:
    """An open wgpu device."""

    def __init__(self, adapter: Any, report: Report) -> None:
        import wgpu

        self.wgpu = wgpu
        self.report = report
        self.errors = _Errors()
        logging.getLogger("wgpu").addHandler(self.errors)
        limits = {name: value for name, value in adapter.limits.items() if name.startswith(LIMITS)}
        features = [f for f in FEATURES if f in adapter.features]
        with self._faults(LaunchError):
            self.device = adapter.request_device_sync(required_features=features, required_limits=limits)
        self.limits = self.device.limits
        self.params: dict[tuple[int, ...], Any] = {}

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> dict[str, Any]:
        """A pipeline by entry point."""
        if optimiser_off():
            raise Unsupported("optimiser-off")
        layout = self._layout(kernel.writable)
        with self._faults(CompileError):
            module = self.device.create_shader_module(code=text)
            return {
                entry: self.device.create_compute_pipeline(
                    layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={"module": module, "entry_point": entry, "constants": dict(constants)},
                )
                for entry in kernel.entries
            }

    def build(self, text: str) -> None:
        """Builds a program with the one entry point `line`, and drops it."""
        with self._faults(CompileError):
            module = self.device.create_shader_module(code=text)
            self.device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "line"})

    def _layout(self, writable: Sequence[bool]) -> Any:
        """All buffers of a kernel, whether or not an entry point uses them."""
        there = self.limits["max-storage-buffers-per-shader-stage"]
        if len(writable) > there:
            raise Unsupported("max-storage-buffers-per-shader-stage", str(len(writable)), str(there))
        kinds = ["storage" if w else "read-only-storage" for w in writable]
        stage = self.wgpu.ShaderStage.COMPUTE
        with self._faults(LaunchError):
            return self.device.create_bind_group_layout(
                entries=[{"binding": i, "visibility": stage, "buffer": {"type": k}} for i, k in enumerate(kinds)]
            )

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Bound:
        """Allocates and uploads; words that `data` does not reach are zero."""
        sizes = {b.name: buffer_bytes(b) for b in buffers}
        layout = self._layout([b.writable for b in buffers])
        memory = {name: self.allocate(size) for name, size in sizes.items()}
        with self._faults(LaunchError):
            for name, content in data.items():
                self.device.queue.write_buffer(memory[name], 0, content.ljust(sizes[name], b"\0"))
            return Bound(buffers, memory, self._group(layout, memory.values()))

    def _group(self, layout: Any, memory: Iterable[Any]) -> Any:
        entries = [{"binding": i, "resource": {"buffer": b}} for i, b in enumerate(memory)]
        return self.device.create_bind_group(layout=layout, entries=entries)

    def run(
        self, program: dict[str, Any], bound: Bound, passes: Sequence[Pass], fill: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Fills, dispatches, waits and reads back."""
        self._check_groups(passes)
        queue = self.device.queue
        with self._faults(LaunchError):
            for name, content in fill.items():
                queue.write_buffer(bound.memory[name], 0, content)
            queue.read_buffer(bound.memory["receipt"])  # waits: wgpu-py's own call for that fails in 0.32
            begin = time.perf_counter()
            for p in passes:
                queue.write_buffer(bound.memory["params"], 0, b"".join(v.to_bytes(4, "little") for v in p.params))
                encoder = self.device.create_command_encoder()
                work = encoder.begin_compute_pass()
                work.set_pipeline(program[p.entry])
                work.set_bind_group(0, bound.group)
                work.dispatch_workgroups(*p.groups)
                work.end()
                queue.submit([encoder.finish()])
            queue.read_buffer(bound.memory["receipt"])
            self.dispatch_s = time.perf_counter() - begin
            wanted = [b.name for b in bound.buffers if b.role in ("output", "receipt")]
            return {name: bytes(queue.read_buffer(bound.memory[name])) for name in wanted}

    def _check_groups(self, passes: Sequence[Pass]) -> None:
        groups = max(max(p.groups) for p in passes)
        there = self.limits["max-compute-workgroups-per-dimension"]
        if groups > there:
            raise Unsupported("max-compute-workgroups-per-dimension", str(groups), str(there))

    def allocate(self, size: int) -> Any:
        """See `Backend.allocate`."""
        for limit in ("max-storage-buffer-binding-size", "max-buffer-size"):
            if size > self.limits[limit]:
                raise Unsupported(limit, str(size), str(self.limits[limit]))
        usage = self.wgpu.BufferUsage.STORAGE | self.wgpu.BufferUsage.COPY_DST | self.wgpu.BufferUsage.COPY_SRC
        with self._faults(LaunchError):
            return self.device.create_buffer(size=size, usage=usage)

    def write(self, memory: Any, content: bytes) -> None:
        """See `Backend.write`."""
        with self._faults(LaunchError):
            self.device.queue.write_buffer(memory, 0, content)

    def submit(self, launches: Iterable[Launch]) -> None:
        """See `Backend.submit`: all in one command buffer. Arguments of a dispatch stay on the device for the next like it."""
        with self._faults(LaunchError):
            encoder = self.device.create_command_encoder()
            work = encoder.begin_compute_pass()
            for launch in launches:
                self._check_groups(launch.passes)
                for p in launch.passes:
                    pipeline = launch.program[p.entry]
                    memory = (self._arguments(p.params), *launch.memory)
                    work.set_pipeline(pipeline)
                    work.set_bind_group(0, self._group(pipeline.get_bind_group_layout(0), memory))
                    work.dispatch_workgroups(*p.groups)
            work.end()
            self.device.queue.submit([encoder.finish()])

    def _arguments(self, params: tuple[int, ...]) -> Any:
        if params not in self.params:
            self.params[params] = self.allocate(4 * PARAMS_WORDS)
            content = b"".join(v.to_bytes(4, "little") for v in params)
            self.device.queue.write_buffer(self.params[params], 0, content)
        return self.params[params]

    def read(self, memory: Any, at: int, size: int) -> bytes:
        """See `Backend.read`."""
        with self._faults(LaunchError):
            content = bytes(self.device.queue.read_buffer(memory, at, size))
        if len(self.params) > MOST_PARAMS:
            self.params.clear()
        return content

    def free(self, memory: Any) -> None:
        """See `Backend.free`."""
        memory.destroy()

    def artefacts(self, program: dict[str, Any]) -> dict[str, bytes]:
        """None: wgpu-native does not hand out what it compiled."""
        return {}

    def close(self) -> None:
        """Destroys the device."""
        self.device.destroy()
        logging.getLogger("wgpu").removeHandler(self.errors)

    @contextmanager
    def _faults(self, kind: type[DeviceFault]) -> Iterator[None]:
        """Turns what wgpu raises, or only logs, into a DeviceFault."""
        self.errors.lines.clear()
        text = ""
        try:
            yield
        except (self.wgpu.GPUError, RuntimeError) as e:
            text = str(e) or type(e).__name__
        text = "\n".join([text, *self.errors.lines]).strip()
        if text:
            lost = re.search(r"device (is |was )?lost", text, re.IGNORECASE)
            raise (DeviceLost if lost else kind)(_one_line(text))


def _one_line(text: str) -> str:
    """wgpu's chain of causes, without its frames and the quoted source."""
    boilerplate = r"$|Validation Error|Caused by:|In wgpu|DEVICE LOST|[│=]|\d+ │"
    lines = [line.strip(" ┌─") for line in map(str.strip, text.splitlines()) if not re.match(boilerplate, line)]
    return "; ".join(lines) or "refused, without a reason"
