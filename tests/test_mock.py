"""The mock devices: one that behaves is exact, each other one has its fault and no other, where it is documented."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from patience import MINUTES, until

from cpu_ref.gemm import gemm_i32
from cpu_ref.linear import linear
from cpu_ref.weights import BLOCK_TYPES
from harness import devices, kernels, schedules
from harness.backends import mock
from harness.cases import Case
from harness.errors import CompileError, DeviceFault, DeviceLost, LaunchError, Unsupported, UsageError
from harness.kernels import GUARD_WORDS, Kernel

ROOT = Path(__file__).parent.parent
GEMM, FAST = kernels.find("gemm_i32", "base"), kernels.find("gemm_i32", "fast")
LINEAR = kernels.find("linear_q8_0", "base")
NONCE = 0x600DF00D
SENTINELS = (0xA5A5A5A5, 0x5A5A5A5A)
GUARD = 0xC0DEFACE


def inputs(kernel: Kernel, m: int, n: int, k: int) -> tuple[dict[str, bytes], bytes]:
    """Random inputs and what the reference says of them."""
    random = np.random.default_rng(m * n * k)
    if kernel.name == "gemm_i32":
        a, b = random.bytes(4 * m * k), random.bytes(4 * k * n)
        return {"a": a, "b": b}, gemm_i32(a, b, m, n, k).c
    block = BLOCK_TYPES[kernel.name.removeprefix("linear_").upper()]
    halves = random.integers(0, 0x3C00, (n, k // 32, block.halves), dtype=np.uint16) | np.uint16(0x8000)
    stored = random.integers(0, 256, (n, k // 32, block.size - 2 * block.halves), dtype=np.uint8)
    w = np.concatenate([halves.view(np.uint8), stored], axis=2).tobytes()
    x, bias = random.integers(-(2**20), 2**20, m * k), random.integers(-(2**40), 2**40, n)
    y = np.array(linear(block, w, x.tolist(), k, bias=bias.tolist()), np.int64)
    return {"w": w, "x": x.tobytes(), "bias": bias.tobytes()}, y.tobytes()


def device(item: str) -> mock.Mock:
    """The mock of one item of SAMEBITS_MOCK."""
    return mock.Mock(mock._parse(item), 0)


def run_twice(
    opened: mock.Mock,
    kernel: Kernel = GEMM,
    shape: tuple[int, int, int] = mock.PLACE,
    schedule: str = "reverse",
    known_bad: int = 0,
) -> list[Mapping[str, object]]:
    """Of two runs: right (the whole output), wrong bits, guard kept, whether the receipt holds the nonce."""
    case = Case(kernel.name, tuple(zip("mnk", shape, strict=True)), "full", 0)
    plan = kernel.plan(case, schedule)
    constants = {"SCHEDULE": schedules.NAMES.index(schedule), "KNOWN_BAD": known_bad, "NONCE": NONCE}
    program = opened.compile(kernel, "", constants)
    data, expected = inputs(kernel, *shape)
    bound = opened.bind(plan.buffers, data)
    seen: list[Mapping[str, object]] = []
    for sentinel in SENTINELS:
        fill = {
            b.name: np.array(
                [0 if b.role == "receipt" else sentinel] * b.words + [GUARD] * GUARD_WORDS, "<u4"
            ).tobytes()
            for b in plan.buffers
            if b.writable
        }
        out = opened.run(program, bound, plan.passes, fill)
        words = np.frombuffer(out[kernel.output.name], "<u4")
        right = np.frombuffer(expected, "<u4")
        wrong = words[: len(right)] ^ right
        receipt = np.frombuffer(out["receipt"], "<u4")
        seen.append(
            {
                "right": not wrong.any(),
                "bits": sum(int(v).bit_count() for v in wrong),
                "words": np.count_nonzero(wrong),
                "last": int(words[len(right) - 1]) == sentinel,
                "guard": int(np.count_nonzero(words[len(right) :] != GUARD)),
                "nonce": all(receipt[i] == NONCE for i in plan.receipts),
            }
        )
    return seen


def behaves(seen: list[Mapping[str, object]]) -> bool:
    """Both runs right, guards and receipts too."""
    return all(s["right"] and s["guard"] == 0 and s["nonce"] for s in seen)


@pytest.mark.parametrize("schedule", schedules.NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 19, 23), (5, 3, 200)], ids=str)
def test_match_is_exact_in_gemm(shape: tuple[int, int, int], schedule: str) -> None:
    """Its own arithmetic, modulo 2^32, under any schedule."""
    assert behaves(run_twice(device("match"), GEMM, shape, schedule))


@pytest.mark.parametrize(
    "kernel", [k for k in kernels.KERNELS if k.name in mock.LINEARS], ids=lambda k: f"{k.name}-{k.variant}"
)
@pytest.mark.parametrize("shape", [(1, 1, 32), (3, 17, 96), (2, 4100, 32)], ids=str)
def test_match_is_exact_in_linear(kernel: Kernel, shape: tuple[int, int, int]) -> None:
    """Negative and subnormal scales, a bias, sums of 64 bits, more rows than one piece."""
    assert behaves(run_twice(device("match"), kernel, shape))


@pytest.mark.parametrize(("kernel", "shape"), [(GEMM, (4, 4, 33)), (LINEAR, (2, 5, 64))], ids=["gemm", "linear"])
def test_the_known_bad_twin_mismatches_unless_it_is_missed(kernel: Kernel, shape: tuple[int, int, int]) -> None:
    """Every mock's twin leaves out one accumulation, but that of known-bad-missed."""
    for item in ("match", "mismatch/all", "wrong-nonce/all", "compile-error/all", "crash/all"):
        seen = run_twice(device(item), kernel, shape, "forward", known_bad=1)
        assert not any(s["right"] for s in seen) and all(s["nonce"] and s["guard"] == 0 for s in seen)
    assert behaves(run_twice(device("known-bad-missed"), kernel, shape, "forward", known_bad=1))


