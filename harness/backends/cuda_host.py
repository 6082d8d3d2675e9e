"""The CUDA sources on host C++ compilers: one device a compiler, and one more for each under ASan and UBSan.

A kernel becomes a small program of its own (`cuda_host.h` before it, `cuda_host.cpp` linked to it) that serves this module:
it forks a process a core for each dispatch, over parts of the grid. Buffers lie in memory that the processes share. So
nothing that a kernel does can touch the worker, nor what comes after it, and the sanitizers need not be loaded into Python.
"""

import mmap
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness import units
from harness.backends import Driver, Launch, Report
from harness.backends.common import buffer_bytes, first_line, optimiser_off
from harness.backends.cuda_host_served import Program, Served
from harness.dispatch import PARAMS_WORDS, Buffer, Language, Pass
from harness.errors import CompileError, LaunchError, TooOld, UsageError

if TYPE_CHECKING:
    from harness.kernels import Kernel

LANGUAGE: Language = "cuda"
VARIABLE = "SAMEBITS_CUDA_HOST"
CLEARED = ("GCC_EXEC_PREFIX", "COMPILER_PATH", "CCC_OVERRIDE_OPTIONS")
"""Variables that would put parts of another compiler, or other options, in the place of its own."""

FAMILIES = {"g++": "GNU", "clang++": "LLVM"}
SANITIZED = "-asan"

POISON = (0xDEADBEEF, 0x21524110)
"""What shared memory holds before each block, in forward and in reverse runs: complements, so a reader differs."""

REDZONE = 1 << 16
"""Bytes around each buffer that no kernel may touch; only ASan sees it."""

LOG_BYTES = 1 << 16
"""Bytes of a process's standard error that are read."""

SANITIZERS = ("-fsanitize=address,undefined", "-fsanitize-recover=address,undefined", "-fno-omit-frame-pointer", "-g1")
SANITIZER_OPTIONS = "halt_on_error=0:abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=0"
OLD = re.compile(
    r"(unrecognized|unknown|unsupported|invalid) (command[- ]line option|argument|option|value) .*?(c\+\+17|-fsanitize[\w-]*)"
)
"""What a compiler says of an option that is newer than itself."""

REPORT_LINE = re.compile(r"((?<=SUMMARY: )AddressSanitizer: .*|.*runtime error: .*|barrier divergence: .*)")


@dataclass(frozen=True)
class Compiler:
    """A host compiler and whether it builds with sanitizers."""

    family: str
    path: str
    sanitized: bool

    @property
    def label(self) -> str:
        """`g++`, `clang++-asan`."""
        return self.family + (SANITIZED if self.sanitized else "")


@dataclass
class Bound:
    """Buffers in shared memory: descriptor, mapping, and where each begins."""

    buffers: Sequence[Buffer]
    descriptor: int
    memory: mmap.mmap
    offsets: dict[str, int]
    runs: int = field(default=0)

    def write(self, name: str, data: bytes) -> None:
        """Put `data` at the start of buffer `name`."""
        self.memory[self.offsets[name] : self.offsets[name] + len(data)] = data

    def read(self, buffer: Buffer) -> bytes:
        """The bytes of `buffer`, its guard included."""
        start = self.offsets[buffer.name]
        return self.memory[start : start + buffer_bytes(buffer)]


