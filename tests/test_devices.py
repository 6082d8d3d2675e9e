"""Discovery in children, identity, selectors, and what must show up."""

import grp
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import fake_backend
import msgspec
import pytest
from patience import MINUTES, patient, until

from harness import backends, devices, permissions, process
from harness.backends import Report
from harness.devices import Device, discover, expected, select, slug
from harness.errors import NoDevice, UsageError
from harness.groups import groups

FAKE_PROBE = (sys.executable, str(Path(__file__).with_name("fake_probe.py")))


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Discovers fake drivers, each of which does what its label says; returns rows by driver label."""
    monkeypatch.setattr(backends, "REGISTRY", {"fake": "fake_backend"})
    monkeypatch.setattr(devices, "PROBE", FAKE_PROBE)
    monkeypatch.setattr(permissions, "nodes", list)

    def run(*labels: str, budget: float = MINUTES) -> dict[str, Device]:
        monkeypatch.setattr(fake_backend, "drivers", lambda: [fake_backend.driver(label) for label in labels])
        return {row.label: row for row in discover(budget=budget)}

    return run


def device(id: str, **fields: Any) -> Device:
    api, label, *index = id.split(":")
    return Device(id, api, label, int(index[0]) if index else 0, **({"kind": "software", "name": label} | fields))


def test_every_broken_driver_is_a_row_with_its_phase_and_reason_and_the_good_one_is_found(find: Any) -> None:
    """Crash, hang, missing library, refusal, nonsense: none of them hides or delays the others."""
    rows = find(
        "segv", "good", "abort", "exit", "import", "library", "error", "compile", "fault", "empty", "nonsense", "many",
        "flood", "chatty",
    )  # fmt: skip
    told = {label: (row.status, row.phase) for label, row in rows.items()}
    assert told == {
        "segv": ("crash", "probe"),
        "good": ("ok", ""),
        "abort": ("crash", "probe"),
        "exit": ("crash", "probe"),
        "import": ("missing-library", "probe"),
        "library": ("missing-library", "probe"),
        "error": ("failed", "probe"),
        "compile": ("compile-error", "probe"),
        "fault": ("failed", "probe"),
        "empty": ("no-device", "probe"),
        "nonsense": ("failed", "probe"),
        "many": ("failed", "probe"),
        "flood": ("failed", "probe"),
        "chatty": ("ok", ""),
    }
    assert rows["segv"].reason == "killed by SIGSEGV; last words: the driver's last words"
    assert rows["exit"].reason.startswith("exit 0")
    assert rows["empty"].reason == "present, no device"
    assert rows["compile"].reason == "unknown target CPU 'generic'"
    assert "more than 1048576 bytes" in rows["flood"].reason
    assert rows["good"].id == "fake:good:0"
    assert rows["segv"].id == "fake:segv"
    assert all("\n" not in row.reason for row in rows.values())


def test_a_driver_that_hangs_or_ignores_term_costs_no_more_than_the_budget(
    find: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would for an hour. The good driver beside them gets all the time that it takes."""
    monkeypatch.setattr(devices, "Child", patient(lambda variables: variables["FAKE"] != "good"))
    rows = find("hang", "deaf", "good", budget=2.0)
    assert [rows[label].status for label in ("hang", "deaf", "good")] == ["timeout", "timeout", "ok"]
    assert rows["hang"].reason == "no answer within 2 s"


def test_two_identical_gpus_stay_two(find: Any) -> None:
    find("twins")
    twins = [row for row in discover(budget=MINUTES) if row.label == "twins"]
    assert [d.id for d in twins] == ["fake:twins:0", "fake:twins:1"]
    assert groups(twins) == [[twins[0]], [twins[1]]]


