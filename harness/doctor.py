"""What a machine has and lacks for GPU drivers, as plain data: for a user whose device does not show up.

Everything is found by looking at files, except libraries and compilers, which are tried in children.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import msgspec

from harness import __version__, backends, groups, permissions
from harness.backends import Driver, egl_vendors, opencl_icds, vulkan_icds
from harness.backends.common import VENDORS
from harness.errors import InputRefused
from harness.folders import cache_folder, state_folder
from harness.privacy import DRIVER_VARIABLES
from harness.process import Child, ChildFault, environment, one_line, python
from harness.provenance import LIBRARIES

LOADERS = {
    "libvulkan.so.1": "needed for Vulkan (Debian: apt install libvulkan1)",
    "libEGL.so.1": "needed for OpenGL (Debian: apt install libegl1)",
    "libOpenCL.so.1": "",  # pyopencl's wheel brings one
    "libcuda.so.1": "",  # most machines need none, and hardware without a driver is told above
    "libamdhip64.so": "",
}
"""Libraries through which drivers are reached -> the mend where one does not load."""

COMPILERS = ("g++", "clang++", "nvcc", "hipcc")
BUNDLED = {"pyopencl": "libOpenCL", "wgpu": "libwgpu_native"}
"""Wheels that bring a library of their own, which other rules may hold for than for the system's."""

PCI = Path("/sys/bus/pci/devices")
OS_RELEASE = Path("/etc/os-release")
LIBRARY_SECONDS = 20.0
COMPILER_SECONDS = 10.0

INTEL_RUNTIME = "pip install intel-opencl-rt intel-cmplr-lib-rt (the extra [cpu]: about 800 MB, Intel's licence)"
PACKAGES = {
    "debian": "sudo apt install pocl-opencl-icd mesa-vulkan-drivers libvulkan1 g++",
    "fedora": "sudo dnf install pocl mesa-vulkan-drivers vulkan-loader gcc-c++",
    "arch": "sudo pacman -S pocl vulkan-swrast vulkan-icd-loader gcc",
    "suse": "sudo zypper install pocl libvulkan_lvp libvulkan1 gcc-c++",
}
"""Software devices by family of distributions."""

GPU_DRIVERS = {
    "NVIDIA": "NVIDIA's driver (Debian: apt install nvidia-driver), and pip install cupy-cuda13x (the extra [cuda13])",
    "AMD": "Mesa's Vulkan driver (Debian: apt install mesa-vulkan-drivers libvulkan1)",
    "Intel": "Mesa's and Intel's drivers (Debian: apt install mesa-vulkan-drivers libvulkan1 intel-opencl-icd)",
}


class Row(msgspec.Struct, frozen=True):
    """One thing looked at: what it is and what was found. `mend` is set where something is wrong."""

    what: str
    found: str
    mend: str = ""


class Section(msgspec.Struct, frozen=True):
    """Rows under one title."""

    title: str
    rows: list[Row]


class Gpu(msgspec.Struct, frozen=True):
    """A display or compute device on the PCI bus; `driver` is the kernel's, "" where it has none."""

    address: str
    vendor: str
    ids: str
    driver: str


def report() -> list[Section]:
    """All sections, in the order in which a device comes to be seen."""
    return [
        Section("versions", _versions()),
        Section("hardware", _hardware()),
        Section("loaders", _loaders()),
        Section("search paths", _search_paths()),
        Section("drivers, by their files", _drivers()),
        Section("driver variables", _variables()),
        Section("host compilers", _compilers()),
        Section("samebits' own files", _own_files()),
    ]


