"""What several backends need to know of drivers: where a library lies, whether it can be one, who made a device."""

import os
import re
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.dispatch import GUARD_WORDS, Buffer
from harness.errors import DeviceFault

LOADER_CACHE = Path("/etc/ld.so.cache")
MAPS = Path("/proc/self/maps")
LIBRARY_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
OPTIMISER = "SAMEBITS_OPTIMISER"
"""Set to "off" for a child whose device is to compile without its optimiser; `devices.without_optimiser` does it."""

SOFTWARE_NAMES = re.compile(
    r"llvmpipe|lavapipe|softpipe|swiftshader|oclgrind|software|emulat|simulat|basic render|\bwarp\b", re.I
)
VENDORS = {
    0x10DE: "NVIDIA",
    0x1002: "AMD",
    0x1022: "AMD",
    0x8086: "Intel",
    0x106B: "Apple",
    0x13B5: "Arm",
    0x5143: "Qualcomm",
    0x1010: "Imagination",
    0x14E4: "Broadcom",
    0x1414: "Microsoft",
    0x1AE0: "Google",
    0x10005: "Mesa",
}
"""PCI vendor ids, and Khronos's own for those without one."""


def optimiser_off() -> bool:
    """Whether this child is to compile without optimisation. A backend that cannot raises Unsupported."""
    return os.environ.get(OPTIMISER) == "off"


def is_software(name: str) -> bool:
    """Whether a device or renderer of that name is a software renderer, whatever type it claims to be."""
    return SOFTWARE_NAMES.search(name) is not None


def vendor_name(vendor_id: int, text: str) -> str:
    """One spelling a vendor, the same through every API: by PCI id, else by the driver's words, else those words."""
    if vendor_id in VENDORS:
        return VENDORS[vendor_id]
    if "advanced micro devices" in text.lower():
        return "AMD"
    known = (v for v in VENDORS.values() if re.search(rf"\b{v}\b", text, re.IGNORECASE))
    return next(known, " ".join(text.split()))


def find_library(name: str) -> Path | None:
    """Where the dynamic loader would find library `name` (a path or a bare name), by looking at files only."""
    if "/" in name:
        candidates = [Path(name)]
    else:
        folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
        candidates = [Path(f, name) for f in (*folders, *_loader_folders())]
    there = [c for c in candidates if os.path.isfile(c)]  # unlike Path.is_file, False where it may not look
    # The loader takes the first of its own word size; folders of all sizes are searched.
    return next((c for c in there if _file_problem(c) is None), next(iter(there), None))


def _loader_folders() -> list[str]:
    """All folders of the loader's cache (a library is in it under one of its names only), then the usual ones."""
    try:
        cached = re.findall(rb"(/[^\0]+)/[^/\0]+\0", LOADER_CACHE.read_bytes())
    except OSError:  # musl has no such file
        cached = []
    return list(dict.fromkeys([*map(os.fsdecode, cached), *LIBRARY_FOLDERS]))


def library_problem(name: str) -> str | None:
    """Why library `name` cannot be loaded, as far as files tell; None where it looks whole."""
    path = find_library(name)
    if path is None:
        return f"{name[:200]!r} {'does not exist' if '/' in name else 'is in no library folder'}"
    return _file_problem(path)


def _file_problem(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(5)
    except OSError as e:
        return f"{path} cannot be read: {e.strerror}"
    if sys.platform != "linux":
        return None
    if head[:4] != b"\x7fELF" or len(head) < 5:
        return f"{path} is not a shared library"
    bits = struct.calcsize("P") * 8
    return None if head[4] * 32 == bits else f"{path} is a {head[4] * 32}-bit library, this Python is {bits}-bit"


def mapped(pattern: str) -> set[str]:
    """The shared libraries in this process whose file name (without `.so` and what follows) matches `pattern` (Linux)."""
    maps = MAPS.read_text("utf-8", "replace") if MAPS.exists() else ""
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if ".so" in line}
    return {path for path in paths if re.fullmatch(pattern, os.path.basename(path).partition(".so")[0])}


def check_alone(pattern: str, what: str) -> None:
    """Raises DeviceFault where this process has loaded several libraries that match `pattern`, each a driver."""
    seen = sorted(os.path.basename(path) for path in mapped(pattern))
    if len(seen) > 1:
        raise DeviceFault(f"expected one {what}, see {', '.join(seen)}")


def first_line(log: str, skip: str = r"$") -> str:
    """A compiler's log as one line: its first error, else its first line of substance; paths cut to their last part."""
    lines = [line.strip() for line in log.splitlines() if not re.match(skip, line.strip())]
    errors = (line for line in lines if re.search(r"\berror\b", line, re.I))
    line = next(errors, lines[0] if lines else "refused, without a log")
    return re.sub(r"(?<!\S)/(\S+/)+", "", line)


def unique_label(wanted: Iterable[str], taken: Iterable[str]) -> str:
    """The first of `wanted` that is not taken, else the last one with a number."""
    names, used = list(wanted), set(taken)
    numbered = (f"{names[-1]}-{i}" for i in range(2, len(used) + 3))
    return next(n for n in (*names, *numbered) if n not in used)


def buffer_bytes(buffer: Buffer) -> int:
    """Bytes to allocate: never none (some drivers break on that), and a guard behind what a kernel may write."""
    return 4 * (max(1, buffer.words) + (GUARD_WORDS if buffer.filled else 0))
