"""Which OpenGL drivers a machine has, by files and variables alone: the JSON files of EGL vendors that libglvnd reads.

A child sees one because the variable of libglvnd names its file. Mesa draws on a card or on the processor with one
library, so it is several drivers: `llvmpipe`, forced to the processor, and one for each render node that is not of NVIDIA's own
kernel driver: `mesa`, of several `mesa-renderD129`. Several cards were never tried.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from harness.backends import Driver
from harness.backends.common import find_library, library_problem, unique_label
from harness.backends.vulkan_icds import library_named_by

FOLDERS = ("/etc/glvnd/egl_vendor.d", "/usr/local/share/glvnd/egl_vendor.d", "/usr/share/glvnd/egl_vendor.d")
NODES = Path("/dev/dri")
CARDS = Path("/sys/class/drm")
NODE = "SAMEBITS_RENDER_NODE"
"""Names the node that a child is to find in use."""

LOADER = "libEGL.so.1"
CLEARED = (
    *("__EGL_VENDOR_LIBRARY_DIRS", "DISPLAY", "WAYLAND_DISPLAY", "EGL_PLATFORM"),
    *("MESA_LOADER_DRIVER_OVERRIDE", "GALLIUM_DRIVER", "LIBGL_ALWAYS_SOFTWARE"),
)
"""Variables that would add drivers, put a display's driver in the place of the file's, or choose Mesa's renderer."""

SOFTWARE: dict[str, str | None] = {"LIBGL_ALWAYS_SOFTWARE": "true", "GALLIUM_DRIVER": "llvmpipe"}


def drivers() -> list[Driver]:
    """Every vendor file, one row a library (of Mesa's one or two); else a `libEGL` that is a driver itself."""
    found: list[Driver] = []
    seen: set[Path] = set()
    for file in dict.fromkeys(f.absolute() for f in _files()):
        library, problem = library_named_by(file)
        path = find_library(library) if library else None
        if path and path.resolve() in seen:
            continue
        if path:
            seen.add(path.resolve())
        if library:
            problem = library_problem(library)
        if not problem and find_library(LOADER) is None:
            problem = f"the EGL loader {LOADER} is not installed (Debian and Ubuntu: apt install libegl1)"
        environment: dict[str, str | None] = dict.fromkeys(CLEARED)
        environment["__EGL_VENDOR_LIBRARY_FILENAMES"] = str(file)
        for name, more in _renderers(re.sub(r"^\d+_|\.json$", "", file.name), library):
            label = unique_label([name, file.name.removesuffix(".json")], (d.label for d in found))
            row = Driver("opengl", label, str(file), environment | more, f"{file}: {problem}" if problem else None)
            found.append(row)
    if not found and (path := find_library(LOADER)):
        found.append(Driver("opengl", "egl", str(path), dict.fromkeys(CLEARED), library_problem(str(path))))
    return found


def library_of(origin: Path) -> str:
    """The library behind a driver's `origin`: what a vendor file names, or the library itself."""
    return library_named_by(origin)[0] if origin.suffix == ".json" else str(origin)


def _renderers(name: str, library: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The labels of one vendor, and what more its environment holds."""
    if "mesa" not in library.lower():
        yield name, {}
        return
    nodes = [n.name for n in sorted(NODES.glob("renderD*")) if _link(n.name, "device/driver") != "nvidia"]
    if len(nodes) == 1:
        yield name, {}
    for node in nodes if len(nodes) > 1 else ():
        # Mesa's variable takes an address in this spelling; without it, it draws with the first card.
        chosen = f"pci-{re.sub(r'[:.]', '_', address(node) or 'unknown')}"
        yield f"{name}-{node}", {"DRI_PRIME": chosen, NODE: node}
    yield "llvmpipe", SOFTWARE


def address(node: str) -> str | None:
    """The PCI address of the card behind a render node (`renderD128`); None where it is on no PCI bus."""
    name = _link(node, "device")
    return name if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", name) else None


def _link(node: str, what: str) -> str:
    """The last part of where a link in the kernel's folder of a node leads, "" where there is none."""
    link = CARDS / node / what
    return link.resolve().name if link.exists() else ""


def _files() -> Iterator[Path]:
    named = os.environ.get("__EGL_VENDOR_LIBRARY_FILENAMES", "")
    folders = os.environ.get("__EGL_VENDOR_LIBRARY_DIRS", "")
    yield from map(Path, filter(None, named.split(":")))
    for folder in (*filter(None, folders.split(":")), *FOLDERS):
        yield from sorted(Path(folder).glob("*.json"))
