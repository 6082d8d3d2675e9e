"""Mock devices: every fault that a device can have, without a GPU. They exist only where SAMEBITS_MOCK is set.

    SAMEBITS_MOCK="match,crash,mismatch/all,match@VendorA,hang-run+signal-handlers,match:2,card=mismatch~2.1"

Items are separated by commas, each is one driver: behaviours joined by `+`, then `/all` (faults strike everywhere),
`@VENDOR` (the device claims to be that vendor's hardware), `~VERSION` (of the driver, else 1), `:COUNT` (so many
devices). `NAME=` before it names the driver, which then stays the same whatever it does. Without `/all` a fault strikes
exactly one run key of every preset: base gemm_i32 of 17 x 19 x 23 under `reverse`; faults in compiling strike base
gemm_i32 under `reverse` in any shape. Known-bad twins are honest. Every name starts with "mock".
"""

import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from harness import schedules
from harness.backends import Driver, Launch, Report
from harness.dispatch import Buffer, Language, Pass
from harness.errors import CompileError, DeviceLost, LaunchError, Unsupported, UsageError

if TYPE_CHECKING:
    from harness.kernels import Kernel

LANGUAGE: Language = "opencl"
VARIABLE = "SAMEBITS_MOCK"

BEHAVIOURS = {
    "match": "behaves",
    # in discovery
    "no-device": "the driver is there, no device is",
    "hang-probe": "hangs when asked for its devices",
    "lying-name": "a software renderer that claims to be a graphics card",
    "compile-only": "compiles, and cannot run",
    # while a worker lives
    "noisy": "prints 4 MiB on standard output and on standard error when opened",
    "closes-stdout": "closes standard output when opened",
    "signal-handlers": "ignores TERM and INT once opened",
    "hang-shutdown": "hangs when closed",
    "known-bad-missed": "leaves no accumulation out where the known-bad twin should",
    # in compiling, where the fault strikes
    "compile-error": "the compiler refuses the kernel",
    "unsupported": "the device lacks a feature",
    "hang-compile": "the compiler hangs",
    # in a run, where the fault strikes
    "mismatch": "one bit of one output word is wrong, in both runs",
    "nondeterministic": "one bit differs between the two runs",
    "unwritten": "the last output word keeps what was there",
    "write-past-end": "the first guard word is overwritten",
    "wrong-nonce": "the receipt holds another number",
    "sanitizer": "right, with a report",
    "launch-error": "the driver refuses the dispatch",
    "device-lost": "the device is lost, and stays so",
    "crash": "SIGSEGV",
    "hang-run": "the dispatch hangs",
    "zombies": "each run leaves a dead child unreaped, and a sleeping one in a session of its own",
    "memory-eater": "takes memory, up to 4 GiB or half of what is free, and behaves",
}
"""Behaviour -> what it does."""

PLACE = (17, 19, 23)
"""M, N, K where faults in a run strike; one case of every preset has this shape."""

EATEN = 4 << 30


@dataclass(frozen=True)
class Spec:
    """One parsed item of SAMEBITS_MOCK."""

    text: str
    behaviours: frozenset[str]
    everywhere: bool
    vendor: str | None
    count: int
    version: str = "1"
    name: str | None = None

    @property
    def label(self) -> str:
        """The name, else the item without its version and count, as a driver label."""
        return self.name or re.sub(r"[/@]", "-", re.split("[~:]", self.text)[0])


@dataclass(frozen=True)
class Program:
    """A compiled kernel; `nonce` goes into the receipt, `struck`: a fault in a run may strike it."""

    kernel: "Kernel"
    known_bad: bool
    nonce: int
    struck: bool


@dataclass
class Bound:
    """Buffers and how often they were run on."""

    buffers: Sequence[Buffer]
    data: Mapping[str, bytes]
    runs: int = 0


def _parse(item: str) -> Spec:
    match = re.fullmatch(r"(?:(\w+)=)?([a-z+-]+)(/all)?(?:@(\w+))?(?:~([\d.]+))?(?::([1-9]))?", item)
    behaviours = frozenset(match[2].split("+")) if match else frozenset()
    if match is None or not behaviours <= BEHAVIOURS.keys():
        raise UsageError(f"{VARIABLE}: {item!r} is no mock device; behaviours are {', '.join(BEHAVIOURS)}")
    return Spec(item, behaviours, bool(match[3]), match[4], int(match[6] or 1), match[5] or "1", match[1])


def drivers() -> list[Driver]:
    """One driver an item of SAMEBITS_MOCK; raises UsageError for an unknown behaviour."""
    items = [item.strip() for item in os.environ.get(VARIABLE, "").split(",")]
    specs = [_parse(item) for item in items if item]
    return [Driver("mock", spec.label, VARIABLE, {VARIABLE: spec.text}) for spec in specs]


def cache_environment(folder: Path) -> dict[str, str]:
    """A mock keeps nothing in `folder`."""
    return {}