def test_mismatch_is_one_bit_in_both_runs() -> None:
    """The smallest fault there is."""
    assert [(s["bits"], s["words"], s["nonce"]) for s in run_twice(device("mismatch"))] == [(1, 1, True)] * 2


def test_nondeterministic_differs_in_the_second_run_only() -> None:
    """By one bit."""
    assert [s["bits"] for s in run_twice(device("nondeterministic"))] == [0, 1]


def test_unwritten_keeps_both_sentinels_in_the_last_word() -> None:
    """And nothing else is wrong."""
    assert [(s["last"], s["words"]) for s in run_twice(device("unwritten"))] == [(True, 1)] * 2


def test_write_past_end_hits_one_guard_word() -> None:
    """With the right output."""
    assert [(s["right"], s["guard"]) for s in run_twice(device("write-past-end"))] == [(True, 1)] * 2


def test_wrong_nonce_is_right_but_for_the_receipt() -> None:
    """As a stale program out of a driver's cache would be."""
    assert [(s["right"], s["nonce"]) for s in run_twice(device("wrong-nonce"))] == [(True, False)] * 2


def test_sanitizer_is_right_and_reports() -> None:
    """Reports are handed out once."""
    opened = device("sanitizer")
    assert behaves(run_twice(opened))
    assert opened.sanitizer_reports() != [] and opened.sanitizer_reports() == []


def test_faults_are_of_the_documented_class() -> None:
    """The verdict follows from it. A lost device stays lost."""
    for item, fault in (("compile-error", CompileError), ("unsupported", Unsupported), ("launch-error", LaunchError)):
        with pytest.raises(fault):
            run_twice(device(item))
    lost = device("device-lost")
    assert behaves(run_twice(lost, GEMM, (1, 1, 1)))
    for shape in (mock.PLACE, (1, 1, 1)):
        with pytest.raises(DeviceLost):
            run_twice(lost, GEMM, shape)


STRIKING = ("mismatch", "nondeterministic", "unwritten", "write-past-end", "wrong-nonce", "launch-error", "device-lost")


@pytest.mark.parametrize("item", STRIKING)
def test_a_fault_strikes_one_run_key_or_with_all_every_one(item: str) -> None:
    """Base gemm_i32 of 17 x 19 x 23 under `reverse`."""
    elsewhere = [
        (GEMM, mock.PLACE, "forward"),
        (GEMM, (17, 19, 33), "reverse"),
        (FAST, mock.PLACE, "split_k"),
        (LINEAR, (3, 17, 96), "reverse"),
    ]
    for kernel, shape, schedule in elsewhere:
        assert behaves(run_twice(device(item), kernel, shape, schedule))
        with suppress(DeviceFault):
            assert not behaves(run_twice(device(f"{item}/all"), kernel, shape, schedule))


def test_compile_faults_strike_one_schedule_of_one_kernel() -> None:
    """In any shape: a compiler does not see the shape."""
    for kernel, schedule in ((GEMM, "forward"), (LINEAR, "reverse")):
        assert behaves(run_twice(device("compile-error"), kernel, (3, 4, 32), schedule))
    with pytest.raises(CompileError):
        run_twice(device("compile-error"), GEMM, (3, 4, 32), "reverse")