def _own_files() -> list[Row]:
    """The folders that samebits writes to, and the operator's file of groups."""
    rows = []
    places = (
        ("records and journals", "SAMEBITS_STATE_DIR", state_folder()),
        ("cache", "SAMEBITS_CACHE_DIR", cache_folder()),
    )
    for what, variable, folder in places:
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        good = there.is_dir() and os.access(there, os.W_OK)
        rows.append(Row(what, str(folder), "" if good else f"cannot be written; name another folder in {variable}"))
    try:
        overrides = groups.load()
        rows.append(Row("groups", "none" if overrides is groups.NONE else "read"))
    except InputRefused as e:
        rows.append(Row("groups", "refused", str(e)))
    return rows


def install_advice() -> str:
    """What to install on this machine, where no device was found at all; one line."""
    advice = [f"{node.problem}: {node.mend}" for node in permissions.nodes() if node.problem]
    for vendor in dict.fromkeys(gpu.vendor for gpu in pci_gpus()):
        if vendor in GPU_DRIVERS:
            advice.append(f"for the {vendor} GPU: {GPU_DRIVERS[vendor]}")
    software = [INTEL_RUNTIME] if platform.machine() in ("x86_64", "AMD64") and sys.platform == "linux" else []
    software += filter(None, [PACKAGES.get(_family())])
    advice.append("for a software device: " + (", or ".join(software) or "PoCL or a C++ compiler"))
    return "; ".join(advice) + "; see `samebits doctor`"


def pci_gpus() -> list[Gpu]:
    """Display controllers and processing accelerators, as Linux lists them."""
    found = []
    for folder in sorted(PCI.glob("*")):
        try:
            kind, vendor, device = ((folder / name).read_text().strip() for name in ("class", "vendor", "device"))
        except (OSError, UnicodeDecodeError):
            continue
        if kind.startswith(("0x03", "0x12")):
            driver = (folder / "driver").resolve().name if (folder / "driver").exists() else ""
            name = VENDORS.get(int(vendor, 16), vendor)
            found.append(Gpu(folder.name, name, f"{vendor[2:]}:{device[2:]}", driver))
    return found


