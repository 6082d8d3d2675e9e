"""A worker that can see a second driver refuses to work, whatever the API: what discovery rests on is asserted in the child."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import backends
from harness.backends import common, cuda, wgpu
from harness.backends.vulkan_identity import Identity
from harness.errors import DeviceFault
from harness.process import Child, environment, python

NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")


def answer(tmp_path: Path, api: str, label: str, **changes: str) -> dict[str, Any]:
    """What a worker on that driver says first, with `changes` to the environment that isolates it."""
    module = backends.load(api)
    (driver,) = (d for d in module.drivers() if d.label == label)
    variables = {**driver.environment, **module.cache_environment(tmp_path), **changes}
    with Child(python("harness.worker", api, "0"), environment(variables)) as child:
        while (event := child.receive(600.0)).get("event") == "phase":
            pass
    return event


def origin(api: str, label: str) -> str:
    """The file of a driver."""
    return next(d.origin for d in backends.load(api).drivers() if d.label == label)


@pytest.mark.skipif(not {"pocl", "rusticl"} <= set(NAMED), reason="SAMEBITS_EXPECT does not name pocl and rusticl")
def test_an_opencl_worker_refuses_a_folder_of_two_platforms(tmp_path: Path) -> None:
    for label in ("pocl", "rusticl"):
        shutil.copy(origin("opencl", label), tmp_path)
    assert answer(tmp_path, "opencl", "pocl")["event"] == "opened"
    event = answer(tmp_path, "opencl", "pocl", OCL_ICD_VENDORS=f"{tmp_path}/")
    assert event["event"] == "fault" and event["detail"].startswith("expected one platform, see "), event


@pytest.mark.skipif(
    not {"lavapipe", "swiftshader"} <= set(NAMED), reason="SAMEBITS_EXPECT does not name lavapipe and swiftshader"
)
def test_a_vulkan_worker_refuses_two_driver_files(tmp_path: Path) -> None:
    both = f"{origin('vulkan', 'lvp')}:{origin('vulkan', 'vk_swiftshader')}"
    assert answer(tmp_path, "vulkan", "lvp")["event"] == "opened"
    event = answer(tmp_path, "vulkan", "lvp", VK_DRIVER_FILES=both, VK_ICD_FILENAMES=both)
    assert event["event"] == "fault" and event["detail"].startswith("expected one driver, see SwiftShader"), event


@pytest.mark.skipif("llvmpipe" not in NAMED, reason="SAMEBITS_EXPECT does not name llvmpipe")
@pytest.mark.parametrize("second", ["libEGL_other.so.0", "libvulkan_other.so"])
def test_an_opengl_worker_refuses_a_second_driver_in_its_process(tmp_path: Path, second: str) -> None:
    """Another vendor's library, or a Vulkan driver."""
    assert answer(tmp_path, "opengl", "llvmpipe")["event"] == "opened"
    event = answer(tmp_path, "opengl", "llvmpipe", LD_PRELOAD=str(library(tmp_path / second)))
    assert event["event"] == "fault" and event["detail"].startswith("expected one OpenGL driver, see "), event
    assert second in event["detail"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at what Linux has mapped")
@pytest.mark.parametrize(("api", "second"), [("nvrtc", "libnvrtc.so.99"), ("hiprtc", "libamdhip64.so.99")])
def test_a_compile_only_worker_refuses_a_second_compiler_in_its_process(tmp_path: Path, api: str, second: str) -> None:
    if api == "hiprtc" and api not in NAMED:
        pytest.skip("SAMEBITS_EXPECT does not name hiprtc")
    (driver,) = backends.load(api).drivers()
    assert answer(tmp_path, api, driver.label)["event"] == "opened"
    event = answer(tmp_path, api, driver.label, LD_PRELOAD=str(library(tmp_path / second)))
    assert event["event"] == "fault" and second in event["detail"], event


@pytest.mark.skipif(not {"g++", "clang++"} <= set(NAMED), reason="SAMEBITS_EXPECT does not name g++ and clang++")
@pytest.mark.parametrize(("label", "other"), [("g++", "clang++"), ("clang++", "g++"), ("clang++-asan", "g++")])
def test_a_compiler_by_the_name_of_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, other: str
) -> None:
    """As where `g++` is a link to clang++."""
    assert answer(tmp_path, "cuda_host", label)["event"] == "opened"
    family = label.removesuffix("-asan")
    (tmp_path / f"{family}-999").symlink_to(origin("cuda_host", other))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    event = answer(tmp_path, "cuda_host", label)
    assert (event["event"], event["verdict"]) == ("fault", "compile-error"), event
    assert "by another name" in event["detail"] or "another compiler" in event["detail"]


def test_cupy_for_the_other_vendor_and_both_drivers_at_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such card was at hand: by a fake run-time, and a fake list of what is mapped."""
    monkeypatch.setattr(common, "MAPS", tmp_path / "maps")
    nvidia, rocm = SimpleNamespace(is_hip=False), SimpleNamespace(is_hip=True)
    monkeypatch.setenv("SAMEBITS_CUDA_DRIVER", "rocm")
    cuda._check_driver(rocm)
    with pytest.raises(DeviceFault, match="expected CuPy for rocm, see one for nvidia"):
        cuda._check_driver(nvidia)
    common.MAPS.write_text("".join(f"7f-80 r-xp 0 00:00 1 /usr/lib/{n}.so.1\n" for n in ("libcuda", "libamdhip64")))
    with pytest.raises(DeviceFault, match=r"expected one CUDA driver, see libamdhip64\.so\.1, libcuda\.so\.1"):
        cuda._check_driver(rocm)


def test_adapters_that_the_driver_does_not_list_are_refused() -> None:
    mine = Identity("Mine", 1, 2, "d", "1.3.0", None, None)
    wgpu._check_alone([mine.key], [mine])
    with pytest.raises(DeviceFault, match="wgpu sees what the driver does not list: Other"):
        wgpu._check_alone([mine.key, ("Other", 3, 4)], [mine])
    with pytest.raises(DeviceFault, match="wgpu sees what the driver does not list: Mine"):
        wgpu._check_alone([mine.key], [])


def library(path: Path) -> Path:
    """A shared library without a function."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input="", text=True, check=True)
    return path
