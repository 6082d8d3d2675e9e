"""Oclgrind's log becomes reports: of a right program none, of a wrong one what is wrong, in a line each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.backends import oclgrind, opencl
from harness.backends.oclgrind import Reports
from harness.process import environment

INVALID = """
Invalid write of size 4 at global memory address 0x1000000000190
\tKernel: oob
\tEntity: Global(0,0,0) Local(0,0,0) Group(0,0,0)
\t  store i32 1, i32 addrspace(1)* %arrayidx, align 4, !dbg !34
\tAt line 2 (column 61) of input.cl:
\t  __kernel void oob(__global uint *a) { a[100] = 1u; }

"""
RACE = (
    "\nRead-write data race at local memory address 0x2000000000004\n\tKernel: race\n\n\tFirst entity: Global(1,0,0)\n"
)

KERNELS = """
__kernel void right(__global uint *a) { a[get_global_id(0)] = 1u; }
__kernel void outside(__global uint *a) { a[get_global_id(0) + 100] = 1u; }
__kernel void race(__global uint *a) { a[0] = get_global_id(0); }
__kernel void unset(__global uint *a) { __local uint l[64]; a[get_global_id(0)] = l[get_local_id(0)]; }
__kernel void split(__global uint *a) { if (get_local_id(0) < 8u) { barrier(CLK_LOCAL_MEM_FENCE); } a[0] = 1u; }
"""
TRIAL = """
import json, sys
import pyopencl as cl
from harness.backends import opencl
device = opencl.open_device(0)
program = cl.Program(device.context, sys.argv[1]).build(["-cl-opt-disable"])
buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 256)
found = {}
for name in ("right", "outside", "race", "unset", "split"):
    cl.enqueue_fill_buffer(device.queue, buffer, b"\\0", 0, 256)
    cl.Kernel(program, name)(device.queue, (64,), (64,), buffer).wait()
    found[name] = device.sanitizer_reports()
print(json.dumps(found))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    monkeypatch.setenv(oclgrind.LOG, str(path))
    return path


def test_a_report_is_a_line_without_addresses_and_is_told_once(log: Path) -> None:
    reports = Reports()
    assert reports.new() == []
    log.write_text(INVALID * 3 + RACE)
    assert reports.new() == [
        "Invalid write of size 4 in global memory, kernel oob, line 2",
        "Read-write data race in local memory, kernel race",
    ]
    assert reports.new() == []
    with log.open("a") as file:
        file.write(RACE)
    assert reports.new() == ["Read-write data race in local memory, kernel race"]


def test_what_an_earlier_worker_left_in_the_log_is_not_reported(log: Path) -> None:
    log.write_text(INVALID)
    assert Reports().new() == []


def test_when_oclgrind_says_no_more_nothing_counts_as_clean(log: Path) -> None:
    """Silence would look like a right program."""
    reports = Reports()
    log.write_text(INVALID + "\nOclgrind: 10000 errors generated - suppressing further errors\n")
    assert "says no more" in reports.new()[-1]
    assert "says no more" in reports.new()[-1]


def test_a_log_of_any_length_and_content_is_read_in_part(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oclgrind, "LOG_BYTES", 1000)
    reports = Reports()
    log.write_bytes(b"\xff\x00" * 5000 + b"\n" * 5000)
    assert len(reports.new()) <= oclgrind.SHOWN


@pytest.mark.skipif(
    "oclgrind" not in os.environ.get("SAMEBITS_EXPECT", "").split(","), reason="SAMEBITS_EXPECT does not name oclgrind"
)
def test_the_simulator_reports_each_kind_of_fault_and_nothing_of_a_right_kernel(tmp_path: Path) -> None:
    (driver,) = (d for d in opencl.drivers() if d.label == "oclgrind")
    variables = environment({**driver.environment, **opencl.cache_environment(tmp_path)})
    command = [sys.executable, "-c", TRIAL, KERNELS]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("right") == []
    wanted = {"outside": "Invalid write", "race": "data race", "unset": "Uninitialized value", "split": "divergence"}
    assert all(any(wanted[name] in line for line in lines) for name, lines in found.items()), found
