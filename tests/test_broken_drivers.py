"""Broken drivers beside good ones: each is a row with its reason, and no other device's row or result changes.

All real drivers of this machine take part. The broken ones are made here: libraries that abort, hang or end the process when
a loader calls them, a text file, and a file that points nowhere.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from patience import MINUTES, patient

from harness import backends, devices, doctor, gate
from harness.backends.common import find_library
from harness.devices import Device, discover
from harness.process import Child, environment, python

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to build broken drivers")

APIS = ("opencl", "vulkan", "opengl")
ENTRIES = (
    "clGetExtensionFunctionAddress",
    "vk_icdGetInstanceProcAddr",
    "vk_icdNegotiateLoaderICDInterfaceVersion",
    "__egl_Main",
)
FAULTS = {
    "aborts": "abort();",
    "hangs": "for (;;) sleep(1);",
    "exits": "exit(0);",
}
CASE = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0;schedule=forward;variant=base"
BUDGET = 10.0


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with broken drivers for every API."""
    folder = tmp_path_factory.mktemp("broken")
    for name, body in FAULTS.items():
        functions = "\n".join(f"void *{entry}(void) {{ {body} return 0; }}" for entry in ENTRIES)
        source = f"#include <stdlib.h>\n#include <unistd.h>\n{functions}\n"
        file = folder / f"lib{name}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", file], input=source, text=True, check=True)
        (folder / f"{name}.icd").write_text(f"{file}\n")
        icd = {"library_path": str(file), "api_version": "1.1.0"}
        (folder / f"{name}.json").write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    (folder / "nowhere.icd").write_text("/no/such/library.so\n")
    (folder / "nowhere.json").write_text('{"ICD": {"library_path": "/no/such/library.so"}}')
    (folder / "prose.icd").write_text("This is a text file.\nIt has two lines.\n")
    (folder / "prose.json").write_text("This is a text file.\n")
    return folder


@pytest.fixture(scope="module")
def both(broken: Path) -> Iterator[tuple[list[Device], list[Device]]]:
    """All rows without the broken drivers, and with them. Only those that hang have the budget, the others minutes."""
    hang = {str(broken / name) for name in ("hangs.icd", "hangs.json")}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_DIRS"):
            patch.delenv(name, raising=False)
        patch.setattr(devices, "Child", patient(lambda variables: bool(hang & set(variables.values()))))
        before = discover(APIS)
        for name in ("OCL_ICD_VENDORS", "VK_ADD_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_DIRS"):
            patch.setenv(name, str(broken))
        yield before, discover(APIS, budget=BUDGET)


def others(rows: list[Device], folder: Path) -> list[Device]:
    """Rows of drivers that do not lie in `folder`. Limits are left out: PoCL's follow the memory that happens to be free."""
    return [msgspec.structs.replace(row, limits={}) for row in rows if not row.origin.startswith(str(folder))]


@pytest.mark.parametrize(("api", "loader"), [("opencl", None), ("vulkan", "libvulkan.so.1"), ("opengl", "libEGL.so.1")])
def test_each_broken_driver_is_a_row_that_says_how(
    both: tuple[list[Device], list[Device]], broken: Path, api: str, loader: str | None
) -> None:
    """How it ended, by signal or budget; what is no driver at all is not even started."""
    if loader and find_library(loader) is None:
        pytest.skip(f"{loader} is not installed")
    rows = {row.label: row for row in both[1] if row.api == api and row.origin.startswith(str(broken))}
    told = {label: row.status for label, row in rows.items()}
    assert told == {"aborts": "crash", "exits": "crash", "hangs": "timeout", "nowhere": "unusable", "prose": "unusable"}
    assert rows["aborts"].reason.startswith("killed by SIGABRT")
    assert rows["exits"].reason.startswith("exit 0")
    assert rows["hangs"].reason == f"no answer within {BUDGET:g} s"
    assert "does not exist" in rows["nowhere"].reason
    assert "file" in rows["prose"].reason


def test_every_other_row_is_the_same_as_without_them(both: tuple[list[Device], list[Device]], broken: Path) -> None:
    assert others(both[1], broken) == others(both[0], broken)


def test_every_other_devices_results_are_right_beside_them(
    both: tuple[list[Device], list[Device]], broken: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers run while the variables of the loaders still name the broken drivers.

    Right is the one digest of the reference, and of the known-bad twin: what every device has without them. PoCL's single
    methods and the simulator, slow and loaded as the others of their loader, are left out.
    """
    monkeypatch.setenv("SAMEBITS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SAMEBITS_EXPECT", "")
    monkeypatch.setattr(devices.permissions, "nodes", list)
    for name in ("OCL_ICD_VENDORS", "VK_ADD_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_DIRS"):
        monkeypatch.setenv(name, str(broken))
    slow = {row.id for row in both[0] if row.label.startswith("pocl-") or "oclgrind" in row.label}
    monkeypatch.setattr(devices, "discover", lambda **_: [row for row in both[1] if row.id not in slow])
    outcome = gate.execute(gate.Options("tiny", tmp_path / "out", cases=(CASE,)), lambda _: None)
    runs = outcome.runs()
    assert {d.id for d in both[0] if d.ok} - slow == {run.header.device.id for run in runs}
    found = [{(r.role, r.run): (r.verdict, r.digest) for r in run.results} for run in runs]
    assert found and all(results == found[0] for results in found)
    assert {verdict for (role, _), (verdict, _) in found[0].items() if role != "known-bad"} == {"match"}
    assert all(run.complete for run in runs)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mapped files")
def test_each_worker_loads_its_own_driver_and_no_other(
    both: tuple[list[Device], list[Device]], broken: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the system has mapped into an open worker, among the libraries of all drivers of all APIs.

    Every row that SAMEBITS_EXPECT names takes part. A host compiler is no library: its worker maps nobody's.
    """
    for name in ("OCL_ICD_VENDORS", "VK_ADD_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_DIRS"):
        monkeypatch.setenv(name, str(broken))
    rows = [*both[1], *discover(["nvrtc", "hiprtc", "cuda", "cuda_host"])]
    assert devices.expected(rows) == []
    libraries = {row.id: find_library(doctor.library_of(row.api, row.origin) or "none") for row in rows}
    known = {os.path.realpath(path) for path in libraries.values() if path}
    seen = {}
    for row in (row for row in rows if row.ok):
        changes = {**row.environment, **backends.load(row.api).cache_environment(tmp_path)}
        with Child(python("harness.worker", row.api, str(row.index)), environment(changes)) as child:
            while child.receive(MINUTES).get("event") != "opened":
                pass
            maps = Path(f"/proc/{child.pid}/maps").read_text()
            seen[row.id] = known & {os.path.realpath(line.split(maxsplit=5)[-1]) for line in maps.splitlines()}
    own = {row.id: {os.path.realpath(path)} if (path := libraries[row.id]) else set() for row in rows if row.ok}
    assert seen == own
    assert [id for id, paths in own.items() if not paths] == [
        row.id for row in rows if row.ok and row.api == "cuda_host"
    ]
