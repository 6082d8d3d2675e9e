"""The CUDA sources through NVRTC without a GPU: PTX and machine code for each architecture, compiled only."""

from pathlib import Path
from typing import Any

import msgspec

from harness import units
from harness.backends import Driver, rtc
from harness.dispatch import Language

LANGUAGE: Language = "cuda"
NVRTC = rtc.Compiler(
    api="nvrtc",
    name="NVRTC",
    vendor="NVIDIA",
    label="cuda",
    libraries=("libnvrtc.so.13", "libnvrtc.so.12"),
    wheels=("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    architectures=("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"),
    architecture_option="--gpu-architecture=",
    unoptimised="--device-debug",  # of NVRTC and of the assembler behind it
    outputs={"ptx": "PTX", "cubin": "CUBIN"},
    instructions=lambda architecture: units.cuda_instructions(int(architecture.removeprefix("sm_"))),
)


def drivers() -> list[Driver]:
    """NVRTC of NVIDIA's wheels and of an installed toolkit."""
    return rtc.drivers(NVRTC)


def cache_environment(folder: Path) -> dict[str, str]:
    """NVRTC keeps nothing in `folder`."""
    return {}


def probe() -> list[dict[str, Any]]:
    """The one compiler, with the architectures for which it compiles a line."""
    return [msgspec.to_builtins(rtc.CompileOnly(NVRTC).report)]


def open_device(index: int) -> rtc.CompileOnly:
    """The compiler; there is one a driver."""
    return rtc.CompileOnly(NVRTC)
