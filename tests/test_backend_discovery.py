"""Which drivers a machine has, found by looking at files and variables only."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import backends
from harness.backends import Driver, common, cuda_drivers, egl_vendors, oclgrind, opencl_icds, opengl, vulkan_icds
from harness.errors import DeviceFault
from harness.process import environment

SHARED_LIBRARY = b"\x7fELF" + bytes([struct.calcsize("P") // 4, 1, 1]) + bytes(64)
OTHER_SIZE = b"\x7fELF" + bytes([3 - struct.calcsize("P") // 4, 1, 1]) + bytes(64)


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any driver: no folder, variable, package or device node of the real one is seen."""
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "RUSTICL_ENABLE", "LD_LIBRARY_PATH", *vulkan_icds.CLEARED):
        monkeypatch.delenv(name, raising=False)
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("__EGL_VENDOR_LIBRARY_FILENAMES", *egl_vendors.CLEARED):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(opencl_icds, "VENDOR_FOLDERS", (str(tmp_path / "vendors"),))
    monkeypatch.setattr(opencl_icds, "_intel_files", list)
    monkeypatch.setattr(opencl_icds, "_loader_folder", list)
    monkeypatch.setattr(vulkan_icds, "FOLDERS", (str(tmp_path / "share"),))
    monkeypatch.setattr(vulkan_icds, "BROWSER_FOLDERS", (str(tmp_path / "browser"),))
    monkeypatch.setattr(vulkan_icds, "LOADER", str(library(tmp_path / "loader/libvulkan.so.1")))
    monkeypatch.setattr(oclgrind, "FOLDERS", (str(tmp_path / "lib"), str(tmp_path / "*-linux-gnu")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(egl_vendors, "FOLDERS", (str(tmp_path / "glvnd"),))
    monkeypatch.setattr(egl_vendors, "NODES", tmp_path / "dri")
    monkeypatch.setattr(egl_vendors, "CARDS", tmp_path / "drm")
    monkeypatch.setattr(common, "LOADER_CACHE", tmp_path / "ld.so.cache")
    monkeypatch.setattr(common, "LIBRARY_FOLDERS", (str(tmp_path / "lib"),))
    monkeypatch.setattr(cuda_drivers, "NVIDIA_NODE", tmp_path / "nvidiactl")
    monkeypatch.setattr(cuda_drivers, "AMD_NODE", tmp_path / "kfd")
    monkeypatch.setattr(cuda_drivers, "_cupy_builds", list)


def library(path: Path, content: bytes = SHARED_LIBRARY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def icd(path: Path, content: str | bytes | Path) -> Path:
    """An OpenCL ICD file."""
    return library(path, content if isinstance(content, bytes) else f"{content}\n".encode())


def vulkan_icd(path: Path, library_path: Any) -> Path:
    """A Vulkan driver file."""
    return library(path, json.dumps({"ICD": {"library_path": library_path, "api_version": "1.1.0"}}).encode())


def opencl() -> dict[str, Driver]:
    return {d.label: d for d in opencl_icds.drivers()}


def vulkan() -> dict[str, Driver]:
    return {d.label: d for d in vulkan_icds.drivers()}


def test_a_machine_without_drivers_has_no_rows() -> None:
    """Nothing found is nothing, not a problem."""
    assert opencl_icds.drivers() == vulkan_icds.drivers() == egl_vendors.drivers() == cuda_drivers.drivers() == []


def test_searching_loads_no_gpu_library_and_a_worker_starts_without_what_the_reference_needs() -> None:
    """The supervisor searches, and must not be hurt by a driver; workers start often."""
    code = (
        "import sys, harness.worker; from harness.backends import cuda, opencl, opengl, wgpu; "
        "[m.drivers() for m in (cuda, opencl, opengl, wgpu)]; "
        "sys.exit(' '.join({'cupy', 'pyopencl', 'wgpu', 'flint', 'mpmath'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment({}), capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_an_icd_file_is_a_driver_whose_variable_names_the_file_itself(tmp_path: Path) -> None:
    """A folder in OCL_ICD_VENDORS would not isolate."""
    file = icd(tmp_path / "vendors/some.icd", library(tmp_path / "libsome.so"))
    driver = opencl()["some"]
    assert driver.problem is None
    assert driver.environment["OCL_ICD_VENDORS"] == driver.origin == str(file)
    assert driver.environment["OCL_ICD_FILENAMES"] is driver.environment["OPENCL_LAYERS"] is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("/nowhere/libx.so", "'/nowhere/libx.so' does not exist"),
        ("libx.so.1", "'libx.so.1' is in no library folder"),
        ("not a driver at all", "is in no library folder"),
        ("one.so\ntwo.so", "not an ICD file"),
        (b"\x00\xff\xfe", "not an ICD file"),
        (b"", "not an ICD file"),
        (b"x" * 100_000, "is in no library folder"),
    ],
)
def test_a_broken_icd_file_is_a_row_with_a_reason(tmp_path: Path, content: str | bytes, problem: str) -> None:
    """A leftover of an old driver is shown, and named by its file."""
    file = icd(tmp_path / "vendors/old.icd", content)
    found = opencl()["old"].problem
    assert found and found.startswith(f"{file}: ") and problem in found


@pytest.mark.skipif(sys.platform != "linux", reason="only ELF files are looked into")
@pytest.mark.parametrize(
    ("content", "problem"), [(b"#!/bin/sh\n", "not a shared library"), (OTHER_SIZE, "-bit library")]
)
def test_a_file_that_cannot_be_loaded_is_told_from_a_library(tmp_path: Path, content: bytes, problem: str) -> None:
    """A text file, or a library of the other word size, never gets as far as a child."""
    icd(tmp_path / "vendors/x.icd", library(tmp_path / "libx.so", content))
    assert problem in str(opencl()["x"].problem)


def test_bare_library_names_are_found_where_the_loader_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_LIBRARY_PATH, the folders of the loader's cache under any name of a library, and the usual folders."""
    names = ("libvariable.so", "libcached.so.2.10.0", "libusual.so")
    for name, folder in zip(names, ("variable", "cached", "lib"), strict=True):
        library(tmp_path / folder / name)
        icd(tmp_path / f"vendors/{folder}.icd", name)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "variable"))
    library(common.LOADER_CACHE, b"\0libcached.so.2\0" + str(tmp_path / "cached/libcached.so.2").encode() + b"\0")
    assert [d.problem for d in opencl_icds.drivers()] == [None] * 3