def _versions() -> list[Row]:
    rows = [
        Row("samebits", __version__),
        Row("Python", f"{platform.python_version()} ({sys.executable})"),
        Row("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
    ]
    for name in sorted({*LIBRARIES, "filelock", "psutil", "rich", "click"}):
        try:
            rows.append(Row(name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return rows


def _hardware() -> list[Row]:
    rows = []
    for gpu in pci_gpus():
        mend = "" if gpu.driver or gpu.vendor not in GPU_DRIVERS else f"install {GPU_DRIVERS[gpu.vendor]}"
        rows.append(Row(gpu.address, f"{gpu.vendor} {gpu.ids}, kernel driver {gpu.driver or 'none'}", mend))
    if PCI.exists() and not rows:
        rows.append(Row("PCI bus", "no GPU"))
    nodes = permissions.nodes()
    rows += [Row(node.path, node.problem or "may be opened", node.mend) for node in nodes]
    if rows and not nodes:
        rows.append(Row("device nodes", "no render node, /dev/kfd, /dev/nvidiactl or /dev/dxg"))
    return rows


def _loaders() -> list[Row]:
    """System loaders, tried in children; those inside wheels, by their files; a conda environment that hides them."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda name: load_in_child(name, {}), LOADERS))
    rows = []
    for name, (path, problem) in zip(LOADERS, answers, strict=True):
        rows.append(Row(name, path or f"does not load: {problem}", "" if path else LOADERS[name]))
    for package, stem in BUNDLED.items():
        for file in _package_files(package):
            if file.name.startswith(stem):
                rows.append(Row(f"{stem} of the {package} wheel", str(file)))
    prefix = os.environ.get("CONDA_PREFIX")
    if prefix:
        own = sorted(
            f.name for name in ("libvulkan.so*", "libOpenCL.so*", "libEGL.so*") for f in Path(prefix, "lib").glob(name)
        )
        mend = "conda's loaders may not see the system's drivers: remove them from the environment" if own else ""
        rows.append(Row("conda environment", f"{prefix} with {', '.join(own) or 'no loader of its own'}", mend))
    return rows


def _search_paths() -> list[Row]:
    vulkan = [Path(folder, "vulkan/icd.d") for folder in vulkan_icds.FOLDERS]
    places = [*((p, "*.json") for p in vulkan), *((Path(p), "*_icd.json") for p in vulkan_icds.BROWSER_FOLDERS)]
    places += [(Path(p), "*.json") for p in egl_vendors.FOLDERS]
    places += [(Path(p), "*.icd") for p in opencl_icds.VENDOR_FOLDERS]
    return [Row(str(place), _holds(place, pattern)) for place, pattern in places if place.is_dir()]


def _holds(folder: Path, pattern: str) -> str:
    return ", ".join(sorted(file.name for file in folder.glob(pattern))) or "no driver file"


def _drivers() -> list[Row]:
    """Each driver that the backends find by files, and whether its library loads."""
    rows: list[Row] = []
    found: list[Driver] = []
    for api in (api for api in backends.REGISTRY if api != "mock"):
        try:
            found += backends.load(api).drivers()
        except Exception as error:  # one API's fault must not hide the others: that is what a doctor is for
            rows.append(Row(api, "the search for drivers failed", one_line(f"{type(error).__name__}: {error}")))
    with ThreadPoolExecutor(4) as pool:
        return rows + list(pool.map(_driver, found))


def _driver(driver: Driver) -> Row:
    what = f"{driver.api}:{driver.label}"
    if driver.problem:
        return Row(what, driver.origin, driver.problem)
    library = library_of(driver.api, driver.origin)
    if not library:
        return Row(what, driver.origin)
    path, problem = load_in_child(library, driver.environment)
    return Row(what, f"{driver.origin}: {path or library}", f"the library does not load: {problem}" if problem else "")


def library_of(api: str, origin: str) -> str:
    """The library of a driver that was found at `origin`; "" where it has none of its own."""
    named = {
        "vulkan": lambda: vulkan_icds.library_named_by(Path(origin))[0],
        "opengl": lambda: egl_vendors.library_of(Path(origin)),
        "opencl": lambda: opencl_icds.library_named_by(Path(origin)),
        "nvrtc": lambda: origin,
        "hiprtc": lambda: origin,
    }
    return named[api]() if api in named else ""


def load_in_child(library: str, changes: dict[str, str | None]) -> tuple[str, str]:
    """The file behind a shared library that a child could load, or "" and the reason why not."""
    try:
        with Child(python("harness.probe", "--library", library), environment(changes)) as child:
            event = child.receive(LIBRARY_SECONDS)
    except (ChildFault, OSError) as error:
        return "", one_line(str(error))
    if event.get("event") == "library":
        return one_line(str(event.get("path"))), ""
    return "", one_line(str(event.get("detail")))


def _variables() -> list[Row]:
    names = [*DRIVER_VARIABLES, "CONDA_PREFIX", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"]
    return [Row(name, one_line(os.environ[name])) for name in names if name in os.environ]


def _compilers() -> list[Row]:
    return [Row(name, _version_of(path)) for name in COMPILERS if (path := shutil.which(name))]


def _version_of(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path}: {one_line(str(error))}"
    return f"{path}: {one_line((done.stdout + done.stderr).decode('utf-8', 'replace'))}"


def _package_files(package: str) -> Iterable[Path]:
    try:
        return [Path(str(file.locate())) for file in metadata.files(package) or ()]
    except metadata.PackageNotFoundError:
        return []


def _family() -> str:
    """The family of this Linux distribution, as its own file names it."""
    try:
        lines = OS_RELEASE.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    said = " ".join(line.partition("=")[2].strip('"').lower() for line in lines if line.startswith(("ID=", "ID_LIKE=")))
    words = said.replace("rhel", "fedora").replace("opensuse", "suse").split()
    return next((word for word in words if word in PACKAGES), "")
