"""CUDA sources through a run-time compiler alone, NVRTC or hipRTC: compiled for every architecture it knows, never run.

The C interfaces of the two differ in the first letters of their names and in what comes out.
"""

import ctypes
import importlib.metadata
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends import Driver, Report
from harness.backends.common import check_alone, find_library, first_line, library_problem, optimiser_off, unique_label
from harness.dispatch import Buffer, Pass
from harness.errors import CompileError, DeviceFault, UsageError

if TYPE_CHECKING:
    from harness.kernels import Kernel

VARIABLE = "SAMEBITS_RTC_LIBRARY"
LINE = 'extern "C" __global__ void line(unsigned int *a) { a[0] = 1u; }'


@dataclass(frozen=True)
class Compiler:
    """One of the two. `libraries`: names to look for, the first found counts; `wheels`: distributions that bring it.

    `unoptimised`: the option that turns its optimiser off. `outputs`: file suffix of an artefact -> the end of the name of
    the function that hands it out. `instructions`: those of `units.CUDA` that an architecture has.
    """

    api: str
    name: str
    vendor: str
    label: str
    libraries: tuple[str, ...]
    wheels: tuple[str, ...]
    architectures: tuple[str, ...]
    architecture_option: str
    unoptimised: str
    outputs: dict[str, str]
    instructions: Callable[[str], list[str]]


def drivers(compiler: Compiler) -> list[Driver]:
    """One driver a library: those of installed wheels, and the first of the system's."""
    found: list[Driver] = []
    seen: set[Path] = set()
    system = (path for name in compiler.libraries if (path := find_library(name)))
    for path in (*_in_wheels(compiler), *list(system)[:1]):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        number = re.search(r"\.so\.(\d+)", path.name)
        label = unique_label([compiler.label + (number[1] if number else "")], (d.label for d in found))
        found.append(Driver(compiler.api, label, str(path), {VARIABLE: str(path)}, library_problem(str(path))))
    return found


def _in_wheels(compiler: Compiler) -> Iterator[Path]:
    for wheel in compiler.wheels:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        yield from (Path(str(f.locate())) for f in files if f.name in compiler.libraries)


class CompileOnly:
    """A run-time compiler as a device that runs nothing; see `harness.backends.Backend`."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._library = ctypes.CDLL(os.environ[VARIABLE])
        check_alone(re.escape(Path(os.environ[VARIABLE]).name.partition(".so")[0]), compiler.name)
        self.dispatch_s = 0.0
        refused = {}
        for architecture in compiler.architectures:
            try:
                self._build(LINE, [], architecture)
            except CompileError as e:
                refused[architecture] = str(e)
        self._architectures = [a for a in compiler.architectures if a not in refused]
        if not self._architectures:
            raise CompileError(next(iter(refused.values())))
        version = self._version()
        self.report = Report(
            name=f"{compiler.name} {version} for {', '.join(self._architectures)}",
            vendor=compiler.vendor,
            driver=f"{compiler.name} {version} ({Path(os.environ[VARIABLE]).resolve().name})",
            kind="compile-only",
            compiler=f"{compiler.name} {version}",
            features=["compile-only", *sorted({i for a in self._architectures for i in compiler.instructions(a)})],
            raw={"architectures": self._architectures, "refused": refused},
        )

    def _call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, self._compiler.api + name)(*arguments))

    def _version(self) -> str:
        major, minor = c_int(), c_int()
        if self._call("Version", byref(major), byref(minor)):
            raise DeviceFault(f"{self._compiler.name} does not tell its version")
        return f"{major.value}.{minor.value}"

    def _build(self, text: str, options: Sequence[str], architecture: str) -> dict[str, bytes]:
        """What `text` becomes for one architecture, by suffix; raises CompileError with the log."""
        program = c_void_p()
        given = [*options, "--std=c++17", self._compiler.architecture_option + architecture]
        if self._call("CreateProgram", byref(program), text.encode(), b"kernel.cu", 0, None, None):
            raise CompileError(f"{self._compiler.name} takes no program")
        try:
            array = (c_char_p * len(given))(*(o.encode() for o in given))
            if self._call("CompileProgram", program, len(given), array):
                log = self._take("ProgramLog", program).decode("utf-8", "replace").rstrip("\0")
                raise CompileError(f"{architecture}: {first_line(log)}")
            return {suffix: self._take(name, program) for suffix, name in self._compiler.outputs.items()}
        finally:
            self._call("DestroyProgram", byref(program))

    def _take(self, name: str, program: c_void_p) -> bytes:
        size = c_size_t()
        if self._call(f"Get{name}Size", program, byref(size)):
            return b""
        data = ctypes.create_string_buffer(size.value)
        return data.raw if self._call(f"Get{name}", program, data) == 0 else b""

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> dict[str, bytes]:
        """Builds for every architecture that has what the kernel needs; what came out by file name.

        Each entry point must be in each of them.
        """
        needed = set(kernel.needs.get("cuda", ()))
        architectures = [a for a in self._architectures if needed <= set(self._compiler.instructions(a))]
        options = [f"-D{name}={value}u" for name, value in constants.items()]
        options += [self._compiler.unoptimised] if optimiser_off() else []
        files = {}
        for architecture in architectures:
            for suffix, content in self._build(text, options, architecture).items():
                missing = [entry for entry in kernel.entries if entry.encode() not in content]
                if missing:
                    raise CompileError(f"{architecture}: the build succeeded, but its {suffix} has no {missing[0]!r}")
                files[f"{architecture}.{suffix}"] = content
        return files

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Any:
        """A compiler has no memory."""
        raise UsageError(f"{self._compiler.name} only compiles")

    def run(self, program: Any, bound: Any, passes: Sequence[Pass], fill: Mapping[str, bytes]) -> dict[str, bytes]:
        """A compiler runs nothing."""
        raise UsageError(f"{self._compiler.name} only compiles")

    def artefacts(self, program: dict[str, bytes]) -> dict[str, bytes]:
        """What came out for each architecture."""
        return program

    def close(self) -> None:
        """Nothing is held."""