def test_a_pip_installed_runtime_is_found_beside_pyopencls_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file names a library that is in no folder of the system, and that loader takes it from its own."""
    monkeypatch.setattr(opencl_icds, "_loader_folder", lambda: [tmp_path / ".libs"])
    runtime = library(tmp_path / ".libs/libpocl-21062cec.so")
    icd(tmp_path / ".libs/pocl.icd", runtime.name)
    assert opencl_icds.library_named_by(tmp_path / ".libs/pocl.icd") == str(runtime)
    assert opencl()["pocl"].problem is None
    runtime.unlink()
    assert "is in no library folder" in str(opencl()["pocl"].problem)


def test_two_icd_files_of_one_library_are_one_driver(tmp_path: Path) -> None:
    """A link or a second file adds no device; another file with the same content is another driver."""
    first = library(tmp_path / "a/libcl.so")
    (tmp_path / "libcl.so").symlink_to(first)
    icd(tmp_path / "vendors/1.icd", first)
    icd(tmp_path / "vendors/2.icd", tmp_path / "libcl.so")
    icd(tmp_path / "vendors/3.icd", library(tmp_path / "b/libcl.so"))
    assert list(opencl()) == ["1", "3"]


def test_labels_follow_the_library_and_stay_unique(tmp_path: Path) -> None:
    """A distribution may call its file what it likes; two PoCLs are two."""
    icd(tmp_path / "vendors/a.icd", library(tmp_path / "a/libpocl.so.2"))
    icd(tmp_path / "vendors/b.icd", library(tmp_path / "b/libpocl.so.3"))
    icd(tmp_path / "vendors/grind.icd", library(tmp_path / "liboclgrind-rt-icd.so"))
    methods = ["loops", "loopvec", "repl", "cbs"]
    names = ["pocl", *(f"pocl-{m}" for m in methods), "b", *(f"b-{m}" for m in methods), "oclgrind"]
    assert list(opencl()) == names


def test_each_work_group_method_of_pocl_is_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row without a method takes none from the environment either; a broken PoCL is one row."""
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "repl")
    pocl = library(tmp_path / "libpocl.so.2")
    icd(tmp_path / "vendors/pocl.icd", pocl)
    found = opencl()
    assert found["pocl"].environment["POCL_WORK_GROUP_METHOD"] is None
    assert found["pocl-loopvec"].environment["POCL_WORK_GROUP_METHOD"] == "loopvec"
    assert found["pocl-loopvec"].environment["OCL_ICD_VENDORS"] == found["pocl"].environment["OCL_ICD_VENDORS"]
    assert found["pocl-repl"].environment["POCL_MAX_WORK_GROUP_SIZE"] == "64"
    pocl.unlink()
    assert list(opencl()) == ["pocl"]


