"""The CUDA sources on host compilers: right answers in both lane orders, and every planted fault is seen."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from harness import kernels, schedules
from harness.backends import cuda_host
from harness.backends.cuda_host import Compiler, CudaHost
from harness.cases import Case
from harness.errors import CompileError, LaunchError
from harness.kernels import GUARD_WORDS, Buffer, Kernel, Pass

PLAIN = ("g++", "clang++")
SANITIZED = ("g++-asan", "clang++-asan")
NONCE = 0x1234ABCD
GUARD = b"\xce\xfa\xde\xc0" * GUARD_WORDS
SENTINELS = (b"\xa5" * 4, b"\x5a" * 4)


def find(label: str) -> Compiler:
    """The compiler of that label; its absence is a failure where SAMEBITS_EXPECT names it."""
    expected = os.environ.get("SAMEBITS_EXPECT", "").split(",")
    for compiler in cuda_host._compilers():
        if compiler.label == label:
            return compiler
    message = f"{label} is not on PATH"
    if "cuda_host" in expected or label in expected:
        pytest.fail(message)
    pytest.skip(message)


@cache
def opened(label: str, options: tuple[str, ...] = ("-O2",)) -> CudaHost:
    """An open device that builds and runs; a compiler without its sanitizer runtime counts as absent."""
    compiler = find(label)
    try:
        host = CudaHost(compiler, options)
        host.check()
    except CompileError as e:
        if {"cuda_host", label} & set(os.environ.get("SAMEBITS_EXPECT", "").split(",")):
            raise
        pytest.skip(f"{label} does not link: {str(e).splitlines()[0]}")
    OPENED.append(host)
    return host


OPENED: list[CudaHost] = []


@pytest.fixture(scope="module", autouse=True)
def close_them() -> Iterator[None]:
    """Each compiler is opened once for all tests here."""
    yield
    for host in OPENED:
        host.close()


@pytest.fixture(params=PLAIN)
def plain(request: pytest.FixtureRequest) -> CudaHost:
    """Each compiler in turn."""
    return opened(request.param)


@pytest.fixture(params=SANITIZED)
def sanitized(request: pytest.FixtureRequest) -> CudaHost:
    """Each compiler in turn, with ASan and UBSan."""
    return opened(request.param)


GEMM = kernels.find("gemm_i32", "base")
LINEAR = kernels.find("linear_q8_0", "base")


def inputs(kernel: Kernel, m: int, n: int, k: int) -> tuple[dict[str, bytes], list[int]]:
    """Random inputs, and the output words by Python integers."""
    random = np.random.default_rng(m + n + k)
    if kernel.name == "gemm_i32":
        a = random.integers(-(2**31), 2**31, (m, k), dtype=np.int32)
        b = random.integers(-(2**31), 2**31, (k, n), dtype=np.int32)
        product = a.astype(object) @ b.astype(object)
        return {"a": a.tobytes(), "b": b.tobytes()}, [int(v) % 2**32 for v in product.flat]
    scale = random.integers(1, 0x3C00, (n, k // 32, 1), dtype=np.uint16)
    quants = random.integers(-128, 128, (n, k // 32, 32), dtype=np.int8)
    w = np.concatenate([scale.view(np.uint8), quants.view(np.uint8)], axis=2)
    x = random.integers(-(2**20), 2**20, (m, k), dtype=np.int64)
    bias = random.integers(-(2**40), 2**40, n, dtype=np.int64)
    # np.float64 holds any fp16 times 2^24 exactly.
    frozen = (scale.view(np.float16).astype(np.float64) * 2**24).astype(np.int64).astype(object)
    weights = (frozen * quants.astype(object)).reshape(n, k)
    y = [(int(v) + 2**23) >> 24 for v in (bias.astype(object) + x.astype(object) @ weights.T).flat]
    tensors = {"w": w.tobytes(), "x": x.tobytes(), "bias": bias.tobytes()}
    return tensors, [word for v in y for word in (v % 2**32, (v >> 32) % 2**32)]


def run_twice(
    host: CudaHost, kernel: Kernel, shape: tuple[int, int, int], schedule: str, known_bad: int = 0
) -> list[bool]:
    """Whether each of two runs gave the right output; guards and receipts are asserted."""
    case = Case(kernel.name, tuple(zip("mnk", shape, strict=True)), "full", 0)
    plan = kernel.plan(case, schedule)
    constants = {"SCHEDULE": schedules.NAMES.index(schedule), "KNOWN_BAD": known_bad, "NONCE": NONCE}
    program = host.compile(kernel, kernels.source(kernel, "cuda"), constants)
    data, expected = inputs(kernel, *shape)
    order = struct.pack(f"<{-(-shape[2] // 32)}I", *schedules.tile_order(shape[2], 0))
    bound = host.bind(plan.buffers, {**data, "order": order})
    right = []
    for sentinel in SENTINELS:
        fill = {b.name: sentinel * b.words + GUARD for b in plan.buffers if b.writable}
        fill["receipt"] = bytes(16)
        result = host.run(program, bound, plan.passes, fill)
        output = result[kernel.output.name]
        assert output.endswith(GUARD)
        assert all(result["receipt"][4 * i : 4 * i + 4] == NONCE.to_bytes(4, "little") for i in plan.receipts)
        right.append(list(struct.unpack(f"<{len(expected)}I", output[: 4 * len(expected)])) == expected)
    assert host.sanitizer_reports() == []
    return right


TRIED = (GEMM, LINEAR, kernels.find("linear_q8_0", "int64"))
EXACT = [
    *(("g++", GEMM, schedule) for schedule in schedules.NAMES),
    *(
        (label, kernel, schedules.NAMES[(3 * place + number) % 5])
        for place, label in enumerate(PLAIN + SANITIZED)
        for number, kernel in enumerate(TRIED)
        if (label, kernel.stem) != ("g++", GEMM.stem)
    ),
]
"""One kernel under all schedules; each kernel on each compiler, under the schedules in turn. The gate's rows do all of it."""


