"""The CUDA sources through hipRTC without a GPU: machine code for each architecture, compiled only."""

from pathlib import Path
from typing import Any

import msgspec

from harness.backends import Driver, rtc
from harness.dispatch import Language

LANGUAGE: Language = "cuda"
HIPRTC = rtc.Compiler(
    api="hiprtc",
    name="hipRTC",
    vendor="AMD",
    label="rocm",
    libraries=("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"),
    wheels=(),
    # hipRTC 5.2 aborts on what it does not know (gfx942, gfx1100): these every version since 5.0 knows.
    architectures=("gfx906", "gfx90a", "gfx1030"),
    architecture_option="--offload-arch=",
    unoptimised="-O0",
    outputs={"hsaco": "Code"},
    instructions=lambda architecture: [],  # HIP has other names for what its GPUs can do
)


def drivers() -> list[Driver]:
    """hipRTC of an installed ROCm."""
    return rtc.drivers(HIPRTC)


def cache_environment(folder: Path) -> dict[str, str]:
    """hipRTC keeps nothing in `folder`."""
    return {}


def probe() -> list[dict[str, Any]]:
    """The one compiler, with the architectures for which it compiles a line."""
    return [msgspec.to_builtins(rtc.CompileOnly(HIPRTC).report)]


def open_device(index: int) -> rtc.CompileOnly:
    """The compiler; there is one a driver."""
    return rtc.CompileOnly(HIPRTC)