@pytest.mark.parametrize("place", ["lib", "lib/oclgrind", "x86_64-linux-gnu/oclgrind", "opt/lib/oclgrind"])
def test_oclgrind_is_found_by_its_library_and_checks_all_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """No package installs an `.icd` for it; a user's variable must not make it look at less."""
    program = library(tmp_path / "opt/bin/oclgrind", b"#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("OCLGRIND_QUICK", "1")
    simulator = library(tmp_path / place / "liboclgrind-rt-icd.so")
    (driver,) = opencl_icds.drivers()
    assert (driver.label, driver.problem) == ("oclgrind", None)
    assert driver.environment["OCL_ICD_VENDORS"] == str(simulator)
    assert driver.environment["OCLGRIND_DATA_RACES"] == driver.environment["OCLGRIND_UNINITIALIZED"] == "1"
    assert driver.environment["OCLGRIND_QUICK"] is None
    icd(tmp_path / "vendors/grind.icd", simulator)
    assert len(opencl_icds.drivers()) == 1


@pytest.mark.parametrize("chosen", [None, "radeonsi"])
def test_rusticl_is_enabled_on_the_software_renderer_unless_the_user_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    """Mesa keeps Rusticl without a device until it is told which."""
    if chosen:
        monkeypatch.setenv("RUSTICL_ENABLE", chosen)
    icd(tmp_path / "vendors/rusticl.icd", library(tmp_path / "libRusticlOpenCL.so.1"))
    assert opencl()["rusticl"].environment.get("RUSTICL_ENABLE") == (None if chosen else "llvmpipe")


def test_intels_wheel_is_a_driver_by_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own .icd names a folder of the machine that built it, and is left out; its library needs its folder."""
    runtime = library(tmp_path / "prefix/lib/libintelocl.so")
    own = icd(tmp_path / "prefix/etc/OpenCL/vendors/intel-cpu.icd", "/opt/build/lib/libintelocl.so")
    monkeypatch.setattr(opencl_icds, "_intel_files", lambda: [runtime, own])
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other")
    (driver,) = opencl_icds.drivers()
    assert driver.label == "intel-cpu" and driver.problem is None
    assert driver.environment["OCL_ICD_VENDORS"] == str(runtime)
    assert driver.environment["LD_LIBRARY_PATH"] == f"{runtime.parent}:/opt/other"


def test_the_loaders_variable_adds_files_folders_and_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user points to is shown beside the system's, a name that leads nowhere too."""
    icd(tmp_path / "vendors/system.icd", library(tmp_path / "libsystem.so"))
    plain = library(tmp_path / "libplain.so")
    icd(tmp_path / "mine/own.icd", library(tmp_path / "libown.so"))
    monkeypatch.setenv("OCL_ICD_FILENAMES", f"{plain}:/nowhere/libgone.so")
    for value in (tmp_path / "mine", tmp_path / "mine/own.icd"):
        monkeypatch.setenv("OCL_ICD_VENDORS", str(value))
        found = opencl()
        assert list(found) == ["system", "own", "libplain", "libgone"]
        assert found["libplain"].environment["OCL_ICD_VENDORS"] == str(plain)
        assert "does not exist" in str(found["libgone"].problem)


def test_vulkan_files_of_system_browser_and_variables_are_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both names of the loader's variable are set to the one file; a relative library lies beside it."""
    system = vulkan_icd(tmp_path / "share/vulkan/icd.d/lvp_icd.x86_64.json", str(library(tmp_path / "liblvp.so")))
    library(tmp_path / "browser/libvk_swiftshader.so")
    vulkan_icd(tmp_path / "browser/vk_swiftshader_icd.json", "./libvk_swiftshader.so")
    vulkan_icd(tmp_path / "home/.local/share/vulkan/icd.d/mine.json", str(library(tmp_path / "libmine.so")))
    added = vulkan_icd(tmp_path / "added/nvidia_icd.json", str(library(tmp_path / "libnv.so")))
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", str(added.parent))
    found = vulkan()
    assert list(found) == ["mine", "lvp", "vk_swiftshader", "nvidia"]
    assert [d.problem for d in found.values()] == [None] * 4
    assert found["lvp"].environment["VK_DRIVER_FILES"] == found["lvp"].environment["VK_ICD_FILENAMES"] == str(system)
    assert found["lvp"].environment["VK_ADD_DRIVER_FILES"] is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"garbage", "not a driver file"),
        (b"\xff\xfe", "not a driver file"),
        (b"[1]", "not a driver file"),
        (b"[" * 60_000, "not a driver file"),
        (b'{"ICD": {}}', "not a driver file"),
        (b'{"ICD": {"library_path": 7}}', "not the name of a library"),
        (b'{"ICD": {"library_path": ""}}', "not the name of a library"),
        (b'{"ICD": {"library_path": "./gone.so"}}', "does not exist"),
        (b'{"ICD": {"library_path": "libgone.so"}}', "is in no library folder"),
    ],
)
def test_a_broken_vulkan_file_is_a_row_with_a_reason(tmp_path: Path, content: bytes, problem: str) -> None:
    """The reason names the file."""
    file = library(tmp_path / "share/vulkan/icd.d/old_icd.json", content)
    found = vulkan()["old"].problem
    assert found and found.startswith(f"{file}: ") and problem in found