def test_a_child_sees_its_own_driver_and_a_private_cache_folder_that_is_gone_afterwards(
    find: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_OTHER", "1")
    monkeypatch.setattr(
        fake_backend,
        "driver",
        lambda label: backends.Driver("fake", label, "", {"FAKE": label, "FAKE_OTHER": None}),
    )
    assert find("only")["only"].name == "sees ['FAKE', 'FAKE_CACHE']"


def test_names_cannot_hold_terminal_escapes_or_more_than_a_line(find: Any) -> None:
    row = find("escape")["escape"]
    assert row.name == "evil[2J"
    assert len(row.vendor) <= 80


def test_a_driver_with_a_known_problem_is_not_started(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find()
    broken = fake_backend.driver("text", problem="/etc/fake/text.icd is not a shared library")
    monkeypatch.setattr(fake_backend, "drivers", lambda: [broken])
    monkeypatch.setattr(devices, "PROBE", ("/no/such/program",))
    [row] = discover(budget=MINUTES)
    assert (row.status, row.phase, row.reason) == ("unusable", "search", broken.problem)


def test_labels_become_printable_and_unique(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find()
    labels = ["a b", "a_b", "A_b", "é/../", "empty"]
    monkeypatch.setattr(fake_backend, "drivers", lambda: [fake_backend.driver(name, "empty") for name in labels])
    assert [row.id for row in discover(budget=MINUTES)] == [
        "fake:a_b",
        "fake:a_b-2",
        "fake:A_b-3",
        "fake:__.._",
        "fake:empty",
    ]


def test_a_search_that_fails_is_a_row_and_hides_no_other_api(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find("good")
    monkeypatch.setattr(backends, "REGISTRY", {"broken": "no_such_module", "fake": "fake_backend"})
    assert [(row.id, row.status) for row in discover(budget=MINUTES)] == [
        ("broken:drivers", "failed"),
        ("fake:good:0", "ok"),
    ]


def test_mock_devices_show_up_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "REGISTRY", {"mock": "fake_backend"})
    monkeypatch.setattr(permissions, "nodes", list)
    monkeypatch.setattr(fake_backend, "drivers", lambda: [backends.Driver("mock", "m", "", problem="just a row")])
    monkeypatch.delenv(devices.MOCK, raising=False)
    assert discover(budget=MINUTES) == []
    monkeypatch.setenv(devices.MOCK, "1")
    assert len(discover(budget=MINUTES)) == 1


def test_an_unknown_api_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no API 'glide'"):
        discover(apis=["glide"])


def test_discovery_leaves_no_process_when_it_is_interrupted(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Watched(process.Child):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            started.append(self.pid)

    def interrupt(*_: object) -> None:
        until(lambda: started, "a probe starts")
        raise KeyboardInterrupt

    monkeypatch.setattr(devices, "Child", Watched)
    monkeypatch.setattr("concurrent.futures._base.Future.result", interrupt)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        find("deaf", budget=3 * MINUTES)
    assert time.monotonic() - begun < MINUTES
    assert not os.path.exists(f"/proc/{started[0]}")


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"name": "NVIDIA H200", "kind": "hardware"}, "hardware"),
        (
            {"name": "AMD Radeon RX 7900 XTX (RADV NAVI31)", "driver": "Mesa 24 (LLVM 17)", "kind": "hardware"},
            "hardware",
        ),
        ({"name": "NVIDIA H200", "kind": "hardware", "raw": {"adapter_type": "CPU"}}, "software"),
        ({"name": "llvmpipe (LLVM 15.0.6, 256 bits)", "kind": "hardware"}, "software"),
        ({"name": "SwiftShader Device (Subzero)", "kind": "hardware"}, "software"),
        ({"name": "softpipe", "kind": "hardware"}, "software"),
        ({"name": "Fast GPU", "driver": "Mesa lavapipe", "kind": "hardware"}, "software"),
        ({"name": "pthread-haswell", "driver": "PoCL 3.1", "kind": "hardware"}, "software"),
        ({"name": "Intel(R) Xeon(R) CPU", "kind": "hardware"}, "software"),
        ({"name": "Oclgrind Simulator", "kind": "hardware"}, "software"),
        ({"name": "Radeon", "vendor": "swrast", "kind": "hardware"}, "software"),
        ({"name": "H200", "kind": "software"}, "software"),
        ({"name": "H200", "kind": "something new"}, "software"),
        ({"name": "sm_90", "kind": "compile-only"}, "compile-only"),
    ],
)
def test_a_software_renderer_is_never_taken_for_hardware(fields: dict[str, Any], kind: str) -> None:
    assert devices._kind(msgspec.convert(fake_backend.report(**fields), Report)) == kind


@pytest.mark.parametrize(
    ("api", "fields", "marked"),
    [
        ("vulkan", {"kind": "hardware"}, True),
        ("opencl", {"kind": "hardware"}, True),
        ("metal", {"kind": "hardware"}, True),
        ("d3d12", {"kind": "software", "name": "Microsoft Basic Render Driver"}, True),
        ("cuda", {"kind": "hardware"}, True),
        ("vulkan", {"kind": "software"}, False),
        ("mock", {"kind": "hardware"}, False),
    ],
)
def test_what_was_never_tried_says_so_in_its_row(api: str, fields: dict[str, Any], marked: bool) -> None:
    """Metal, D3D12, CUDA by CuPy (ROCm too), and any real GPU: in the table of `devices` and in its JSON."""
    report = msgspec.convert(fake_backend.report(**({"name": "Card"} | fields)), Report)
    row = devices._device(backends.Driver(api, "x", ""), 0, report)
    assert row.ok and row.summary()["reason"] == (devices.UNTRIED if marked else "")
    assert devices.UNTRIED.startswith("untested")


