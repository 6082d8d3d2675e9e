"""The CUDA sources through NVRTC, and through hipRTC where it is installed: compiled for each architecture, never run.

The package's extra `dev` brings NVRTC: on Linux it must be there.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness import kernels
from harness.backends import common, hiprtc, load, nvrtc, rtc
from harness.errors import UsageError
from harness.process import environment

TRIAL = """
import json, sys
from harness import backends, kernels, schedules
from harness.errors import CompileError
from harness.worker import constants_of
module = backends.load(sys.argv[1])
device = module.open_device(0)
found = {"report": module.probe()[0], "files": {}, "refused": {}}
oldest, *others = device._architectures
for number, kernel in enumerate(kernels.KERNELS):
    if module.LANGUAGE in kernel.languages and set(kernel.needs.get("cuda", ())) <= set(device.report.features):
        device._architectures = [oldest, *(others if kernel.needs else others[number % len(others)::len(others)])]
        schedule = kernel.schedules[-1]  # the others are the gate's: all take minutes
        text = kernels.source(kernel, module.LANGUAGE)
        files = device.artefacts(device.compile(kernel, text, constants_of(schedule, 12345678, False)))
        found["files"][f"{kernel.name} {kernel.variant} {schedule}"] = {name: data[:4].hex() for name, data in files.items()}
        texts = [data for name, data in files.items() if name.endswith(".ptx")]
        found["nonce"] = found.get("nonce", True) and all(b"12345678" in text for text in texts)
for fault, text in {"syntax": "broken !!", "entry": 'extern "C" __global__ void other() {}'}.items():
    try:
        device.compile(kernel, text, {})
    except CompileError as e:
        found["refused"][fault] = str(e)
device.close()
print(json.dumps(found))
"""
NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")
ELF = b"\x7fELF".hex()


@pytest.fixture(scope="module", params=["nvrtc", *(["hiprtc"] if "hiprtc" in NAMED else [])])
def trial(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of one compiler's trial, and its name."""
    if sys.platform != "linux":
        pytest.skip("NVRTC's wheel is a dependency on Linux alone")
    drivers = load(request.param).drivers()
    assert drivers, f"{request.param} is not installed"
    command = [sys.executable, "-c", TRIAL, request.param]
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


def test_every_kernel_becomes_machine_code_for_the_oldest_architecture_and_another_in_turn(
    trial: dict[str, Any],
) -> None:
    """Those that need an instruction for every architecture that has it. The gate's row compiles all for all, in minutes.

    The wide shape of the matrix unit came with sm_80. HIP has none of CUDA's names.
    """
    cuda = [k for k in kernels.KERNELS if "cuda" in k.languages and (trial["api"] == "nvrtc" or "cuda" not in k.needs)]
    assert len(trial["files"]) == len(cuda)
    oldest, *others = trial["report"]["raw"]["architectures"]
    suffixes = {"nvrtc": ("ptx", "cubin"), "hiprtc": ("hsaco",)}[trial["api"]]
    seen = Counter[str]()
    for kernel, (name, files) in zip(cuda, trial["files"].items(), strict=True):
        assert name.startswith(f"{kernel.name} {kernel.variant} ")
        built = {file.rpartition(".")[0] for file in files}
        if kernel.needs:
            assert built == {*others, *([] if kernel.variant == "mma_m16n8k32" else [oldest])}
        else:
            assert oldest in built and len(built) == 2
        assert sorted(files) == sorted(f"{a}.{s}" for a in built for s in suffixes)
        assert all(start == ELF for file, start in files.items() if not file.endswith(".ptx"))
        seen.update(built)
    assert all(seen[architecture] > len(cuda) // (len(others) + 1) for architecture in others)
    assert trial["nonce"]


@pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheel is a dependency on Linux alone")
def test_the_fast_forms_become_the_instructions_that_they_are_named_for() -> None:
    """In the PTX of every architecture: packed dot products, and the shape of the matrix unit."""
    code = (
        "import json; from harness import kernels; from harness.backends import nvrtc; device = nvrtc.open_device(0); "
        "print(json.dumps({k.variant: [d.decode() for n, d in device.compile(k, kernels.source(k, 'cuda'), {}).items() "
        "if n.endswith('.ptx')] for k in kernels.KERNELS if k.name == 'gemm_i8'}))"
    )
    variables = environment(nvrtc.drivers()[0].environment)
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    instructions = {
        "dot4": r"dp4a\.s32\.s32",
        "dot4u": r"dp4a\.u32\.u32",
        "mma_m8n8k16": r"mma\.sync\.aligned\.m8n8k16\.row\.col\.s32\.s8\.s8\.s32",
        "mma_m16n8k32": r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.s8\.s8\.s32",
    }
    for variant, texts in json.loads(done.stdout).items():
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