def test_vulkan_files_of_one_library_are_one_driver_and_of_one_stem_two_labels(tmp_path: Path) -> None:
    """Mesa ships one file a word size; each may be there."""
    folder = tmp_path / "share/vulkan/icd.d"
    vulkan_icd(folder / "radeon_icd.i686.json", str(library(tmp_path / "32/libradeon.so", OTHER_SIZE)))
    vulkan_icd(folder / "radeon_icd.x86_64.json", str(library(tmp_path / "64/libradeon.so")))
    vulkan_icd(tmp_path / "home/.config/vulkan/icd.d/again.json", str(tmp_path / "64/libradeon.so"))
    assert [(d.label, d.problem is None) for d in vulkan_icds.drivers()] == [("again", True), ("radeon", False)]


def test_a_missing_vulkan_loader_is_the_reason_of_every_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mend."""
    monkeypatch.setattr(vulkan_icds, "LOADER", "libvulkan.so.1")
    vulkan_icd(tmp_path / "share/vulkan/icd.d/lvp_icd.json", str(library(tmp_path / "liblvp.so")))
    assert "libvulkan.so.1 is not installed" in str(vulkan()["lvp"].problem)


def test_mesas_opengl_is_llvmpipe_and_a_card_where_there_is_a_render_node(tmp_path: Path) -> None:
    """One library, two rows: a card must not be what draws where the row says llvmpipe."""
    library(tmp_path / "lib/libEGL.so.1")
    file = vulkan_icd(tmp_path / "glvnd/50_mesa.json", str(library(tmp_path / "libEGL_mesa.so.0")))
    (driver,) = egl_vendors.drivers()
    assert (driver.label, driver.problem) == ("llvmpipe", None)
    assert driver.environment["__EGL_VENDOR_LIBRARY_FILENAMES"] == str(file)
    assert driver.environment["LIBGL_ALWAYS_SOFTWARE"] == "true"
    assert driver.environment["DISPLAY"] is None
    library(tmp_path / "dri/renderD128")
    card, software = egl_vendors.drivers()
    assert (card.label, software.label) == ("mesa", "llvmpipe")
    assert card.environment["LIBGL_ALWAYS_SOFTWARE"] is card.environment["GALLIUM_DRIVER"] is None


def card(tmp_path: Path, node: str, address: str, driver: str) -> None:
    """A render node, and what the kernel says of it."""
    library(tmp_path / "dri" / node)
    device = tmp_path / "devices" / address
    (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    device.mkdir(parents=True)
    (device / "driver").symlink_to(tmp_path / "drivers" / driver)
    (tmp_path / "drm" / node).mkdir(parents=True)
    (tmp_path / "drm" / node / "device").symlink_to(device)


def test_each_of_several_mesa_cards_is_a_row_whose_child_must_hold_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mesa is told which by address, and the node that it holds open says what it did. NVIDIA's own driver is not Mesa's."""
    library(tmp_path / "lib/libEGL.so.1")
    vulkan_icd(tmp_path / "glvnd/50_mesa.json", str(library(tmp_path / "libEGL_mesa.so.0")))
    card(tmp_path, "renderD128", "0000:01:00.0", "amdgpu")
    card(tmp_path, "renderD129", "0000:02:00.0", "nvidia")
    assert [d.label for d in egl_vendors.drivers()] == ["mesa", "llvmpipe"]
    card(tmp_path, "renderD130", "0000:03:00.0", "i915")
    first, second, _ = egl_vendors.drivers()
    assert (first.label, second.label) == ("mesa-renderD128", "mesa-renderD130")
    assert second.environment["DRI_PRIME"] == "pci-0000_03_00_0"
    assert second.environment["SAMEBITS_RENDER_NODE"] == "renderD130"

    monkeypatch.setattr(opengl, "DESCRIPTORS", tmp_path / "fd")
    (tmp_path / "fd").mkdir()
    assert opengl._address() is None
    (tmp_path / "fd/7").symlink_to(tmp_path / "dri/renderD128")
    (tmp_path / "fd/8").symlink_to("socket:[12]")
    assert opengl._address() == "0000:01:00.0"
    monkeypatch.setenv("SAMEBITS_RENDER_NODE", "renderD130")
    with pytest.raises(DeviceFault, match="told to draw with renderD130 and holds renderD128"):
        opengl._address()
    monkeypatch.setenv("SAMEBITS_RENDER_NODE", "renderD128")
    assert opengl._address() == "0000:01:00.0"
    (tmp_path / "fd/9").symlink_to(tmp_path / "dri/renderD130")
    with pytest.raises(DeviceFault, match="holds renderD128, renderD130"):
        opengl._address()


