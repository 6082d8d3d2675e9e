"""A driver or compiler older than its backend needs is a row that says so, with phase, reason and mend."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from patience import MINUTES

from harness import backends, devices
from harness.backends import Driver, cuda, cuda_host, opencl, wgpu
from harness.backends.vulkan_identity import Identity
from harness.devices import Device, discover
from harness.errors import DeviceFault, TooOld

NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")


def rows(monkeypatch: pytest.MonkeyPatch, api: str, drivers: list[Driver]) -> list[Device]:
    """What discovery makes of those drivers."""
    monkeypatch.setattr(backends.load(api), "drivers", lambda: drivers)
    monkeypatch.setattr(devices.permissions, "nodes", list)
    return discover([api], MINUTES)


def module(name: str, **content: Any) -> ModuleType:
    """A library of that name."""
    made = ModuleType(name)
    vars(made).update(content)
    return made


class FakeOpenCL:
    """Enough of pyopencl for a platform with devices of given versions."""

    class Error(Exception):
        code = 0

    def __init__(self, *versions: str) -> None:
        found = [SimpleNamespace(name=f"GPU {n}", version=version) for n, version in enumerate(versions)]
        self.content = {
            "Error": self.Error,
            "get_platforms": lambda: [SimpleNamespace(name="Old", get_devices=lambda: found)],
        }


@pytest.mark.parametrize("version", ["OpenCL 1.0 CUDA", "OpenCL 1.1 Mesa 10.1"])
def test_an_opencl_older_than_the_kernels_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """They are built as OpenCL 1.2."""
    monkeypatch.setitem(sys.modules, "pyopencl", module("pyopencl", **FakeOpenCL(version, version).content))
    with pytest.raises(TooOld, match=rf"^GPU 0: OpenCL {version[7:10]} is older than the 1\.2 .*: update the driver$"):
        opencl.probe()


def test_an_old_opencl_device_beside_a_new_one_stays_a_row_that_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOpenCL("OpenCL 1.1", "OpenCL 3.0 ")
    monkeypatch.setitem(sys.modules, "pyopencl", module("pyopencl", **fake.content))
    monkeypatch.setattr(opencl, "_report", lambda device: SimpleNamespace(name=device.name))
    monkeypatch.setattr(opencl, "_check_compiler", lambda devices: None)
    monkeypatch.setattr(opencl.msgspec, "to_builtins", lambda report: report.name)
    assert opencl.probe() == ["GPU 0", "GPU 1"]
    device = opencl.OpenCL.__new__(opencl.OpenCL)
    device.device = opencl._devices()[0]
    with pytest.raises(TooOld) as caught:
        device.compile(None, "", {})  # type: ignore[arg-type]
    assert (caught.value.verdict, caught.value.needed, caught.value.there) == ("unsupported", "1.2", "1.1")


class FakeCuda(Exception):
    """Enough of CuPy's run-time for its questions of versions; as an exception, what it raises."""

    def __init__(self, status: int) -> None:
        super().__init__("cudaErrorInsufficientDriver")
        self.status = status


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CuPy on a driver for CUDA `driver`; `status` is what it says when asked for GPUs."""

    def install(driver: int, nvrtc: tuple[int, int] = (13, 0), status: int = 0, hip: bool = False) -> None:
        def count() -> int:
            if status:
                raise FakeCuda(status)
            return 0

        runtime = SimpleNamespace(
            getDeviceCount=count,
            driverGetVersion=lambda: driver,
            runtimeGetVersion=lambda: 13000,
            CUDARuntimeError=FakeCuda,
            is_hip=hip,
        )
        inner = module("cupy.cuda", runtime=runtime, nvrtc=SimpleNamespace(getVersion=lambda: nvrtc))
        monkeypatch.setitem(sys.modules, "cupy", module("cupy", __version__="14.0", cuda=inner))
        monkeypatch.setitem(sys.modules, "cupy.cuda", inner)

    return install


def test_a_driver_older_than_cupys_cuda_is_refused_with_both_versions(cupy: Any) -> None:
    """CUDA says only that it is insufficient."""
    cupy(12040, status=cuda.OLD_DRIVER)
    with pytest.raises(TooOld) as caught:
        cuda.probe()
    assert str(caught.value) == (
        "a driver for CUDA 12.4 is older than the CUDA 13.0 of CuPy 14.0 that is needed: "
        "update the driver, or install 'samebits[cuda12]' in place of [cuda13]"
    )


@pytest.mark.parametrize(
    ("driver", "nvrtc", "hip", "refused"),
    [
        (12040, (13, 0), False, True),
        (12040, (12, 9), False, False),
        (13000, (13, 0), False, False),
        (60000000, (13, 0), True, False),
    ],
)
def test_a_driver_loads_code_of_its_own_major_version(
    cupy: Any, driver: int, nvrtc: tuple[int, int], hip: bool, refused: bool
) -> None:
    """Any minor version will do; ROCm counts otherwise."""
    cupy(driver, nvrtc=nvrtc, hip=hip)
    if refused:
        with pytest.raises(TooOld, match=r"^a driver for CUDA 12\.4 is older than the CUDA 13\.0 of NVRTC"):
            cuda.probe()
    else:
        assert cuda.probe() == []


def test_a_cuda_without_a_card_is_no_device_and_another_fault_keeps_its_number(cupy: Any) -> None:
    cupy(0, status=cuda.NO_DEVICE)
    assert cuda.probe() == []
    cupy(13000, status=3)
    with pytest.raises(DeviceFault, match=r"cudaError 3, CuPy 14\.0") as caught:
        cuda.probe()
    assert not isinstance(caught.value, TooOld)


def adapter(**limits: int) -> SimpleNamespace:
    return SimpleNamespace(
        info={"device": "Card", "description": "OpenGL ES 3.0"},
        limits={"max-compute-workgroups-per-dimension": 0} | limits,
    )


def test_an_adapter_without_compute_shaders_is_too_old() -> None:
    with pytest.raises(TooOld, match=r"^OpenGL OpenGL ES 3\.0 is older than the OpenGL 4\.3 or OpenGL ES 3\.1"):
        wgpu._check_age("OpenGL", [adapter()], [])
    wgpu._check_age("OpenGL", [adapter(**{"max-compute-workgroups-per-dimension": 65535})], [])
    wgpu._check_age("OpenGL", [], [])


def test_a_vulkan_device_that_wgpu_does_not_take_is_no_absence() -> None:
    """By its version, or for what else wgpu misses in it."""
    old, new = (Identity("Card", 1, 2, "d", api, None, None) for api in ("1.0.3", "1.10.2"))
    with pytest.raises(TooOld, match=r"^Card: Vulkan 1\.0\.3 is older than the 1\.1 that is needed: update the driver"):
        wgpu._check_age("Vulkan", [], [old])
    with pytest.raises(DeviceFault, match=r"takes none of the driver's devices \(Card, Card, Vulkan 1\.10\.2\)"):
        wgpu._check_age("Vulkan", [], [old, new])


@pytest.mark.skipif("llvmpipe" not in NAMED, reason="SAMEBITS_EXPECT does not name llvmpipe")
def test_mesa_told_to_be_old_is_a_row_with_phase_reason_and_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mesa can be told which version to claim, and then has no compute shaders."""
    (driver,) = (d for d in backends.load("opengl").drivers() if d.label == "llvmpipe")
    claim: Mapping[str, str | None] = {"MESA_GLES_VERSION_OVERRIDE": "3.0", "MESA_GL_VERSION_OVERRIDE": "3.1"}
    told = Driver(driver.api, driver.label, driver.origin, {**driver.environment, **claim})
    (row,) = rows(monkeypatch, "opengl", [told])
    assert (row.status, row.phase) == ("too-old", "probe")
    assert row.reason.startswith("OpenGL OpenGL ES 3.0 Mesa") and "update the driver" in row.reason