def test_items_become_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing without the variable; vendors make hardware, a count makes devices, an unknown word is an error."""
    monkeypatch.delenv(mock.VARIABLE, raising=False)
    assert mock.drivers() == []
    monkeypatch.setenv(mock.VARIABLE, "match:2, mismatch/all@VendorA,hang-run+signal-handlers")
    labels = [d.label for d in mock.drivers()]
    assert labels == ["match", "mismatch-all-VendorA", "hang-run+signal-handlers"]
    assert next(d.environment for d in mock.drivers()) == {mock.VARIABLE: "match:2"}
    monkeypatch.setenv(mock.VARIABLE, "match,mach")
    with pytest.raises(UsageError, match="'mach' is no mock device"):
        mock.drivers()


def test_discovery_sees_each_mock_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of one driver, hardware of a vendor, a liar taken for software, no device, a hang."""
    monkeypatch.setenv(mock.VARIABLE, "hang-probe")
    rows = devices.discover(["mock"], budget=2)
    monkeypatch.setenv(mock.VARIABLE, "match:2,match@VendorA,lying-name,no-device,noisy+closes-stdout")
    found = {d.id: d for d in [*rows, *devices.discover(["mock"], budget=MINUTES)]}
    assert {i: (d.status, d.kind) for i, d in found.items()} == {
        "mock:match:0": ("ok", "software"),
        "mock:match:1": ("ok", "software"),
        "mock:match-VendorA:0": ("ok", "hardware"),
        "mock:lying-name:0": ("ok", "software"),
        "mock:no-device": ("no-device", "unknown"),
        "mock:hang-probe": ("timeout", "unknown"),
        "mock:noisy+closes-stdout:0": ("ok", "software"),
    }
    assert all(d.name.startswith("mock") for d in found.values() if d.ok)
    assert found["mock:match-VendorA:0"].vendor == "VendorA"
    assert len({d.uuid for d in found.values() if d.ok}) == 5


def child(item: str, code: str = "t.run_twice(d)") -> "subprocess.Popen[bytes]":
    """A process that opens one mock and says `open`, does `code`, and says `done`, on standard error. Its stdin is open."""
    script = f"""
    import os, sys, test_mock as t
    d = t.device({item!r})
    os.write(2, b"open\\n")
    {code}
    os.write(2, b"done\\n")
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_crash_is_a_segmentation_fault() -> None:
    """At its place."""
    with child("crash") as process:
        assert b"done" not in process.communicate(timeout=MINUTES)[1]
    assert process.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ("hang-compile", "t.run_twice(d)"),
        ("hang-run", "t.run_twice(d)"),
        ("hang-shutdown", "t.run_twice(d); d.close()"),
    ],
    ids=["compile", "run", "shutdown"],
)
def test_hangs_last_until_the_process_is_killed(item: str, code: str) -> None:
    """TERM is enough; with signal-handlers it takes KILL."""
    for handlers in (False, True):
        with child(item + ("+signal-handlers" if handlers else ""), code) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == b"open\n"
            time.sleep(0.5)
            process.terminate()
            if handlers:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)
                process.kill()
        assert process.returncode == -(signal.SIGKILL if handlers else signal.SIGTERM)


def test_noisy_and_closed_output_still_match() -> None:
    """Megabytes on both streams, no valid text among them; then standard output is closed."""
    with child("noisy+closes-stdout", "assert t.behaves(t.run_twice(d))") as process:
        out, err = process.communicate(timeout=MINUTES)
    assert process.returncode == 0 and err.endswith(b"done\n")
    assert len(out) > 2 << 20 and len(err) > 2 << 20


def test_zombies_leaves_two_children_a_run() -> None:
    """One dead and unreaped, one that sleeps in a session of its own. The process lives as long as its stdin is open."""

    def dead() -> list[psutil.Process]:
        return [p for p in family if p.status() == psutil.STATUS_ZOMBIE]

    with child("zombies", "t.run_twice(d); os.write(2, b'ran\\n'); sys.stdin.read()") as process:
        assert process.stderr is not None
        assert [process.stderr.readline() for _ in range(2)] == [b"open\n", b"ran\n"]
        family = psutil.Process(process.pid).children()
        until(lambda: len(dead()) == 2, "two of the children end")
        sleeping = [p for p in family if p not in dead()]
        leaders = [p for p in sleeping if os.getsid(p.pid) == p.pid]
        for p in sleeping:
            p.kill()
        process.kill()
    assert len(family) == 4 and len(sleeping) == 2 and leaders == sleeping


def test_memory_eater_takes_memory_and_then_behaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit below what it takes ends it, in the supervisor; here it may take little."""
    monkeypatch.setattr(mock, "EATEN", 1 << 27)
    opened = device("memory-eater")
    before = psutil.Process().memory_info().rss
    assert behaves(run_twice(opened))
    assert psutil.Process().memory_info().rss - before > 100 << 20
