"""WGSL through wgpu on OpenGL ES by EGL, without a display: the same verbs as `wgpu.py`, its own search for drivers."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.backends import egl_vendors, wgpu
from harness.errors import DeviceFault

LANGUAGE = wgpu.LANGUAGE
MAPS = Path("/proc/self/maps")

cache_environment = wgpu.cache_environment
drivers = egl_vendors.drivers


def probe() -> list[dict[str, Any]]:
    """The OpenGL adapters of the visible driver; [] where it has none."""
    found = wgpu.probe_adapters("OpenGL")
    _check_alone(report["name"] for report in found)
    return found


def open_device(index: int) -> wgpu.Wgpu:
    """The adapter at that place of `probe()`."""
    device = wgpu.open_adapter("OpenGL", index)
    _check_alone([device.report.name])
    return device


def _check_alone(names: Iterable[str]) -> None:
    """Raises DeviceFault where more than one EGL vendor is loaded: an adapter does not say whose it is.

    Nor may Vulkan be, unless the adapter is Mesa's OpenGL on top of it.
    """
    maps = MAPS.read_text("utf-8", "replace") if MAPS.exists() else ""
    libraries = re.findall(r"/(libEGL_\w+|libvulkan\w*)\.so", maps)
    layered = any("zink" in name for name in names)
    seen = {name for name in libraries if not (layered and name.startswith("libvulkan"))}
    if len(seen) > 1 or any(name.startswith("libvulkan") for name in seen):
        raise DeviceFault(f"expected one OpenGL driver, see {', '.join(sorted(seen))}")
