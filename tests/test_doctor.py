"""The doctor: what it finds by files and in children, and what it tells a user to install."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import backends, doctor, permissions
from harness.backends import Driver
from harness.doctor import Gpu, Row, install_advice, load_in_child, pci_gpus
from harness.report import print_sections


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts devices on a PCI bus of our own: (class, vendor, device, kernel driver)."""
    monkeypatch.setattr(doctor, "PCI", tmp_path / "pci")
    monkeypatch.setattr(permissions, "nodes", list)
    (tmp_path / "pci").mkdir()

    def plug(*cards: tuple[str, str, str, str]) -> None:
        for n, (kind, vendor, device, driver) in enumerate(cards):
            folder = tmp_path / "pci" / f"0000:0{n}:00.0"
            folder.mkdir()
            for name, text in (("class", kind), ("vendor", vendor), ("device", device)):
                (folder / name).write_text(text + "\n")
            if driver:
                (tmp_path / driver).mkdir(exist_ok=True)
                (folder / "driver").symlink_to(tmp_path / driver)

    return plug


def rows(sections: list[doctor.Section], title: str) -> dict[str, Row]:
    return {row.what: row for section in sections if section.title == title for row in section.rows}


def test_the_report_is_plain_data_in_the_order_in_which_a_device_comes_to_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", "/no/such/file.json")
    monkeypatch.setenv("NVIDIA_API_KEY", "secret")
    report = doctor.report()
    assert [section.title for section in report] == [
        "versions", "hardware", "loaders", "search paths", "drivers, by their files", "driver variables",
        "host compilers", "samebits' own files",
    ]  # fmt: skip
    assert "secret" not in msgspec.json.encode(report).decode()
    assert rows(report, "driver variables")["VK_DRIVER_FILES"].found == "/no/such/file.json"
    assert "cannot be read" in rows(report, "drivers, by their files")["vulkan:file"].mend
    assert rows(report, "versions")["Python"].found.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert "libOpenCL of the pyopencl wheel" in rows(report, "loaders")
    assert "libcuda.so.1" in rows(report, "loaders")


def test_a_library_is_loaded_in_a_child_and_its_file_is_told(tmp_path: Path) -> None:
    path, problem = load_in_child("libc.so.6", {})
    assert Path(path).is_file() and not problem
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    path, problem = load_in_child(str(text), {})
    assert not path
    assert problem.endswith(("file too short", "invalid ELF header"))
    assert "cannot open shared object" in load_in_child("libno-such.so.1", {})[1]


def test_a_library_that_crashes_or_hangs_when_loaded_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, signal; from harness.channel import Channel; Channel(); os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(doctor, "python", lambda *_: [sys.executable, "-c", script])
    assert load_in_child("x", {}) == ("", "killed by SIGSEGV")
    monkeypatch.setattr(doctor, "python", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(doctor, "LIBRARY_SECONDS", 0.2)
    assert load_in_child("x", {}) == ("", "no answer for 0.2 s")


def test_a_driver_whose_library_misses_another_says_so(tmp_path: Path) -> None:
    icd = tmp_path / "broken.icd"
    icd.write_text("libno-such.so.1\n")
    row = doctor._driver(Driver("opencl", "broken", str(icd)))
    assert row.what == "opencl:broken"
    assert row.mend.startswith("the library does not load: libno-such.so.1: cannot open shared object")
    assert doctor._driver(Driver("cuda", "nvidia", "/dev/nvidiactl")) == Row("cuda:nvidia", "/dev/nvidiactl")


def test_a_search_that_fails_hides_no_other_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "REGISTRY", {"broken": "no_such_module", "cuda_host": "harness.backends.cuda_host"})
    first, *others = doctor._drivers()
    assert first.mend == "ModuleNotFoundError: No module named 'no_such_module'"
    assert all(row.what.startswith("cuda_host:") for row in others)


