"""Discovery leaves out drivers that the selectors cannot mean, and `select` never notices."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_backend
import pytest

from harness import backends, devices, groups, permissions
from harness.backends import Driver
from harness.devices import Device, discover, expected, select
from harness.errors import NoDevice
from harness.groups import NONE, Overrides, Part


def device(id: str, **fields: Any) -> Device:
    api, label, *index = id.split(":")
    return Device(id, api, label, int(index[0]) if index else 0, **({"kind": "software", "name": label} | fields))


MACHINE = [
    device("vulkan:lvp:0", name="llvmpipe", vendor="Mesa"),
    device("vulkan:intel", status="no-device", reason="present, no device"),
    device("vulkan:nvidia:0", name="NVIDIA H200", vendor="NVIDIA", kind="hardware", pci="0000:01:00.0"),
    device("opengl:mesa:0", name="virgl", vendor="Mesa", pci="0000:02:00.0"),
    device("opencl:intel-cpu:0", name="Xeon", vendor="Intel", uuid="aa"),
    device("opencl:mesa", status="no-device", reason="present, no device"),
    device("opencl:nvidia:0", name="NVIDIA H200", vendor="NVIDIA", kind="hardware", pci="0000:01:00.0"),
    device("opencl:nvidia:1", name="NVIDIA H200", vendor="NVIDIA", kind="hardware"),
    device("opencl:pocl:0", name="pthread", vendor="The pocl project"),
    device("opencl:vulkan:0", name="a driver called like an API"),
    device("opencl:software:0", name="a driver called like a kind"),
    device("cuda:nvidia", status="crash", reason="killed by SIGSEGV"),
    device("cuda_host:g++:0", name="g++ 12.2.0", vendor="GNU"),
    device("cuda_host:g++-asan:0", name="g++ 12.2.0 with ASan", vendor="GNU"),
]
DRIVERS = list(dict.fromkeys((d.api, d.label) for d in MACHINE))


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine whose drivers give the rows of MACHINE; returns the list of those that were probed, as it grows."""
    seen: list[str] = []

    def probe(driver: Driver, *_: object) -> list[Device]:
        seen.append(f"{driver.api}:{driver.label}")
        return [d for d in MACHINE if (d.api, d.label) == (driver.api, driver.label)]

    def load(api: str) -> SimpleNamespace:
        return SimpleNamespace(drivers=lambda: [Driver(a, label, "") for a, label in DRIVERS if a == api])

    monkeypatch.setattr(backends, "REGISTRY", dict.fromkeys(api for api, _ in DRIVERS))
    monkeypatch.setattr(backends, "load", load)
    monkeypatch.setattr(devices, "_probe", probe)
    monkeypatch.setattr(permissions, "nodes", list)
    monkeypatch.delenv(devices.EXPECT, raising=False)
    return seen


def outcome(rows: Iterable[Device], selectors: list[str]) -> list[str] | str:
    """What `select` finds, or says."""
    try:
        return [d.id for d in select(list(rows), selectors)]
    except NoDevice as e:
        return str(e)


ALONE = {
    "opencl:pocl:0": ["opencl:pocl"],
    " OpenCL:PoCL:0 ": ["opencl:pocl"],
    "opencl:nvidia:1": ["opencl:nvidia"],
    "opencl:pocl": ["opencl:pocl"],
    "pocl": ["opencl:pocl"],
    "nvidia": ["vulkan:nvidia", "opencl:nvidia", "cuda:nvidia"],
    "vulkan": ["vulkan:lvp", "vulkan:intel", "vulkan:nvidia", "opencl:vulkan"],
    "opengl": ["opengl:mesa"],
    "vulkan:*": ["vulkan:lvp", "vulkan:intel", "vulkan:nvidia"],
    "opencl:nvidia*": ["opencl:nvidia"],
    "opencl:nvidia:1*": ["opencl:nvidia"],
    "cuda*": ["cuda:nvidia", "cuda_host:g++", "cuda_host:g++-asan"],
    "lavapipe": ["vulkan:lvp"],
    "g++": ["cuda_host:g++"],
}
"""Selector -> the drivers that need be probed."""

ALL = (
    *(
        "hardware",
        "software",
        "compile-only",
        "unknown",
        "intel",
        "gnu",
        "h200",
        "Mesa Inc",
        "thread",
        "*",
        "opencl:*x",
    ),
    *(
        "opencl:nvidia:7",
        "opencl:mesa",
        "vulkan:intel",
        "cuda",
        "cuda:*",
        "metal",
        "",
        "none*",
        "swiftshader",
        ":",
        "x:0",
    ),
)
"""Selectors that say nothing of drivers, or name no usable device by one."""


