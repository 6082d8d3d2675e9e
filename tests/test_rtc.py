"""The CUDA sources through NVRTC, and through hipRTC where it is installed: compiled for each architecture, never run.

The package's extra `dev` brings NVRTC: on Linux it must be there.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import kernels
from harness.backends import common, hiprtc, load, nvrtc, rtc
from harness.errors import UsageError
from harness.process import environment

TRIAL = """
import json, sys
from harness import backends, kernels
from harness.errors import CompileError
from harness.worker import constants_of
module = backends.load(sys.argv[1])
device = module.open_device(0)
found = {"report": module.probe()[0], "files": {}, "ptx": {}, "refused": {}, "nonce": True}
every = device._architectures
for kernel in kernels.KERNELS:
    needed = set(kernel.needs.get("cuda", ()))
    if kernel.name in (sys.argv[2:] or [kernel.name]) and "cuda" in kernel.languages and needed <= set(device.report.features):
        device._architectures = every if kernel.name == "gemm_i8" else every[:1]
        text, name = kernels.source(kernel, "cuda"), f"{kernel.name} {kernel.variant}"
        files = device.artefacts(device.compile(kernel, text, constants_of(kernel.schedules[0], 12345678, False)))
        found["files"][name] = {file: data[:4].hex() for file, data in files.items()}
        found["ptx"][name] = texts = [data.decode() for file, data in files.items() if file.endswith(".ptx")]
        found["nonce"] &= all("12345678" in text for text in texts)
for fault, text in {"syntax": "broken !!", "entry": 'extern "C" __global__ void other() {}'}.items():
    try:
        device.compile(kernel, text, {})
    except CompileError as e:
        found["refused"][fault] = str(e)
device.close()
print(json.dumps(found))
"""
COMPILED: dict[str, tuple[str, ...]] = {"nvrtc": (), "hiprtc": ("gemm_i8", "gemm_i32", "rmsnorm")}
"""The kernels that each compiles here: all where none is named. CI's rows of both compile all for all architectures."""
NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")
ELF = b"\x7fELF".hex()


@pytest.fixture(scope="module", params=["nvrtc", *(["hiprtc"] if "hiprtc" in NAMED else [])])
def trial(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of one compiler's trial, and its name."""
    if sys.platform != "linux":
        pytest.skip("NVRTC's wheel is a dependency on Linux alone")
    drivers = load(request.param).drivers()
    assert drivers, f"{request.param} is not installed"
    command = [sys.executable, "-c", TRIAL, request.param, *COMPILED[request.param]]
    variables = environment(drivers[0].environment)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result | {"api": request.param}


def test_the_compiler_is_a_compile_only_device_that_names_its_architectures(trial: dict[str, Any]) -> None:
    report = trial["report"]
    assert report["kind"] == "compile-only"
    wanted = {"nvrtc": nvrtc.NVRTC, "hiprtc": hiprtc.HIPRTC}[trial["api"]].architectures
    assert report["raw"] == {"architectures": list(wanted), "refused": {}}
    assert all(architecture in report["name"] for architecture in wanted)


def test_kernels_become_machine_code_for_the_oldest_architecture_and_one_for_every_that_can_have_it(
    trial: dict[str, Any],
) -> None:
    """gemm_i8 for every: the wide shape of the matrix unit came with sm_80. HIP has none of CUDA's names."""
    names = COMPILED[trial["api"]] or {k.name for k in kernels.KERNELS}
    cuda = [k for k in kernels.KERNELS if "cuda" in k.languages and k.name in names]
    cuda = [k for k in cuda if trial["api"] == "nvrtc" or "cuda" not in k.needs]
    assert list(trial["files"]) == [f"{k.name} {k.variant}" for k in cuda]
    oldest, *others = trial["report"]["raw"]["architectures"]
    suffixes = {"nvrtc": ("ptx", "cubin"), "hiprtc": ("hsaco",)}[trial["api"]]
    for kernel, files in zip(cuda, trial["files"].values(), strict=True):
        built = {*others, oldest} if kernel.name == "gemm_i8" else {oldest}
        built -= {oldest} if kernel.variant == "mma_m16n8k32" else set()
        assert sorted(files) == sorted(f"{a}.{s}" for a in built for s in suffixes)
        assert all(start == ELF for file, start in files.items() if not file.endswith(".ptx"))
    assert trial["nonce"]


def test_the_fast_forms_become_the_instructions_that_they_are_named_for(trial: dict[str, Any]) -> None:
    """In the PTX of every architecture: packed dot products, and the shape of the matrix unit. hipRTC makes no PTX."""
    instructions = {
        "dot4": r"dp4a\.s32\.s32",
        "dot4u": r"dp4a\.u32\.u32",
        "mma_m8n8k16": r"mma\.sync\.aligned\.m8n8k16\.row\.col\.s32\.s8\.s8\.s32",
        "mma_m16n8k32": r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.s8\.s8\.s32",
    }
    forms = {
        name.removeprefix("gemm_i8 "): texts for name, texts in trial["ptx"].items() if name.startswith("gemm_i8 ")
    }
    assert forms.keys() == {"base", *(instructions if trial["api"] == "nvrtc" else [])}
    for variant, texts in forms.items():
        assert bool(texts) == (trial["api"] == "nvrtc")
        for text in texts:
            assert {v for v, pattern in instructions.items() if re.search(pattern, text)} == {variant} - {"base"}


def test_what_it_refuses_is_a_compile_error_in_one_line(trial: dict[str, Any]) -> None:
    """With the first error of the log; a program without its entry point too."""
    first = trial["report"]["raw"]["architectures"][0]
    assert trial["refused"]["syntax"].startswith(f"{first}: ") and "error: " in trial["refused"]["syntax"]
    assert "has no 'multiply'" in trial["refused"]["entry"]
    assert not any("\n" in text for text in trial["refused"].values())


def test_libraries_of_wheels_and_of_the_system_are_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each library once, under the number in its name; of the system's only the first."""
    for folder, name in (("wheel", "libnvrtc.so.12"), ("lib", "libnvrtc.so.13"), ("lib", "libnvrtc.so.12")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(b"text")
    monkeypatch.setattr(common, "LOADER_CACHE", tmp_path / "none")
    monkeypatch.setattr(common, "LIBRARY_FOLDERS", (str(tmp_path / "lib"),))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(rtc, "_in_wheels", lambda compiler: [tmp_path / "wheel/libnvrtc.so.12"])
    found = nvrtc.drivers()
    assert [d.label for d in found] == ["cuda12", "cuda13"]
    assert [d.origin for d in found] == [str(tmp_path / "wheel/libnvrtc.so.12"), str(tmp_path / "lib/libnvrtc.so.13")]
    assert all("is not a shared library" in str(d.problem) for d in found)
    monkeypatch.setattr(rtc, "_in_wheels", lambda compiler: [tmp_path / "lib/libnvrtc.so.13"])
    assert len(nvrtc.drivers()) == 1


def test_a_compiler_runs_nothing() -> None:
    """The verbs that need memory say so."""
    device = object.__new__(rtc.CompileOnly)
    device._compiler = nvrtc.NVRTC
    with pytest.raises(UsageError, match="NVRTC only compiles"):
        device.bind([], {})
    with pytest.raises(UsageError, match="NVRTC only compiles"):
        device.run(None, None, [], {})
