"""Real drivers without memory: each refuses, or dies in its own process; none gives an answer, and the worker says which."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import backends
from harness.errors import LaunchError
from harness.process import environment
from harness.worker import Worker

NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")
TRIAL = """
import resource, sys
from pathlib import Path
from harness import backends
from harness.errors import DeviceFault
from harness.kernels import Buffer
device = backends.load(sys.argv[1]).open_device(0)
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20),) * 2)
big = 30 << 20  # words: within every device's limit of one buffer
buffers = [Buffer("params", "params", 8), Buffer("a", "input", big), Buffer("order", "input", 0)]
buffers += [Buffer("scratch", "scratch", big), Buffer("c", "output", big), Buffer("receipt", "receipt", 4)]
try:
    device.bind(buffers, {"a": bytes(16)})
    print("bound")
except (DeviceFault, MemoryError) as fault:
    print(type(fault).__name__)
"""
DRIVERS = {
    "intel": ("opencl", "intel-cpu", "LaunchError"),
    "rusticl": ("opencl", "rusticl", "LaunchError"),
    "pocl": ("opencl", "pocl", "killed by an assertion of its own"),
    "lavapipe": ("vulkan", "lvp", "LaunchError"),
    "swiftshader": ("vulkan", "vk_swiftshader", "LaunchError"),
    "llvmpipe": ("opengl", "llvmpipe", "MemoryError"),
    "g++": ("cuda_host", "g++", "LaunchError"),
}
"""Name in SAMEBITS_EXPECT -> API, label, and what comes of 360 MiB of buffers in 200 MiB of address space."""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds the address space")
@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_that_gets_no_memory_gives_no_answer(name: str, tmp_path: Path) -> None:
    """An error where the driver has one; PoCL 3.1 aborts, which costs its process alone."""
    if name not in NAMED:
        pytest.skip(f"SAMEBITS_EXPECT does not name {name}")
    api, label, told = DRIVERS[name]
    module = backends.load(api)
    (driver,) = (d for d in module.drivers() if d.label == label)
    variables = environment({**driver.environment, **module.cache_environment(tmp_path)})
    command = [sys.executable, "-c", TRIAL, api]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)
    if told.startswith("killed"):
        assert done.returncode < 0 and "Assertion" in done.stderr and done.stdout == ""
    else:
        assert (done.returncode, done.stdout.strip()) == (0, told), done.stderr


def test_a_worker_without_memory_of_its_own_goes_on_with_the_next_run_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a launch-error of that run key, as where the driver says it."""
    sent: list[dict[str, Any]] = []
    worker: Any = object.__new__(Worker)
    worker.kept = {}
    worker.channel = type("Pipe", (), {"send": staticmethod(sent.append)})

    def run(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(worker, "_run", run, raising=False)
    case = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0"
    runs = [{"schedule": s, "variant": "base"} for s in ("forward", "reverse")]
    worker.case({"case": case, "inputs": {}, "runs": runs})
    assert [event["event"] for event in sent] == ["started", "fault", "started", "fault", "case-done"]
    assert {event["verdict"] for event in sent if event["event"] == "fault"} == {LaunchError.verdict}
    assert sent[1]["detail"] == "the worker itself is out of memory"