MACHINE = [
    device("vulkan:lvp:0", name="llvmpipe (LLVM 15.0.6)", vendor="Mesa"),
    device("vulkan:radeon", status="no-device", phase="probe", reason="present, no device", kind="unknown"),
    device("vulkan:nvidia:0", name="NVIDIA H200", vendor="NVIDIA", kind="hardware"),
    device("opencl:intel-cpu:0", name="Xeon", vendor="Intel"),
    device("opencl:nvidia:0", name="NVIDIA H200", vendor="NVIDIA", kind="hardware"),
    device("opencl:nvidia:1", name="NVIDIA H200", vendor="NVIDIA", kind="hardware"),
    device("cuda:nvidia:0", name="NVIDIA H200", vendor="NVIDIA", kind="hardware"),
    device("cuda_host:g++:0", name="g++ 12.2.0", vendor="GNU"),
    device("cuda_host:g++-asan:0", name="g++ 12.2.0 with ASan", vendor="GNU"),
]


@pytest.mark.parametrize(
    ("selectors", "ids"),
    [
        ([], [d.id for d in MACHINE if d.ok]),
        (["*"], [d.id for d in MACHINE if d.ok]),
        (["vulkan:lvp:0"], ["vulkan:lvp:0"]),
        (["VULKAN:LVP:0"], ["vulkan:lvp:0"]),
        (["opencl:nvidia*"], ["opencl:nvidia:0", "opencl:nvidia:1"]),
        (["vulkan"], ["vulkan:lvp:0", "vulkan:nvidia:0"]),
        (["cuda"], ["cuda:nvidia:0"]),
        (["cuda*"], ["cuda:nvidia:0", "cuda_host:g++:0", "cuda_host:g++-asan:0"]),
        (["opencl:nvidia"], ["opencl:nvidia:0", "opencl:nvidia:1"]),
        (["g++"], ["cuda_host:g++:0"]),
        (["NVidia"], ["vulkan:nvidia:0", "opencl:nvidia:0", "opencl:nvidia:1", "cuda:nvidia:0"]),
        (["gnu"], ["cuda_host:g++:0", "cuda_host:g++-asan:0"]),
        (["h200"], ["vulkan:nvidia:0", "opencl:nvidia:0", "opencl:nvidia:1", "cuda:nvidia:0"]),
        (["hardware"], ["vulkan:nvidia:0", "opencl:nvidia:0", "opencl:nvidia:1", "cuda:nvidia:0"]),
        (["software"], ["vulkan:lvp:0", "opencl:intel-cpu:0", "cuda_host:g++:0", "cuda_host:g++-asan:0"]),
        (["lavapipe"], ["vulkan:lvp:0"]),
        (["intel"], ["opencl:intel-cpu:0"]),
        (["cuda:nvidia:0", "vulkan:lvp:0", "cuda"], ["vulkan:lvp:0", "cuda:nvidia:0"]),
    ],
)
def test_a_selector_names_devices_in_the_first_sense_that_fits(selectors: list[str], ids: list[str]) -> None:
    assert [d.id for d in select(MACHINE, selectors)] == ids


@pytest.mark.parametrize("selector", ["metal", "", "  ", "opencl:nvidia:2", "vulkan:lvp:0:1", "x\x1b[2J", "none*"])
def test_a_selector_that_matches_nothing_lists_what_exists(selector: str) -> None:
    with pytest.raises(NoDevice, match="there are: vulkan:lvp:0, vulkan:nvidia:0, ") as caught:
        select(MACHINE, ["cuda", selector])
    assert "\x1b" not in str(caught.value)


def test_a_selector_that_matches_only_a_driver_without_device_says_why() -> None:
    with pytest.raises(NoDevice, match="vulkan:radeon cannot be used: no-device: present, no device"):
        select(MACHINE, ["vulkan:radeon"])


