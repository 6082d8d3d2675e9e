"""Devices whose compiler's optimiser is off: the row says so, the option reaches each compiler, and what cannot says that."""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import samebits

from harness import backends, store
from harness.backends import cuda_host
from harness.backends.common import OPTIMISER
from harness.backends.wgpu import Wgpu
from harness.devices import Device, slug, without_optimiser
from harness.errors import Unsupported
from harness.kernels import KERNELS
from harness.process import environment
from harness.records import unit

CASE = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0"


def child(api: str, folder: Path, off: bool, *command: str) -> str:
    """What a child prints that sees the first driver of `api`."""
    module = backends.load(api)
    driver = module.drivers()[0]
    variables = {**driver.environment, **module.cache_environment(folder), OPTIMISER: "off" if off else None}
    done = subprocess.run(
        [sys.executable, *command], env=environment(variables), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_row_the_record_and_the_command_that_repeats_a_failure_say_so(tmp_path: Path) -> None:
    for optimiser in ("on", "off"):
        out = tmp_path / optimiser
        done = samebits(
            tmp_path, "run", "--case", CASE, "--optimiser", optimiser, "--out", out, mock="mismatch@VendorA"
        )
        assert done.returncode == 1, done.stderr
        (run,) = store.collect([out])
        bad = next(r for r in run.results if r.verdict == "mismatch" and r.role == "case")
        off = optimiser == "off"
        assert run.header.device.name.endswith(", optimiser off") is off
        assert run.header.device.compiler.endswith(", optimiser off") is off
        assert ("optimiser" in run.header.options) is off
        assert str(bad.repeat).endswith("' --optimiser off") is off


def test_it_is_a_unit_and_a_folder_of_its_own() -> None:
    """Else records of both would be rolled into one row, or compared as two versions of one driver."""
    device = Device("opencl:pocl:0", "opencl", "pocl", name="pthread", environment={OPTIMISER: None})
    off = without_optimiser(device)
    assert unit(off) != unit(device) and slug(off) != slug(device)
    assert off.environment == {OPTIMISER: "off"}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="Intel's runtime is for x86-64 alone")
@pytest.mark.parametrize("off", [False, True])
def test_opencl_computes_the_same_with_the_option(off: bool, tmp_path: Path) -> None:
    trial = Path(__file__).with_name("backend_trial.py")
    result = json.loads(child("opencl", tmp_path, off, str(trial), "opencl").splitlines()[-1])
    assert all(run["right"] and run["guard_kept"] for run in result["runs"])
    assert result["options"] == ["-cl-opt-disable"] * off


@pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheel is a dependency on Linux alone")
def test_nvrtc_and_its_assembler_get_their_option(tmp_path: Path) -> None:
    code = (
        "from harness.backends import nvrtc; from harness.kernels import KERNELS, source; "
        "files = nvrtc.open_device(0).compile(KERNELS[0], source(KERNELS[0], 'cuda'), {}); "
        "print({b', debug' in data for name, data in files.items() if name.endswith('.ptx')})"
    )
    assert child("nvrtc", tmp_path, True, "-c", code).strip() == "{True}"
    assert child("nvrtc", tmp_path, False, "-c", code).strip() == "{False}"


@pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheel is a dependency on Linux alone")
def test_that_option_is_the_assembler_s_level_0_as_well(tmp_path: Path) -> None:
    """It takes -O0 beside it, and refuses any other level."""
    code = (
        "from harness.backends import nvrtc, rtc\n"
        "from harness.errors import CompileError\n"
        "device = nvrtc.open_device(0)\n"
        "for level in '03':\n"
        "    options = [nvrtc.NVRTC.unoptimised, f'--ptxas-options=-O{level}']\n"
        "    try:\n"
        "        print(sorted(device._build(rtc.LINE, options, 'sm_80')))\n"
        "    except CompileError as e:\n"
        "        print(e)\n"
    )
    zero, three = child("nvrtc", tmp_path, True, "-c", code).splitlines()
    assert zero == "['cubin', 'ptx']"
    assert "Optimized debugging not supported" in three


@pytest.mark.parametrize(("value", "level"), [(None, "-O2"), ("off", "-O0")])
def test_host_compilers_get_their_level(value: str | None, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_host.CudaHost, "_build", lambda self, arguments: None)
    if value:
        monkeypatch.setenv(OPTIMISER, value)
    host = cuda_host.CudaHost(next(cuda_host._compilers()))
    assert host.report.raw["options"][0] == level
    host.close()


def test_wgpu_has_no_such_option_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with the optimiser on must not stand in a row that says off."""
    monkeypatch.setenv(OPTIMISER, "off")
    device: Any = object.__new__(Wgpu)
    with pytest.raises(Unsupported, match="optimiser-off"):
        device.compile(KERNELS[0], "", {})