def probe() -> list[dict[str, Any]]:
    """The devices of the one item in SAMEBITS_MOCK."""
    spec = _parse(os.environ[VARIABLE])
    if "hang-probe" in spec.behaviours:
        _hang()
    count = 0 if "no-device" in spec.behaviours else spec.count
    return [msgspec.to_builtins(_report(spec, index)) for index in range(count)]


def open_device(index: int) -> "Mock":
    """The device at that place of `probe()`."""
    return Mock(_parse(os.environ[VARIABLE]), index)


def _report(spec: Spec, index: int) -> Report:
    lies, only = "lying-name" in spec.behaviours, "compile-only" in spec.behaviours
    return Report(
        name="mock NVIDIA GeForce RTX 4090" if lies else f"mock {spec.label}",
        vendor="NVIDIA" if lies else spec.vendor or "mock",
        driver="llvmpipe (LLVM 15.0.6, 256 bits)" if lies else f"mock {spec.version}",
        kind="compile-only" if only else "hardware" if lies or spec.vendor else "software",
        uuid=str(uuid.uuid5(uuid.NAMESPACE_OID, f"samebits mock {spec.label} {index}")),
        features=["cl_khr_integer_dot_product", "device-type-cpu"],
        raw={"mock": spec.text},
    )


def _hang() -> None:
    while True:
        time.sleep(3600)


