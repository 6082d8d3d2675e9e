"""Which OpenCL drivers a machine has, by files and variables alone: ICD files, and the libraries of Intel's wheel and of
Oclgrind, which come without one that can be used.

A child sees one driver because `OCL_ICD_VENDORS` names the `.icd` file, or the library, itself. A folder would not
isolate: pip-installed runtimes put more drivers beside pyopencl's own loader.
"""

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.backends import Driver, oclgrind, pocl
from harness.backends.common import find_library, library_problem, unique_label

VENDOR_FOLDERS = ("/etc/OpenCL/vendors", "/usr/local/etc/OpenCL/vendors", "/usr/share/OpenCL/vendors")
LABELS = {"pocl": "pocl", "rusticl": "rusticl", "oclgrind": "oclgrind"}
"""Part of a library's name -> label, however a distribution names its `.icd`."""

CLEARED = ("OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "OPENCL_LAYERS", "PYOPENCL_BUILD_OPTIONS")
"""Variables that would add drivers, layers or compiler options."""


def drivers() -> list[Driver]:
    """Intel's wheel, every `.icd` file of the system folders and of the loader's variables, Oclgrind; one row a library."""
    found: list[Driver] = []
    seen: set[Path] = set()
    wheel = _intel_wheel()
    for origin in dict.fromkeys([*([wheel] if wheel else []), *_origins()]):
        library = library_named_by(origin)
        path = find_library(library) if library else None
        if path and path.resolve() in seen:
            continue
        environment: dict[str, str | None] = {"OCL_ICD_VENDORS": str(origin)}
        environment |= dict.fromkeys(CLEARED)
        names = [label for part, label in LABELS.items() if part in library.lower()]
        if path:
            seen.add(path.resolve())
        if path and path == wheel:
            names = ["intel-cpu"]
            folders = [str(path.parent), os.environ.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(f for f in folders if f)
        if "oclgrind" in names:
            environment |= oclgrind.ENVIRONMENT
        if "rusticl" in names and "RUSTICL_ENABLE" not in os.environ:
            environment["RUSTICL_ENABLE"] = "llvmpipe"
        problem = library_problem(library) if library else "not an ICD file: it should hold the name of one library"
        label = unique_label([*names, origin.stem], (d.label for d in found))
        if "pocl" in names:
            environment[pocl.VARIABLE] = None
        driver = Driver("opencl", label, str(origin), environment, f"{origin}: {problem}" if problem else None)
        found.append(driver)
        if "pocl" in names:
            found += pocl.rows(driver, found)
    return found


def _origins() -> Iterator[Path]:
    """All that OCL_ICD_VENDORS may be set to here: `.icd` files, and libraries that a variable names."""
    # A conda-installed PoCL lies in the environment, a pip-installed one beside the loader.
    folders = [Path(f) for f in (*VENDOR_FOLDERS, f"{sys.prefix}/etc/OpenCL/vendors")]
    intel = _intel_files()
    for folder in (*folders, *_loader_folder()):
        # The .icd files of Intel's wheel name a folder of the machine that built it.
        yield from (f for f in sorted(folder.glob("*.icd")) if f.resolve() not in intel)
    for name in (os.environ.get("OCL_ICD_VENDORS", ""), *os.environ.get("OCL_ICD_FILENAMES", "").split(":")):
        if os.path.isdir(name):
            yield from sorted(Path(name).absolute().glob("*.icd"))
        elif name:
            yield Path(name).absolute() if "/" in name else Path(name)
    yield from oclgrind.libraries()


def _loader_folder() -> list[Path]:
    """Where pyopencl's own loader lies: there it looks for libraries too, as well as in the system's folders."""
    package = importlib.util.find_spec("pyopencl")
    return [Path(package.origin).parent / ".libs"] if package and package.origin else []


def library_named_by(origin: Path) -> str:
    """The library that an `.icd` file names, "" where it names none; a library stands for itself."""
    if origin.suffix != ".icd":
        return str(origin)
    try:
        with origin.open("rb") as file:
            lines = file.read(4096).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    name, *rest = [line.strip() for line in lines if line.strip()] or [""]
    if rest or not name.isprintable():
        return ""
    beside = (str(folder / name) for folder in _loader_folder() if name and "/" not in name)
    return next(filter(os.path.isfile, beside), name)


def _intel_files() -> list[Path]:
    """The files of Intel's wheel, where it is installed."""
    try:
        return [Path(str(f.locate())).resolve() for f in importlib.metadata.files("intel-opencl-rt") or ()]
    except importlib.metadata.PackageNotFoundError:
        return []


def _intel_wheel() -> Path | None:
    return next((f for f in _intel_files() if f.name == "libintelocl.so"), None)
