"""WGSL through wgpu on Metal (macOS): the same verbs as `wgpu.py`. Untested: no such machine was at hand."""

import sys
from typing import Any

from harness.backends import Driver, wgpu

LANGUAGE = wgpu.LANGUAGE
cache_environment = wgpu.cache_environment


def drivers() -> list[Driver]:
    """The one driver that macOS brings; none elsewhere."""
    return [Driver("metal", "system", "macOS")] if sys.platform == "darwin" else []


def probe() -> list[dict[str, Any]]:
    """The Metal adapters; [] where there is none."""
    return wgpu.probe_adapters("Metal")


def open_device(index: int) -> wgpu.Wgpu:
    """The adapter at that place of `probe()`."""
    return wgpu.open_adapter("Metal", index)
