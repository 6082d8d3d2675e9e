"""Real drivers through the verbs of a backend, each in a process that sees only it.

Intel's runtime belongs to the package's extra `cpu`, which the README's test command installs: without it the tests
fail. Others are tried where SAMEBITS_EXPECT names them, and then must be there.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import backends, units
from harness.process import environment

TRIAL = Path(__file__).with_name("backend_trial.py")
DRIVERS = {
    "intel": ("opencl", "intel-cpu"),
    **{name: ("opencl", name) for name in ("pocl", "pocl-loops", "pocl-loopvec", "pocl-repl")},
    "rusticl": ("opencl", "rusticl"),
    "oclgrind": ("opencl", "oclgrind"),
    "lavapipe": ("vulkan", "lvp"),
    "swiftshader": ("vulkan", "vk_swiftshader"),
    "llvmpipe": ("opengl", "llvmpipe"),
}
"""Name in SAMEBITS_EXPECT -> API and label."""

ALIKE = ("pocl-loops", "pocl-loopvec")
"""They have the forms of gemm_i8 that `pocl` has, and the gate's rows run them."""

NAMED = os.environ.get("SAMEBITS_EXPECT", "").split(",")


@pytest.fixture(scope="module", params=[name for name in DRIVERS if name == "intel" or name in NAMED])
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of one driver's trial."""
    if request.param == "intel" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("Intel's runtime is for x86-64 alone")
    api, label = DRIVERS[request.param]
    module = backends.load(api)
    found = [d for d in module.drivers() if d.label == label]
    assert found, f"{request.param} is not installed; drivers found: {[d.label for d in module.drivers()]}"
    assert found[0].problem is None, found[0].problem
    variables = {**found[0].environment, **module.cache_environment(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, str(TRIAL), api, *(["products"] if request.param not in ALIKE else [])]
    done = subprocess.run(command, env=environment(variables), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"name": request.param, "api": api}


def test_the_driver_has_one_device_and_says_what_it_is(trial: dict[str, Any]) -> None:
    """All of these are software, whatever device type they claim."""
    (report,) = trial["reports"]
    assert report["kind"] == "software"
    assert report["name"] and report["vendor"] and report["driver"] and report["compiler"]
    if trial["api"] == "vulkan":  # by the native query, beside what wgpu tells
        assert report["raw"]["device_type"] == report["raw"]["adapter_type"] == "CPU"
        assert report["uuid"] and report["raw"]["driver_version"] > 0 and report["raw"]["vulkan"].startswith("1.")


def test_a_program_computes_the_right_words_twice_with_the_same_handles(trial: dict[str, Any]) -> None:
    """Passes run in order, each with its own arguments; fills reach the device; nothing else is touched."""
    for run in trial["runs"]:
        assert run["right"] and run["last_untouched"] and run["guard_kept"]


def test_the_nonce_comes_back_as_it_was_compiled_in(trial: dict[str, Any]) -> None:
    """All 32 bits of it, and only into its word of the receipt."""
    assert [run["receipt"] for run in trial["runs"]] == ["efbeadde" + "a5" * 4, "efbeadde" + "5a" * 4]


def test_every_form_of_gemm_i8_that_the_device_has_multiplies_packed_words_alike(trial: dict[str, Any]) -> None:
    """The packed dot products of WGSL are everywhere, those of OpenCL where the extension is; a unit comes with them."""
    features = trial["reports"][0]["features"]
    packed = trial["api"] != "opencl" or "cl_khr_integer_dot_product" in features
    forms = {"base", *(["dot4", "dot4u"] if packed else [])}
    assert set(trial["products"]) == (forms if trial["name"] not in ALIKE else set())
    right: Any = [65536, -65024, 0, -512, 256, 128, 128, 512]
    if trial["name"] == "pocl-repl":  # that method unrolls work-groups, and takes small ones only
        right = "max-work-group-size: needs 256, device has 64"
    assert all(p == right for p in trial["products"].values())
    advertised = {units.DOT_SIGNED, units.DOT_UNSIGNED} & set(features)
    assert packed or not advertised
    if trial["name"] == "intel":  # the one of these that advertises them
        assert packed and len(advertised) == 2


@pytest.mark.parametrize("fault", ["syntax", "name", "entry"])
def test_a_program_that_cannot_be_built_is_a_compile_error(trial: dict[str, Any], fault: str) -> None:
    """One line, also where the driver says that the build went well and the entry point is missing."""
    kind, message = trial["refused"][fault]
    assert kind == "CompileError"
    assert message and "\n" not in message


def test_a_buffer_over_the_limit_is_unsupported_and_names_it(trial: dict[str, Any]) -> None:
    """With what is needed and what is there."""
    kind, message = trial["refused"]["size"]
    assert kind == "Unsupported"
    assert message.startswith("max-") and "needs 4398046511104, device has" in message


@pytest.mark.skipif("pocl" not in NAMED, reason="SAMEBITS_EXPECT does not name pocl")
@pytest.mark.parametrize(("method", "last"), [("loops", "done"), ("nonsense", "fault")])
def test_a_work_group_method_that_pocl_has_not_is_not_claimed(method: str, last: str, tmp_path: Path) -> None:
    """PoCL prints a line, takes another method and gets right results: only the line gives it away."""
    module = backends.load("opencl")
    (driver,) = (d for d in module.drivers() if d.label == "pocl")
    variables = {**driver.environment, **module.cache_environment(tmp_path), "POCL_WORK_GROUP_METHOD": method}
    command = [sys.executable, "-m", "harness.probe", "opencl"]
    done = subprocess.run(command, env=environment(variables), capture_output=True, text=True, timeout=600)
    event = json.loads(done.stdout.splitlines()[-1])
    assert event["event"] == last
    if last == "fault":
        assert event["status"] == "unsupported" and "needs nonsense" in event["detail"]