@pytest.mark.parametrize("selector", ALONE)
def test_only_drivers_that_a_selector_can_mean_are_probed(probed: list[str], selector: str) -> None:
    rows = discover(selectors=[selector])
    assert sorted(probed) == sorted(ALONE[selector])
    assert outcome(rows, [selector]) == outcome(MACHINE, [selector])
    assert [d.id for d in rows] == [d.id for d in MACHINE if f"{d.api}:{d.label}" in probed]


@pytest.mark.parametrize("selector", ALL)
def test_all_drivers_are_probed_where_a_selector_leaves_open_which(probed: list[str], selector: str) -> None:
    """Once each, also where it is wrong: what there is, is listed whole."""
    rows = discover(selectors=["g++", selector])
    assert sorted(probed) == sorted(f"{api}:{label}" for api, label in DRIVERS)
    assert rows == MACHINE
    assert outcome(rows, ["g++", selector]) == outcome(MACHINE, ["g++", selector])


def test_an_unknown_name_lists_every_usable_device(probed: list[str]) -> None:
    with pytest.raises(NoDevice) as caught:
        select(discover(selectors=["opencl:poccl"]), ["opencl:poccl"])
    assert all(d.id in str(caught.value) for d in MACHINE if d.ok)
    assert "did you mean opencl:pocl?" in str(caught.value)


def test_without_a_selector_all_are_probed(probed: list[str]) -> None:
    assert discover() == MACHINE == discover(others=["pocl"])
    assert len(probed) == 2 * len(DRIVERS)


def test_what_must_show_up_is_probed_beside_what_is_named(probed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.EXPECT, "lavapipe,Intel,cuda:nvidia,opengl,nothing")
    rows = groups.discovered(["pocl"], NONE)
    assert {"opencl:pocl", "vulkan:lvp", "opencl:intel-cpu", "cuda:nvidia"} <= set(probed)
    assert expected(rows) == expected(MACHINE) and len(expected(rows)) == 2


def test_one_expected_device_costs_its_own_probe_alone(probed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.EXPECT, "lavapipe")
    groups.discovered(["pocl"], NONE)
    assert sorted(probed) == ["opencl:pocl", "vulkan:lvp"]


@pytest.mark.parametrize("selector", ["vulkan:nvidia:0", "opengl"])
def test_hardware_is_shown_with_its_group_whatever_is_named(probed: list[str], selector: str) -> None:
    """A record keeps the group; a software device has none."""
    assert groups.discovered([selector], NONE) == groups.labelled(MACHINE)
    assert len(probed) == len(DRIVERS)


@pytest.mark.parametrize("selector", ["lavapipe", "opencl:intel-cpu:0", "g++"])
def test_a_software_device_is_in_no_group(probed: list[str], selector: str) -> None:
    [row] = groups.discovered([selector], NONE)
    assert row in groups.labelled(MACHINE)
    assert len(probed) == 1


def test_an_operators_file_is_held_against_all_devices(probed: list[str]) -> None:
    file = Overrides(part=[Part(["vulkan:nvidia:0", "opencl:nvidia:0"])])
    assert groups.discovered(["pocl"], file) == groups.labelled(MACHINE, file)
    assert len(probed) == len(DRIVERS)


def test_a_driver_that_hangs_does_not_delay_another_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real children: the hanging one, which would take a minute, is never started."""
    monkeypatch.setattr(backends, "REGISTRY", {"fake": "fake_backend"})
    monkeypatch.setattr(devices, "PROBE", (sys.executable, str(Path(__file__).with_name("fake_probe.py"))))
    monkeypatch.setattr(permissions, "nodes", list)
    monkeypatch.setattr(fake_backend, "drivers", lambda: [fake_backend.driver(label) for label in ("hang", "good")])
    started = []

    def probe(driver: Driver, *arguments: Any, whole: Any = devices._probe) -> list[Device]:
        started.append(driver.label)
        rows: list[Device] = whole(driver, *arguments)
        return rows

    monkeypatch.setattr(devices, "_probe", probe)
    assert [(row.id, row.status) for row in discover(selectors=["fake:good:0"])] == [("fake:good:0", "ok")]
    assert started == ["good"]