@pytest.mark.parametrize(("label", "kernel", "schedule"), EXACT, ids=lambda v: getattr(v, "stem", v))
def test_kernels_are_exact_forward_and_reverse(label: str, kernel: Kernel, schedule: str) -> None:
    """The same words from both lane orders, more blocks than processes, and no report under sanitizers."""
    host = opened(label)
    shape = (33, 35, 67) if kernel.name == "gemm_i32" else (3, 131, 96)
    assert run_twice(host, kernel, shape, schedule) == [True, True]


@pytest.mark.parametrize("kernel", [GEMM, LINEAR], ids=lambda k: k.stem)
def test_the_known_bad_twin_differs(plain: CudaHost, kernel: Kernel) -> None:
    """One accumulation left out must show, or a match would prove nothing."""
    assert run_twice(plain, kernel, (5, 7, 64), "forward", known_bad=1) == [False, False]


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-DSAMEBITS_UCONTEXT")], ids=["O0", "ucontext"])
@pytest.mark.parametrize("label", ["g++", "clang++-asan"])
def test_no_optimiser_and_the_fallback_for_other_processors_give_the_same(label: str, options: tuple[str, ...]) -> None:
    """Fibers by ucontext serve where there is no assembly for the processor."""
    host = opened(label, options)
    assert run_twice(host, GEMM, (17, 19, 33), "tiled_shuffled") == [True, True]


WORDS = 8
BUFFERS = [
    Buffer("params", "params", 8),
    Buffer("a", "input", WORDS),
    Buffer("b", "input", WORDS),
    Buffer("order", "input", 1),
    Buffer("scratch", "scratch", 4),
    Buffer("c", "output", WORDS),
    Buffer("receipt", "receipt", 4),
]
SIGNATURE = (
    "(const unsigned *params, const int *a, const int *b, const unsigned *order, "
    "unsigned *scratch, unsigned *c, unsigned *receipt)"
)


def text(body: str) -> str:
    """A kernel of one block of WORDS lanes; `i` is the lane."""
    return (
        f'extern "C" __global__ void multiply{SIGNATURE} {{ const unsigned i = threadIdx.x;\n{body}\n}}\n'
        f'extern "C" __global__ void combine{SIGNATURE} {{}}\n'
    )


def outputs(host: CudaHost, body: str, blocks: int = 1) -> list[tuple[int, ...]]:
    """The words of `c`, guard included, after each of two runs. `a` holds 2147483647, 1, 2, ...; `b` ones."""
    program = host.compile(GEMM, text(body), {})
    a = struct.pack(f"<{WORDS}i", 2**31 - 1, *range(1, WORDS))
    bound = host.bind(BUFFERS, {"a": a, "b": struct.pack(f"<{WORDS}i", *[1] * WORDS)})
    passes = [Pass("multiply", (blocks, 1, 1), (WORDS, 1, 1), ())]
    results = []
    for sentinel in SENTINELS:
        out = host.run(program, bound, passes, {"c": sentinel * WORDS + GUARD})["c"]
        results.append(struct.unpack(f"<{WORDS + GUARD_WORDS}I", out))
    return results


