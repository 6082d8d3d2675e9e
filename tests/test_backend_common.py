"""What backends share: vendors and software renderers by name, identities matched, logs cut, a child that sees too much."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from harness.backends import common, opengl, vulkan_identity
from harness.backends.vulkan_identity import Identity
from harness.errors import DeviceFault


def test_vendors_have_one_spelling_through_every_api() -> None:
    """Two spellings would count as two vendors."""
    assert common.vendor_name(0x10DE, "") == common.vendor_name(0, "NVIDIA Corporation") == "NVIDIA"
    assert common.vendor_name(0x1002, "x") == common.vendor_name(0, "Advanced Micro Devices, Inc.") == "AMD"
    assert common.vendor_name(0, "Intel(R) Corporation") == common.vendor_name(0x8086, "") == "Intel"
    assert common.vendor_name(0, "The pocl  project") == "The pocl project"


@pytest.mark.parametrize(
    ("name", "software"),
    [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", True),
        ("SwiftShader Device (Subzero)", True),
        ("Microsoft Basic Render Driver", True),
        ("Oclgrind Simulator", True),
        ("Intel(R) FPGA Emulation Platform for OpenCL(TM) Intel(R) FPGA Emulation Device", True),
        ("NVIDIA GeForce RTX 4090", False),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", False),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", False),
    ],
)
def test_software_renderers_are_known_by_name(name: str, software: bool) -> None:
    """Whatever type they claim to be."""
    assert common.is_software(name) is software


def test_identical_devices_match_by_order_or_not_at_all() -> None:
    """wgpu hides some devices, and then the order among equals says nothing."""
    twins = [Identity("GPU", 1, 2, "d", "1.3.0", uuid, None) for uuid in ("aa", "bb")]
    other = Identity("Other", 1, 3, "d", "1.3.0", "cc", None)
    twin, single = ("GPU", 1, 2), ("Other", 1, 3)
    assert vulkan_identity.match([twin, single, twin], [other, *twins]) == [twins[0], other, twins[1]]
    assert vulkan_identity.match([twin, single], [*twins, other]) == [None, other]
    assert vulkan_identity.match([twin], []) == [None]


def test_a_compilers_log_becomes_its_first_error_without_paths() -> None:
    """Private folders have no place in a record."""
    log = "In file /tmp/x/a.cl:\n/tmp/x/a.cl:1: warning: w\n/tmp/x/a.cl:2: error: e\n"
    assert common.first_line(log) == "a.cl:2: error: e"
    assert common.first_line("\nnote\n") == "note"
    assert common.first_line("") == "refused, without a log"


@pytest.mark.parametrize(
    ("mapped", "name", "alone"),
    [
        ("libEGL.so.1 libEGL_mesa.so.0", "llvmpipe", True),
        ("libEGL_mesa.so.0 libEGL_nvidia.so.0", "llvmpipe", False),
        ("libEGL_mesa.so.0 libvulkan.so.1", "llvmpipe", False),
        ("libEGL_mesa.so.0 libvulkan.so.1 libvulkan_radeon.so", "zink Vulkan 1.3(AMD Radeon)", True),
    ],
)
def test_an_opengl_child_that_has_loaded_more_than_its_driver_says_so(
    mapped: str, name: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mesa's OpenGL on Vulkan loads both, and is one driver."""
    monkeypatch.setattr(common, "MAPS", tmp_path / "maps")
    common.MAPS.write_text("".join(f"7f00-7f01 r-xp 0 00:00 1 /usr/lib/{library}\n" for library in mapped.split()))
    with nullcontext() if alone else pytest.raises(DeviceFault, match="expected one OpenGL driver"):
        opengl._check_alone([name])