def test_other_opengl_vendors_and_a_library_without_vendor_files_are_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row a vendor's file, found by the variable too; an old libEGL is a driver itself."""
    old = library(tmp_path / "lib/libEGL.so.1")
    assert [(d.label, d.origin, d.problem) for d in egl_vendors.drivers()] == [("egl", str(old), None)]
    vulkan_icd(tmp_path / "glvnd/10_nvidia.json", str(library(tmp_path / "libEGL_nvidia.so.0")))
    mine = library(tmp_path / "mine.json", b"garbage")
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", str(mine))
    broken, nvidia = egl_vendors.drivers()
    assert (nvidia.label, nvidia.problem) == ("nvidia", None)
    assert broken.label == "mine" and str(broken.problem).startswith(f"{mine}: not a")
    old.unlink()
    assert "libEGL.so.1 is not installed" in str(egl_vendors.drivers()[1].problem)


@pytest.mark.parametrize(("api", "platform"), [("metal", "darwin"), ("d3d12", "win32")])
def test_metal_and_d3d12_are_looked_for_where_they_can_be(
    monkeypatch: pytest.MonkeyPatch, api: str, platform: str
) -> None:
    """Elsewhere they are no row at all."""
    module = backends.load(api)
    for here, count in ((platform, 1), ("linux", 0)):
        monkeypatch.setattr(sys, "platform", here)
        assert len(module.drivers()) == count


def test_cuda_is_a_driver_where_library_or_node_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing of library and CuPy is the reason."""
    cuda_drivers.NVIDIA_NODE.touch()
    assert "libcuda.so.1 is not" in str(cuda_drivers.drivers()[0].problem)
    library(tmp_path / "lib/libcuda.so.1")
    assert "samebits[cuda13]" in str(cuda_drivers.drivers()[0].problem)
    monkeypatch.setattr(cuda_drivers, "_cupy_builds", lambda: ["cupy-rocm-7-0"])
    assert "samebits[cuda13]" in str(cuda_drivers.drivers()[0].problem)
    cuda_drivers.AMD_NODE.touch()
    assert [d.label for d in cuda_drivers.drivers()] == ["nvidia", "rocm"]
    monkeypatch.setattr(cuda_drivers, "_cupy_builds", lambda: ["cupy-cuda13x"])
    assert [(d.label, d.problem) for d in cuda_drivers.drivers()] == [("nvidia", None)]