def test_a_right_kernel_has_no_report(sanitized: CudaHost) -> None:
    """The control of the planted faults below: the same form, every index inside."""
    body = "__shared__ unsigned s[8]; s[i] = a[i]; __syncthreads(); c[i] = s[i ^ 1u] + b[i];"
    assert outputs(sanitized, body)[0][:2] == (2, 2**31)
    assert sanitized.sanitizer_reports() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("c[i] = 1u; if (i == 7u) c[params[0] + 8u] = 7u;", "use-after-poison"),
        ("c[i] = a[i + 1u];", "use-after-poison"),
        ("c[i] = (&order[0])[i];", "use-after-poison"),
        (
            "__shared__ unsigned s[8]; unsigned *p = s; p[i + 1u + params[0]] = i; __syncthreads(); c[i] = p[i];",
            "global-buffer-overflow",
        ),
        ("unsigned own[4]; unsigned *p = own; p[(i & 3u) + 1u] = i; c[i] = p[0];", "stack-buffer-overflow"),
        ("__shared__ unsigned s[8]; s[(i + params[0]) * 2u % 9u] = i; __syncthreads(); c[i] = s[i];", "out of bounds"),
        ("c[i] = static_cast<unsigned>(a[i] + b[i]);", "signed integer overflow"),
        ("c[i] = 1u << (i + params[0] + 30u);", "shift exponent"),
    ],
    ids=["write-past-output", "read-past-input", "read-past-order", "shared", "private", "index", "signed", "shift"],
)
def test_sanitizers_report_each_planted_fault_and_the_run_goes_on(sanitized: CudaHost, body: str, said: str) -> None:
    """The report names the line of the kernel's source and no folder of this machine."""
    outputs(sanitized, body)
    reports = sanitized.sanitizer_reports()
    assert any(said in r for r in reports), reports
    assert all("kernel.cu:2" in r and str(sanitized._root) not in r for r in reports), reports
    assert sanitized.sanitizer_reports() == []


def test_a_write_past_the_output_reaches_the_guard(plain: CudaHost) -> None:
    """Without sanitizers the guard words tell."""
    for words in outputs(plain, "c[i + 1u] = i;"):
        assert words[WORDS] == 7 and words[WORDS + 1] == 0xC0DEFACE


def test_shared_memory_that_nobody_wrote_makes_the_runs_differ(plain: CudaHost) -> None:
    """It is poisoned before each block, also with what an earlier block left there."""
    body = "__shared__ unsigned s[8]; if (blockIdx.x == 0u || i < 7u) s[i] = 1u; __syncthreads(); c[i] = s[i];"
    for words, poison in zip(outputs(plain, body, blocks=1), cuda_host.POISON, strict=True):
        assert words[7] == 1 and poison not in words
    last = [words[7] for words in outputs(plain, body.replace("c[i] = s[i]", "if (blockIdx.x) c[i] = s[i]"), blocks=2)]
    assert last == list(cuda_host.POISON)


def test_lanes_run_forward_then_in_reverse(plain: CudaHost) -> None:
    """A kernel that depends on the order of its lanes gives two answers, before a barrier and after one."""
    for barrier in ("", "__syncthreads();"):
        first, second = outputs(plain, f"scratch[0] = 0u; {barrier} c[i] = atomicAdd(scratch, 1u);")
        if barrier:
            assert first[:WORDS] == tuple(range(WORDS))
            assert second[:WORDS] == tuple(reversed(range(WORDS)))


def test_a_lane_that_keeps_away_from_a_barrier_is_reported(plain: CudaHost) -> None:
    """Undefined in WGSL and OpenCL: reported on every build, and the block still ends."""
    outputs(plain, "c[i] = i; if (i == 3u) return; __syncthreads();")
    assert "block (0, 0, 0) of multiply" in plain.sanitizer_reports()[0]
    outputs(plain, "c[i] = i;\nif (i < 3u) __syncthreads();\nelse __syncthreads();")
    assert len(plain.sanitizer_reports()) == 1


def test_private_values_survive_barriers_and_blocks_are_all_run(plain: CudaHost) -> None:
    """Each lane keeps its registers and its indices over many switches."""
    body = """
    unsigned mine[4] = {i, i * i, blockIdx.x, 7u};
    double half = i * 0.5;
    for (unsigned turn = 0u; turn < 100u; turn++) { mine[turn & 3u] += turn; half += 0.25; __syncthreads(); }
    atomicAdd(&c[threadIdx.x], mine[0] + mine[1] + mine[2] + mine[3] + static_cast<unsigned>(half * 4.0));
    """
    for words, sentinel in zip(outputs(plain, body, blocks=50), (0xA5A5A5A5, 0x5A5A5A5A), strict=True):
        each = [sum(i + i * i + block + 7 + 4950 + 2 * i + 100 for block in range(50)) for i in range(WORDS)]
        assert list(words[:WORDS]) == [(sentinel + e) % 2**32 for e in each]