class Arena:
    """Buffers for `submit`, one behind the other in shared memory that grows; a freed one's place serves the next of its size."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("samebits")
        weakref.finalize(self, os.close, self.descriptor)
        self.length = REDZONE + 4 * PARAMS_WORDS
        os.ftruncate(self.descriptor, self.length)
        self.places: dict[int, list[int]] = {}

    def allocate(self, size: int) -> tuple[int, int]:
        """Where the buffer begins, and its size."""
        if free := self.places.get(size):
            return free.pop(), size
        offset = -(-self.length // REDZONE) * REDZONE + REDZONE
        os.ftruncate(self.descriptor, offset + size)
        self.length = offset + size
        return offset, size


def _compilers() -> Iterator[Compiler]:
    """The newest of each family on PATH, plain and sanitized; the highest version suffix counts as newest."""
    for family in FAMILIES:
        found: dict[int, str] = {}
        name = re.compile(re.escape(family) + r"(?:-(\d+))?")
        for folder in filter(os.path.isdir, os.get_exec_path()):
            for file in os.listdir(folder):
                path = os.path.join(folder, file)
                if (match := name.fullmatch(file)) and os.access(path, os.X_OK):
                    found.setdefault(int(match[1] or 0), path)
        if found:
            yield Compiler(family, found[max(found)], False)
            yield Compiler(family, found[max(found)], True)


def drivers() -> list[Driver]:
    """One driver a compiler and build. Only Linux has the shared memory and the linker script that this needs."""
    problem = None if platform.system() == "Linux" else f"cuda_host needs Linux, not {platform.system()}"
    return [
        Driver("cuda_host", c.label, c.path, {VARIABLE: c.label} | dict.fromkeys(CLEARED), problem)
        for c in _compilers()
    ]


def _selected() -> Compiler:
    label = os.environ.get(VARIABLE)
    for compiler in _compilers():
        if compiler.label == label:
            return compiler
    there = ", ".join(c.label for c in _compilers()) or "none"
    raise UsageError(f"{VARIABLE}={label}: no such compiler on PATH; there are: {there}")


def probe() -> list[dict[str, Any]]:
    """The selected compiler as a device, after it has built and run a kernel of one line."""
    host = CudaHost(_selected())
    try:
        host.check()
        return [msgspec.to_builtins(host.report)]
    finally:
        host.close()


def cache_environment(folder: Path) -> dict[str, str]:
    """Sources and executables go into the run's private folder, so that a killed worker leaves none behind."""
    return {"TMPDIR": str(folder)}


def open_device(index: int) -> "CudaHost":
    """The selected compiler; there is one device a driver."""
    if index != 0:
        raise UsageError(f"cuda_host: no device {index}, only 0")
    return CudaHost(_selected())


