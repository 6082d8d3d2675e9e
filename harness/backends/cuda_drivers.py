"""Whether a machine has a driver for the CUDA sources, by files and installed packages alone."""

import importlib.metadata
import re
from pathlib import Path

from harness.backends import Driver
from harness.backends.common import find_library

NVIDIA_NODE, AMD_NODE = Path("/dev/nvidiactl"), Path("/dev/kfd")
LIBRARY = "libcuda.so.1"
VARIABLE = "SAMEBITS_CUDA_DRIVER"
"""Names the driver that a child is to see, `nvidia` or `rocm`."""


def drivers() -> list[Driver]:
    """NVIDIA's driver where its library or device node exists, AMD's where CuPy was built for it."""
    builds = _cupy_builds()
    environment: dict[str, str | None] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUPY_CUDA_COMPILE_WITH_DEBUG": None}
    found = []
    library = find_library(LIBRARY)
    if library or NVIDIA_NODE.exists():
        problem = None
        if library is None:
            problem = (
                f"{NVIDIA_NODE} is there, {LIBRARY} is not: start a container with all GPUs, or install the driver"
            )
        elif all("rocm" in name for name in builds):
            problem = "CuPy is not installed: pip install 'samebits[cuda13]', or [cuda12] for a driver before 580"
        found.append(Driver("cuda", "nvidia", str(library or NVIDIA_NODE), environment | {VARIABLE: "nvidia"}, problem))
    if AMD_NODE.exists() and any("rocm" in name for name in builds):
        found.append(Driver("cuda", "rocm", str(AMD_NODE), environment | {VARIABLE: "rocm"}))
    return found


def _cupy_builds() -> list[str]:
    """CuPy as it is installed: `cupy-cuda12x`, `cupy-rocm-7-0`, `cupy` when built from source."""
    names = {(d.metadata["Name"] or "").lower() for d in importlib.metadata.distributions()}
    return sorted(name for name in names if re.fullmatch(r"cupy(-cuda\w+|-rocm[\w-]+)?", name))