def test_expected_devices_that_are_missing_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expected(MACHINE, "lavapipe, intel,g++,vulkan:nvidia:0,opencl:nvidia,Nvidia,,") == []
    assert expected(MACHINE, "pocl,radeon,lavapipe") == [
        "expected device pocl is missing (no such driver was found)",
        "expected device radeon is missing (vulkan:radeon: no-device: present, no device)",
    ]
    monkeypatch.setenv(devices.EXPECT, "swiftshader")
    assert len(expected(MACHINE)) == 1
    monkeypatch.delenv(devices.EXPECT)
    assert expected(MACHINE) == []


@pytest.mark.parametrize(
    ("fields", "folder"),
    [
        ({"name": "llvmpipe (LLVM 15.0.6, 256 bits)"}, "vulkan-lvp-llvmpipe"),
        ({"name": "Intel(R) Xeon(R) Processor"}, "vulkan-lvp-intel-xeon-processor"),
        ({"name": "g++ 12.2.0"}, "vulkan-lvp-g++"),
        ({"name": "NVIDIA GeForce RTX 4090"}, "vulkan-lvp-nvidia-geforce-rtx-4090"),
        ({"name": "../../etc/passwd"}, "vulkan-lvp-etc-passwd"),
        ({"name": "グラフィックス"}, "vulkan-lvp"),
        ({"name": "x" * 500}, "vulkan-lvp-" + "x" * 69),
    ],
)
def test_the_folder_of_a_device_is_its_model_without_versions(fields: dict[str, Any], folder: str) -> None:
    assert slug(device("vulkan:lvp:3", **fields)) == folder


def test_a_device_node_without_access_is_a_row_with_the_mend(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = permissions.Node("/dev/dri/renderD128", "no access to /dev/dri/renderD128", "sudo usermod -aG render $USER")
    find("empty")
    monkeypatch.setattr(permissions, "nodes", lambda: [node, permissions.Node("/dev/kfd")])
    driver, system = discover(budget=MINUTES)
    assert driver.reason == f"present, no device; {node.problem}: {node.mend}"
    assert (system.id, system.status, system.reason) == (
        "system:renderD128", "no-permission", f"{node.problem}: {node.mend}",
    )  # fmt: skip


def test_nodes_tell_which_group_opens_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dri").mkdir()
    for name in ("dri/renderD128", "dxg", "nvidia0", "nvidia-modeset"):
        (tmp_path / name).touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path.name == "dxg")
    seen = {Path(node.path).name: bool(node.problem) for node in permissions.nodes(tmp_path)}
    assert seen == {"renderD128": True, "nvidia0": True, "dxg": False}


@pytest.mark.parametrize(
    ("mode", "gid", "mend"),
    [
        (0o660, grp.getgrnam("video").gr_gid, "sudo usermod -aG video $USER, then log in again"),
        (0o660, 54321, "start the container with --device /dev/kfd --group-add 54321"),
        (
            0o600,
            grp.getgrnam("video").gr_gid,
            "let your administrator open /dev/kfd; in a container, pass the device in",
        ),
        (0o660, 0, "let your administrator open /dev/kfd; in a container, pass the device in"),
    ],
)
def test_the_mend_of_a_node_depends_on_who_may_open_it(mode: int, gid: int, mend: str) -> None:
    node = permissions.refused("/dev/kfd", mode, gid)
    assert node.mend == mend
    assert node.problem.startswith(f"no access to /dev/kfd: mode 0{mode:03o}, group ")


def test_every_name_that_the_install_script_takes_can_be_expected() -> None:
    """CI installs by that name and expects by it."""
    script = (Path(__file__).parent.parent / "scripts/install-software-devices.sh").read_text()
    [names] = re.findall(r"^order=\((.*)\)$", script, re.M)
    ids = (
        "vulkan:lvp:0 opengl:llvmpipe:0 vulkan:vk_swiftshader:0 opencl:pocl:0 opencl:rusticl:0 opencl:oclgrind:0 "
        "hiprtc:rocm5:0 cuda_host:g++:0 cuda_host:clang++:0"
    )
    there = [device(id) for id in ids.split()]
    assert expected(there, ",".join(names.split())) == []
    assert len(names.split()) == len(there)


def test_a_mock_renderer_that_claims_to_be_a_graphics_card_is_software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.MOCK, "lying-name,no-device")
    liar, absent = discover(["mock"], MINUTES)
    assert (liar.vendor, liar.kind) == ("NVIDIA", "software")
    assert (absent.id, absent.status) == ("mock:no-device", "no-device")
    monkeypatch.setenv(devices.MOCK, "matsch")
    with pytest.raises(UsageError, match="'matsch' is no mock device"):
        discover(["mock"])