class CudaHost:
    """A host compiler as a device; see `harness.backends.Backend`."""

    def __init__(self, compiler: Compiler, options: Sequence[str] = ()) -> None:
        self._compiler = compiler
        self._options = [
            *(options or ["-O0" if optimiser_off() else "-O1" if compiler.sanitized else "-O2"]),
            "-std=c++17",
            *(SANITIZERS if compiler.sanitized else ()),
        ]
        if compiler.sanitized and compiler.family == "g++":
            self._options.append("-fsanitize-sections=.samebits.shared")
        self._folder = tempfile.TemporaryDirectory(prefix="samebits-")
        self._root = Path(self._folder.name)
        self._programs = 0
        self._reports: list[str] = []
        self._arena = Arena()
        self._cores = len(os.sched_getaffinity(0))
        # addr2line comes with the linker; the symbolizer of LLVM is often not installed.
        self._environment = {**os.environ, "ASAN_OPTIONS": SANITIZER_OPTIONS, "UBSAN_OPTIONS": "print_stacktrace=0"}
        self._environment["ASAN_SYMBOLIZER_PATH"] = shutil.which("addr2line") or ""
        self._served = Served(self._root, self._environment)
        self.report = self._describe()
        self._runtime = self._root / "runtime.o"
        try:
            row = [
                f"-DSAMEBITS_CLANG={int(compiler.family == 'clang++')}",
                f"-DSAMEBITS_SANITIZED={int(compiler.sanitized)}",
            ]
            self._build([*row, "-c", str(Path(__file__).with_suffix(".cpp")), "-o", str(self._runtime)])
        except CompileError as e:
            if old := OLD.search(str(e)):
                needed = "C++17" if "17" in old[3] else f"{old[3]} of g++ 8 or clang++ 7"
                mend = "install a newer one and put it on PATH"
                raise TooOld(compiler.family, f"one with {needed}", self.report.driver, mend) from None
            raise

    def _describe(self) -> Report:
        version = subprocess.run([self._compiler.path, "--version"], capture_output=True, text=True, errors="replace")
        line = (version.stdout.splitlines() or ["unknown"])[0]
        numbers = re.findall(r"\d+\.\d+(?:\.\d+)?", line)
        number = numbers[-1] if numbers else "unknown"
        name = f"{self._compiler.family} {number}" + (" with ASan and UBSan" if self._compiler.sanitized else "")
        return Report(
            name=name,
            vendor=FAMILIES[self._compiler.family],
            driver=number,
            kind="software",
            compiler=line,
            features=sorted(units.CUDA) + (["sanitizers"] if self._compiler.sanitized else []),
            limits={"maxThreadsPerBlock": 1024},
            raw={"options": self._options, "machine": platform.machine(), "processes": self._cores},
        )

    def _build(self, arguments: Sequence[str]) -> None:
        command = [self._compiler.path, *self._options, *arguments]
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            log = self._without_folders(done.stderr[:LOG_BYTES])
            lines = log.splitlines() or [f"the compiler ended with {done.returncode}"]
            first = next((line for line in lines if "error" in line or "cannot find" in line), lines[0])
            raise CompileError(f"{first_line(first)}\n{log}")

    def _without_folders(self, log: str) -> str:
        return re.sub(re.escape(str(self._root)) + r"/(\d+/)?", "", log)

    def _program(self, text: str, entries: Sequence[str], arguments: int, constants: Mapping[str, int]) -> Program:
        """Build `text` with the table of its entry points behind it."""
        self._programs += 1
        source = self._root / str(self._programs) / "kernel.cu"
        source.parent.mkdir()
        path = source.with_suffix(".elf")
        call = ", ".join(f"a[{i}]" for i in range(arguments))
        rows = [f'{{"{e}", {arguments}, [](const samebits::Argument *a) {{ {e}({call}); }}}}, ' for e in entries]
        source.write_text(
            f'{text}\n#line 1 "entries"\n'
            f"extern const samebits::Entry samebits_entries[] = {{{''.join(rows)}{{nullptr, 0, nullptr}}}};\n",
            "utf-8",
        )
        here = Path(__file__)
        defines = [f"-D{name}={value}u" for name, value in constants.items()]
        before = ["-include", str(here.with_suffix(".h")), "-x", "c++", str(source)]
        linked = ["-x", "none", str(self._runtime), f"-Wl,-T,{here.with_suffix('.ld')}"]
        self._build([*defines, *before, *linked, "-o", str(path)])
        return Program(path)

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> Program:
        """See `Backend.compile`. Every entry point takes all arguments of the kernel."""
        return self._program(text, kernel.entries, len(kernel.writable), constants)

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Bound:
        """See `Backend.bind`."""
        offsets, end = {}, REDZONE
        for b in buffers:
            offsets[b.name] = end
            end += -(-buffer_bytes(b) // REDZONE) * REDZONE + REDZONE
            if len(data.get(b.name, b"")) > buffer_bytes(b):
                raise LaunchError(f"buffer {b.name} takes {buffer_bytes(b)} bytes, not {len(data[b.name])}")
        try:
            descriptor = os.memfd_create("samebits")
            os.ftruncate(descriptor, end)
            bound = Bound(buffers, descriptor, mmap.mmap(descriptor, end), offsets)
            weakref.finalize(bound, os.close, descriptor)
        except OSError as e:
            raise LaunchError(f"no {end} bytes of shared memory: {e.strerror}") from None
        for name, content in data.items():
            bound.write(name, content)
        return bound

    def run(
        self, program: Program, bound: Bound, passes: Sequence[Pass], fill: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """See `Backend.run`. Lanes and blocks go forward in the first run of `bound`, in reverse in the second."""
        for name, content in fill.items():
            bound.write(name, content)
        begin = time.perf_counter()
        for p in passes:
            bound.write("params", struct.pack(f"<{len(p.params)}I", *p.params))
            places = [(bound.offsets[b.name], 4 * b.words) for b in bound.buffers]
            self._dispatch(program, (bound.descriptor, len(bound.memory)), places, p, reverse=bound.runs % 2 == 1)
        self.dispatch_s = time.perf_counter() - begin
        bound.runs += 1
        return {b.name: bound.read(b) for b in bound.buffers if b.role in ("output", "receipt")}

    def allocate(self, size: int) -> tuple[int, int]:
        """See `Backend.allocate`."""
        try:
            return self._arena.allocate(size)
        except OSError as e:
            raise LaunchError(f"no {size} bytes of shared memory: {e.strerror}") from None

    def write(self, memory: tuple[int, int], content: bytes) -> None:
        """See `Backend.write`."""
        os.pwrite(self._arena.descriptor, content, memory[0])

    def submit(self, launches: Iterable[Launch]) -> None:
        """See `Backend.submit`; here each dispatch is waited for. Lanes and blocks go forward."""
        for launch in launches:
            places = [(REDZONE, 4 * PARAMS_WORDS)]
            places += [(at, 4 * words) for (at, _), words in zip(launch.memory, launch.words, strict=True)]
            for p in launch.passes:
                words = struct.pack(f"<{PARAMS_WORDS}I", *p.params, *[0] * (PARAMS_WORDS - len(p.params)))
                os.pwrite(self._arena.descriptor, words, REDZONE)
                self._dispatch(launch.program, (self._arena.descriptor, self._arena.length), places, p, reverse=False)

    def read(self, memory: tuple[int, int], at: int, size: int) -> bytes:
        """See `Backend.read`."""
        return os.pread(self._arena.descriptor, size, memory[0] + at)

    def free(self, memory: tuple[int, int]) -> None:
        """See `Backend.free`."""
        self._arena.places.setdefault(memory[1], []).append(memory[0])

    def _dispatch(
        self, program: Program, shared: tuple[int, int], places: Sequence[tuple[int, int]], p: Pass, reverse: bool
    ) -> None:
        """One pass on buffers at (offset, bytes) of the shared memory of that descriptor and length."""
        descriptor, length = shared
        blocks = p.groups[0] * p.groups[1] * p.groups[2]
        jobs = min(self._cores, -(-blocks // 4))
        memory, log = f"/proc/{os.getpid()}/fd/{descriptor}", self._root / "log"
        geometry = (*p.groups, *p.workgroup, int(reverse), POISON[reverse])
        words = (memory, length, log, jobs, p.entry, *geometry, *(n for place in places for n in place))
        ends = self._served.dispatch(program, words, [Path(f"{log}{job}") for job in range(jobs)])
        for code, said in ends:
            with said.open("rb") as file:
                self._judge(code, file.read(LOG_BYTES).decode("utf-8", "replace"))

    def _judge(self, code: int, log: str) -> None:
        log = self._without_folders(log)
        for match in REPORT_LINE.finditer(log):
            if match[1] not in self._reports:
                self._reports.append(match[1])
        if code < 0:
            # The kernel crashed: so does this worker, by the same signal, which is what its parent looks at.
            sys.stderr.write(log)
            sys.stderr.flush()
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        if code != 0:
            self._reports.clear()
            lines = log.splitlines() or [f"the kernel's process ended with {code}"]
            raise LaunchError(lines[-1])

    def sanitizer_reports(self) -> list[str]:
        """What ASan, UBSan and the barrier check have said since the last call, one line each, at most 20."""
        reports, self._reports = self._reports[:20], []
        return reports

    def check(self) -> None:
        """Build and run a kernel of one line; raises CompileError or LaunchError."""
        text = 'extern "C" __global__ void check(unsigned int *params) { params[1] = params[0] + 1u; }'
        program = self._program(text, ["check"], 1, {})
        bound = self.bind([Buffer("params", "params", 2)], {})
        self.run(program, bound, [Pass("check", (1, 1, 1), (1, 1, 1), (41,))], {})
        value = struct.unpack("<2I", bound.read(bound.buffers[0]))[1]
        if value != 42 or self._reports:
            raise LaunchError(f"a kernel of one line gave {value}, not 42; {'; '.join(self._reports)}")

    def artefacts(self, program: Program) -> dict[str, bytes]:
        """See `Backend.artefacts`."""
        return {"kernel.elf": program.path.read_bytes()}

    def close(self) -> None:
        """See `Backend.close`."""
        self._served.close()
        self._folder.cleanup()