def test_a_compile_error_starts_with_the_compilers_first_error(plain: CudaHost) -> None:
    """It names the line of the kernel's source."""
    with pytest.raises(CompileError, match=r"^kernel\.cu:2.* error: .*nonsense"):
        plain.compile(GEMM, text("c[i] = nonsense;"), {})
    with pytest.raises(CompileError, match="error"):
        plain.compile(GEMM, 'extern "C" __global__ void multiply(int *c) {}', {})


def test_what_cannot_be_launched_is_a_launch_error(plain: CudaHost) -> None:
    """Too many lanes, an entry point that is not there, data longer than its buffer."""
    program = plain.compile(GEMM, text("c[i] = i;"), {})
    bound = plain.bind(BUFFERS, {})
    with pytest.raises(LaunchError, match="1 to 1024 lanes"):
        plain.run(program, bound, [Pass("multiply", (1, 1, 1), (2048, 1, 1), ())], {})
    with pytest.raises(LaunchError, match="no such entry point"):
        plain.run(program, bound, [Pass("other", (1, 1, 1), (1, 1, 1), ())], {})
    with pytest.raises(LaunchError, match="buffer a takes 32 bytes, not 33"):
        plain.bind(BUFFERS, {"a": bytes(33)})


CRASH = """
import sys, tests.test_cuda_host as t
t.outputs(t.opened("g++"), sys.argv[1])
"""


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("*(volatile int *)8 = 1;", signal.SIGSEGV),
        ("volatile char deep[1 << 20]; deep[0] = 1; c[i] = deep[0];", signal.SIGSEGV),
        ("__builtin_trap();", signal.SIGILL),
    ],
    ids=["null", "stack", "trap"],
)
def test_a_kernel_that_crashes_takes_its_worker_with_it_by_the_same_signal(
    body: str, number: int, tmp_path: Path
) -> None:
    """The supervisor then sees a crash, as with any other driver; what is left lies in the run's own folder."""
    find("g++")
    environment = {**os.environ, **cuda_host.cache_environment(tmp_path)}
    command, root = [sys.executable, "-c", CRASH, body], Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True)
    assert done.returncode == -number, done.stderr
    assert list(tmp_path.glob("samebits-*/runtime.o"))


def script(folder: Path, name: str, body: str) -> None:
    """An executable shell script."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_drivers_are_the_newest_of_each_family_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by looking at files; without a compiler there is no row."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cuda_host.drivers() == []
    for name in ("g++", "clang++", "clang++-9", "clang++-15", "clang++-cl", "x86_64-g++"):
        script(tmp_path, name, "exit 1")
    (tmp_path / "clang++-16").write_text("not executable")
    found = {d.label: d.origin for d in cuda_host.drivers()}
    newest, gnu = str(tmp_path / "clang++-15"), str(tmp_path / "g++")
    assert found == {"g++": gnu, "g++-asan": gnu, "clang++": newest, "clang++-asan": newest}


def test_probe_gives_one_software_device_with_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, vendor and the compiler's own line of itself; no identity, for it has none."""
    find("g++")
    monkeypatch.setenv(cuda_host.VARIABLE, "g++")
    (report,) = cuda_host.probe()
    assert report["name"].startswith("g++ ") and report["vendor"] == "GNU" and report["kind"] == "software"
    assert report["driver"] in report["compiler"] and report["uuid"] is None


def test_a_compiler_that_cannot_link_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line that says so, as for a missing sanitizer runtime."""
    fails = 'echo noise >&2; echo "ld: cannot find -lasan" >&2; exit 1'
    script(tmp_path, "g++", f'case "$*" in --version) echo "g++ 1.2.3";; *" -c "*) ;; *) {fails};; esac')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(cuda_host.VARIABLE, "g++-asan")
    with pytest.raises(CompileError, match=r"^ld: cannot find -lasan"):
        cuda_host.probe()


def test_the_executable_is_kept_as_artefact(plain: CudaHost) -> None:
    """An ELF file for whoever wants to look at the machine code."""
    program = plain.compile(GEMM, text("c[i] = i;"), {})
    assert plain.artefacts(program)["kernel.elf"].startswith(b"\x7fELF")
