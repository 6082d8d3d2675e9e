"""A device that is there and builds nothing is a row with the first line of its compiler's log, never one that can be used."""

import os
import sys

import pytest
from test_too_old import rows

from harness import backends, devices
from harness.backends import Driver

NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")
BROKEN = "from harness import probe; from harness.backends import opencl, wgpu; opencl.LINE = wgpu.LINE = 'broken !!'; probe.main()"


def driver(api: str, label: str, **changes: str) -> Driver:
    """A driver of this machine, with `changes` to the environment that isolates it."""
    (found,) = (d for d in backends.load(api).drivers() if d.label == label)
    return Driver(api, label, found.origin, {**found.environment, **changes})


@pytest.mark.skipif("pocl" not in NAMED, reason="SAMEBITS_EXPECT does not name pocl")
@pytest.mark.parametrize("label", ["pocl", "pocl-loops"])
def test_a_pocl_whose_compiler_refuses_everything_is_a_compile_error(
    monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """PoCL can be told to give its compiler an option, here one that there is not."""
    told = driver("opencl", label, POCL_EXTRA_BUILD_FLAGS="-no-such-option")
    (row,) = rows(monkeypatch, "opencl", [told])
    assert (row.id, row.status, row.phase) == (f"opencl:{label}", "compile-error", "probe")
    assert row.reason == "Invalid build option: -no-such-option"


@pytest.mark.parametrize(
    ("api", "label", "name"),
    [
        ("opencl", "intel-cpu", "intel"),
        ("opencl", "rusticl", "rusticl"),
        ("vulkan", "lvp", "lavapipe"),
        ("vulkan", "vk_swiftshader", "swiftshader"),
        ("opengl", "llvmpipe", "llvmpipe"),
    ],
)
def test_every_api_builds_a_line_before_a_device_counts_as_usable(
    monkeypatch: pytest.MonkeyPatch, api: str, label: str, name: str
) -> None:
    """Here the line is no program."""
    if name not in NAMED:
        pytest.skip(f"SAMEBITS_EXPECT does not name {name}")
    told = driver(api, label)
    assert [row.status for row in rows(monkeypatch, api, [told])] == ["ok"]
    monkeypatch.setattr(devices, "PROBE", (sys.executable, "-P", "-c", BROKEN))
    (row,) = rows(monkeypatch, api, [told])
    assert (row.id, row.status, row.phase) == (f"{api}:{label}", "compile-error", "probe")
    assert row.reason and "/" not in row.reason.split()[0] and "clBuildProgram" not in row.reason