@pytest.mark.skipif(sys.platform != "linux", reason="cuda_host needs Linux")
@pytest.mark.parametrize(
    ("family", "label", "version", "complaint", "needed"),
    [
        (
            "g++",
            "g++",
            "g++ (GCC) 4.8.5 20150623",
            "g++: error: unrecognized command line option '-std=c++17'",
            "C++17",
        ),
        ("clang++", "clang++", "clang version 3.4.2", "error: invalid value 'c++17' in '-std=c++17'", "C++17"),
        (
            *("g++", "g++-asan", "g++ (GCC) 4.8.5 20150623"),
            *("g++: error: unrecognized command line option '-fsanitize-recover=address'", "-fsanitize-recover"),
        ),
        (
            *("clang++", "clang++-asan", "clang version 5.0.1"),
            *("clang: error: unsupported argument 'address' to option '-fsanitize-recover='", "-fsanitize-recover"),
        ),
    ],
)
def test_a_compiler_older_than_its_options_is_a_row_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, label: str, version: str, complaint: str, needed: str
) -> None:
    compiler = tmp_path / family
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit 0\necho "{complaint}" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    driver = Driver("cuda_host", label, str(compiler), {cuda_host.VARIABLE: label})
    (row,) = rows(monkeypatch, "cuda_host", [driver])
    assert (row.status, row.phase) == ("too-old", "probe")
    number = version.split()[2]
    assert row.reason.startswith(f"{family} {number} is older than the one with {needed}")
    assert row.reason.endswith("install a newer one and put it on PATH")
