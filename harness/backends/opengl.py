"""WGSL through wgpu on OpenGL ES by EGL, without a display: the same verbs as `wgpu.py`, its own search for drivers."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from harness.backends import common, egl_vendors, wgpu
from harness.errors import DeviceFault

LANGUAGE = wgpu.LANGUAGE
DESCRIPTORS = Path("/proc/self/fd")

cache_environment = wgpu.cache_environment
drivers = egl_vendors.drivers


def probe() -> list[dict[str, Any]]:
    """The OpenGL adapters of the visible driver; [] where it has none."""
    found = wgpu.probe_adapters("OpenGL")
    _check_alone(report["name"] for report in found)
    return [report | {"pci": _address()} for report in found]


def open_device(index: int) -> wgpu.Wgpu:
    """The adapter at that place of `probe()`."""
    device = wgpu.open_adapter("OpenGL", index)
    _check_alone([device.report.name])
    device.report = msgspec.structs.replace(device.report, pci=_address())
    return device


def _check_alone(names: Iterable[str]) -> None:
    """Raises DeviceFault where more than one EGL vendor is loaded: an adapter does not say whose it is.

    Nor may Vulkan be, unless the adapter is Mesa's OpenGL on top of it.
    """
    layered = any("zink" in name for name in names)
    common.check_alone(r"libEGL_\w+" if layered else r"libEGL_\w+|libvulkan\w*", "OpenGL driver")
    if not layered and (vulkan := common.mapped(r"libvulkan\w*")):
        raise DeviceFault(f"expected one OpenGL driver, see {', '.join(map(os.path.basename, sorted(vulkan)))}")


def _address() -> str | None:
    """The PCI address of the card behind the one render node that the driver holds open; no API of OpenGL tells it.

    Raises DeviceFault where that is not the card that this child is to see.
    """
    links = (
        [os.path.basename(os.readlink(f)) for f in DESCRIPTORS.iterdir() if f.is_symlink()]
        if DESCRIPTORS.exists()
        else []
    )
    held = {name for name in links if name.startswith("renderD")}
    wanted = os.environ.get(egl_vendors.NODE)
    if wanted and held != {wanted}:
        there = ", ".join(sorted(held)) or "none"
        raise DeviceFault(
            f"Mesa was told to draw with {wanted} and holds {there}: this card cannot be had by OpenGL here"
        )
    return egl_vendors.address(next(iter(held))) if len(held) == 1 else None