def test_gpus_are_found_on_the_bus_with_their_kernel_driver(bus: Any) -> None:
    bus(
        ("0x030000", "0x10de", "0x2684", ""),
        ("0x030200", "0x10de", "0x2335", "nvidia"),
        ("0x020000", "0x8086", "0x1533", "igb"),
        ("0x120000", "0x1002", "0x74a1", "amdgpu"),
        ("0x030000", "0x1234", "0x1111", ""),
    )
    assert pci_gpus() == [
        Gpu("0000:00:00.0", "NVIDIA", "10de:2684", ""),
        Gpu("0000:01:00.0", "NVIDIA", "10de:2335", "nvidia"),
        Gpu("0000:03:00.0", "AMD", "1002:74a1", "amdgpu"),
        Gpu("0000:04:00.0", "0x1234", "1234:1111", ""),
    ]
    mends = [bool(row.mend) for row in doctor._hardware() if row.what.startswith("0000")]
    assert mends == [True, False, False, False]


@pytest.mark.parametrize(
    ("release", "machine", "advice"),
    [
        ('ID=debian\nVERSION="12"\n', "x86_64", ["intel-opencl-rt", "sudo apt install pocl-opencl-icd"]),
        ("ID=ubuntu\nID_LIKE=debian\n", "x86_64", ["sudo apt install"]),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "x86_64", ["sudo dnf install pocl"]),
        ("ID=arch\n", "x86_64", ["sudo pacman -S pocl"]),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "x86_64", ["sudo zypper install pocl"]),
        ("ID=debian\n", "aarch64", ["for a software device: sudo apt install pocl-opencl-icd"]),
        ("ID=plan9\n", "riscv64", ["for a software device: PoCL or a C++ compiler"]),
    ],
)
def test_what_to_install_depends_on_the_machine(
    release: str, machine: str, advice: list[str], bus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "os-release"
    file.write_text(release)
    monkeypatch.setattr(doctor, "OS_RELEASE", file)
    monkeypatch.setattr("platform.machine", lambda: machine)
    text = install_advice()
    assert "\n" not in text
    assert all(part in text for part in advice)


def test_a_gpu_without_driver_and_a_closed_node_come_first_in_the_advice(
    bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus(("0x030000", "0x10de", "0x2684", ""), ("0x030000", "0x1002", "0x74a1", "amdgpu"))
    node = permissions.Node("/dev/kfd", "no access to /dev/kfd", "sudo usermod -aG render $USER, then log in again")
    monkeypatch.setattr(permissions, "nodes", lambda: [node])
    kfd, nvidia, amd, *_ = install_advice().split("; ")
    assert kfd == f"{node.problem}: {node.mend}"
    assert nvidia.startswith("for the NVIDIA GPU: ")
    assert amd.startswith("for the AMD GPU: ")


def test_a_conda_loader_that_hides_the_system_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libvulkan.so.1").touch()
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    monkeypatch.setattr(doctor, "LOADERS", {})
    row = next(row for row in doctor._loaders() if row.what == "conda environment")
    assert "libvulkan.so.1" in row.found
    assert row.mend


def test_the_doctor_prints_its_sections_and_mends(capsys: pytest.CaptureFixture[str]) -> None:
    print_sections([doctor.Section("loaders", [Row("libEGL.so.1", "does not load", "apt install libegl1")])])
    assert capsys.readouterr().out.split("\n")[:3] == [
        "loaders", "  libEGL.so.1: does not load", "      -> apt install libegl1",
    ]  # fmt: skip


def test_folders_that_take_nothing_and_a_wrong_file_of_groups_are_told_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would stop on the first and on the last, and compute all anew without a cache."""
    (tmp_path / "file").write_text("[[joy]]")
    monkeypatch.setenv("SAMEBITS_STATE_DIR", str(tmp_path / "new" / "state"))
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("SAMEBITS_GROUPS", str(tmp_path / "file"))
    found = {row.what: row.mend for row in doctor._own_files()}
    assert found["records and journals"] == ""
    assert found["cache"] == "cannot be written; name another folder in SAMEBITS_CACHE_DIR"
    assert "unknown key 'joy'" in found["groups"]
    monkeypatch.setenv("SAMEBITS_GROUPS", "")
    assert doctor._own_files()[-1] == Row("groups", "none")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert doctor._own_files()[0].mend == "cannot be written; name another folder in SAMEBITS_STATE_DIR"