class Mock:
    """A mock device; see `harness.backends.Backend`."""

    def __init__(self, spec: Spec, index: int) -> None:
        self._spec = spec
        self._lost = False
        self._reports: list[str] = []
        self.dispatch_s = 0.0
        self._eaten: list[bytearray] = []
        self.report = _report(spec, index)
        if self._does("noisy"):
            for _ in range(1 << 6):
                os.write(1, b"noise " * (1 << 13))
                os.write(2, b"\xff\x1b[31m" * (1 << 13))
        if self._does("closes-stdout"):
            os.close(1)
        if self._does("signal-handlers"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _does(self, behaviour: str) -> bool:
        return behaviour in self._spec.behaviours

    def compile(self, kernel: "Kernel", text: str, constants: Mapping[str, int]) -> Program:
        """See `Backend.compile`; the text is not read."""
        if kernel.name not in COMPUTED:
            raise Unsupported("arithmetic", kernel.name, "gemms and linears, which is all that the mock computes")
        known_bad = bool(constants["KNOWN_BAD"])
        place = (kernel.name, kernel.variant, constants["SCHEDULE"]) == ("gemm_i32", "base", schedules.REVERSE)
        struck = not known_bad and (place or self._spec.everywhere)
        if struck:
            if self._does("hang-compile"):
                _hang()
            if self._does("compile-error"):
                raise CompileError("kernel:1:1: error: planted by the mock\n1 error generated.")
            if self._does("unsupported"):
                raise Unsupported("mock-feature")
        return Program(kernel, known_bad and not self._does("known-bad-missed"), constants["NONCE"], struck)

    def bind(self, buffers: Sequence[Buffer], data: Mapping[str, bytes]) -> Bound:
        """See `Backend.bind`."""
        return Bound(buffers, data)

    def run(
        self, program: Program, bound: Bound, passes: Sequence[Pass], fill: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """See `Backend.run`. The answer does not depend on the schedule."""
        m, n, k = passes[0].params[:3]
        struck = program.struck and (self._spec.everywhere or (m, n, k) == PLACE)
        bound.runs += 1
        if struck:
            self._misbehave()
        if self._lost:
            raise DeviceLost("lost, as the mock was told")
        name = program.kernel.output.name
        kernel = program.kernel.name
        multiply = partial(_gemm, *GEMMS[kernel]) if kernel in GEMMS else partial(_linear, *LINEARS[kernel])
        output = np.frombuffer(bytearray(fill[name]), "<u4")
        words = next(b.words for b in bound.buffers if b.role == "output")
        before = output[words - 1]
        output[:words] = multiply({**bound.data, **fill}, m, n, k, program.known_bad)
        receipt = np.frombuffer(bytearray(fill["receipt"]), "<u4")
        for p in passes:
            receipt[program.kernel.entries.index(p.entry)] = program.nonce
        if struck:
            if self._does("mismatch") or (self._does("nondeterministic") and bound.runs % 2 == 0):
                output[words // 2] ^= np.uint32(1 << 7)
            if self._does("unwritten"):
                output[words - 1] = before
            if self._does("write-past-end"):
                output[words] = 0
            if self._does("wrong-nonce"):
                receipt ^= np.uint32(1)
        return {name: output.tobytes(), "receipt": receipt.tobytes()}

    def allocate(self, size: int) -> bytearray:
        """See `Backend.allocate`."""
        return bytearray(size)

    def write(self, memory: bytearray, content: bytes) -> None:
        """See `Backend.write`."""
        memory[: len(content)] = content

    def submit(self, launches: Iterable[Launch]) -> None:
        """See `Backend.submit`: each launch is a `run`."""
        for launch in launches:
            kernel = launch.program.kernel
            names = (*(t.name for t in kernel.inputs), "order", "scratch", kernel.output.name, "receipt")
            words = dict(zip(names, launch.words, strict=True))
            output = Buffer(kernel.output.name, "output", words[kernel.output.name])
            there = dict(zip(names, launch.memory, strict=True))
            made = self.run(launch.program, Bound([output], there), launch.passes, there)
            for name, content in made.items():
                there[name][:] = content

    def read(self, memory: bytearray, at: int, size: int) -> bytes:
        """See `Backend.read`."""
        return bytes(memory[at : at + size])

    def free(self, memory: bytearray) -> None:
        """See `Backend.free`."""

    def _misbehave(self) -> None:
        """Faults that strike before the answer is there."""
        if self._does("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._does("hang-run"):
            _hang()
        if self._does("launch-error"):
            raise LaunchError("out of resources, as the mock was told")
        if self._does("device-lost"):
            self._lost = True
        if self._does("sanitizer"):
            self._reports.append("mock: a planted report of a bad access")
        if self._does("zombies"):
            python = [sys.executable, "-c"]
            os.posix_spawn(sys.executable, [*python, "import time; time.sleep(600)"], os.environ, setsid=True)
            os.posix_spawn(sys.executable, [*python, ""], os.environ)
        if self._does("memory-eater"):
            enough = min(EATEN, psutil.virtual_memory().available // 2)
            while sum(map(len, self._eaten)) < enough:
                self._eaten.append(bytearray(b"\1") * (1 << 26))
                time.sleep(0.02)

    def sanitizer_reports(self) -> list[str]:
        """What was reported since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def artefacts(self, program: Program) -> dict[str, bytes]:
        """See `Backend.artefacts`: a line of text."""
        return {"kernel.txt": f"mock {program.kernel.stem}\n".encode()}

    def close(self) -> None:
        """See `Backend.close`."""
        if self._does("hang-shutdown"):
            _hang()


Words = npt.NDArray[np.uint32]


GEMMS = {
    "gemm_i32": ("<i4", "<u4"),
    "gemm_i32_i64": ("<i4", "<u8"),
    "gemm_i8": ("i1", "<u4"),
    "gemm_f32": ("<f4", "<f4"),
}
"""NumPy's types of A and B, and of the sums, which wrap."""

LINEARS = {"linear_q8_0": (34, 1), "linear_q4_1": (20, 2), "linear_q4_0": (18, 1)}
"""Bytes of a block, and how many halves stand at its beginning."""

COMPUTED = (*GEMMS, *LINEARS)
"""The kernels that a mock can answer; every other is unsupported there."""


def _gemm(element: str, sums: str, data: Mapping[str, bytes], m: int, n: int, k: int, known_bad: bool) -> Words:
    """The product modulo the word as words; without the last term where it is known to be bad."""
    terms = k - known_bad
    a = np.frombuffer(data["a"], element, m * k).reshape(m, k)[:, :terms].astype(sums)
    b = np.frombuffer(data["b"], element, k * n).reshape(k, n)[:terms].astype(sums)
    words: Words = (a @ b).reshape(-1).view("<u4")
    return words


def _linear(size: int, halves: int, data: Mapping[str, bytes], m: int, n: int, k: int, known_bad: bool) -> Words:
    """Op 2 of dyadic-q16 on rows of blocks as pairs of words; int64 wraps where a contract is broken."""
    terms = k - known_bad
    x = np.frombuffer(data["x"], "<i8", m * k).reshape(m, k)[:, :terms]
    w = np.frombuffer(data["w"], "u1", n * k // 32 * size).reshape(n, k // 32, size)
    out = np.empty((m, n), "<i8")
    for start in range(0, n, 4096):  # the weights of a whole output head take a gigabyte
        weights = _weights(w[start : start + 4096], halves).reshape(-1, k)[:, :terms]
        out[:, start : start + 4096] = (weights @ x.T).T
    out += np.frombuffer(data["bias"], "<i8", n)
    words: Words = ((out + (1 << 23)) >> 24).reshape(-1).view("<u4")
    return words


def _weights(blocks: npt.NDArray[np.uint8], halves: int) -> npt.NDArray[np.int64]:
    """The Q24 weights of blocks: float64 holds any fp16 times 2^24."""
    head = np.ascontiguousarray(blocks[..., : 2 * halves]).view("<f2").astype(np.float64) * 2**24
    scales, stored = head.astype(np.int64), blocks[..., 2 * halves :]
    if stored.shape[-1] == 32:
        return scales * stored.view(np.int8)
    nibbles = np.concatenate([stored & 15, stored >> 4], axis=-1).astype(np.int64)
    weights: npt.NDArray[np.int64] = scales[..., :1] * nibbles + (scales[..., 1:] if halves == 2 else -8 * scales)
    return weights
