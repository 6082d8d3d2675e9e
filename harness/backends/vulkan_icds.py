"""Which Vulkan drivers a machine has, by files and variables alone: the JSON files that the Vulkan loader reads.

A child sees one driver because both names of the loader's variable point to its file. Chromium ships one more driver,
SwiftShader, in its own folder.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from harness.backends import Driver
from harness.backends.common import find_library, library_problem, unique_label

FOLDERS = ("/etc", "/usr/local/etc", "/usr/local/share", "/usr/share")
BROWSER_FOLDERS = ("/usr/lib/chromium", "/usr/lib64/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
CLEARED = ("VK_ADD_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE", "VK_INSTANCE_LAYERS")
"""Variables that would add drivers or layers, or hide drivers."""

LOADER = "libvulkan.so.1"


def drivers() -> list[Driver]:
    """Every driver file of the system folders, of Chromium and of the loader's variables; one row a library."""
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
            problem = f"the Vulkan loader {LOADER} is not installed (Debian and Ubuntu: apt install libvulkan1)"
        stem = re.sub(r"(_icd)?(\.\w+)?\.json$", "", file.name)
        label = unique_label([stem, file.name.removesuffix(".json")], (d.label for d in found))
        environment: dict[str, str | None] = {"VK_DRIVER_FILES": str(file), "VK_ICD_FILENAMES": str(file)}
        environment |= dict.fromkeys(CLEARED) | {"VK_LOADER_LAYERS_DISABLE": "~implicit~"}
        found.append(Driver("vulkan", label, str(file), environment, f"{file}: {problem}" if problem else None))
    return found


def _files() -> Iterator[Path]:
    home = Path(os.environ.get("HOME", "/"))
    config = [os.environ.get("XDG_CONFIG_HOME") or home / ".config"]
    config += (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    data = [os.environ.get("XDG_DATA_HOME") or home / ".local/share"]
    data += (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    for folder in (*config, *data, *FOLDERS):
        yield from sorted(Path(folder, "vulkan/icd.d").glob("*.json"))
    for folder in BROWSER_FOLDERS:
        yield from sorted(Path(folder).glob("vk_*_icd.json"))
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"):
        for name in filter(None, os.environ.get(variable, "").split(":")):
            yield from sorted(Path(name).glob("*.json")) if os.path.isdir(name) else [Path(name)]


def library_named_by(file: Path) -> tuple[str, str | None]:
    """The library that a driver file of Vulkan or EGL names, and "" with the reason where it names none."""
    try:
        with file.open("rb") as stream:
            library = json.loads(stream.read(65_536))["ICD"]["library_path"]
    except OSError as e:
        return "", f"cannot be read: {e.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", 'not a driver file: it should be JSON with "ICD" and in it "library_path"'
    if not isinstance(library, str) or not library or not library.isprintable():
        return "", '"library_path" is not the name of a library'
    return (str(file.parent / library) if "/" in library else library), None
