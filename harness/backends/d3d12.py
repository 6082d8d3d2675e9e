"""WGSL through wgpu on D3D12 (Windows): the same verbs as `wgpu.py`. Untested: no such machine was at hand."""

import sys
from typing import Any

from harness.backends import Driver, wgpu

LANGUAGE = wgpu.LANGUAGE
cache_environment = wgpu.cache_environment


def drivers() -> list[Driver]:
    """The one driver that Windows brings; none elsewhere."""
    return [Driver("d3d12", "system", "Windows")] if sys.platform == "win32" else []


def probe() -> list[dict[str, Any]]:
    """The D3D12 adapters; [] where there is none."""
    return wgpu.probe_adapters("D3D12")


def open_device(index: int) -> wgpu.Wgpu:
    """The adapter at that place of `probe()`."""
    return wgpu.open_adapter("D3D12", index)
