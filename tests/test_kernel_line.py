"""One changed line in one device's kernel: a whole pass names where it first shows, and the command that repeats it."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models as tiny
from command import ROOT
from gguf_bytes import Q4_1

MAIN = """
import functools, sys
from contextlib import nullcontext
from harness import cli, device_session, devices
from harness.backends import cuda_host
devices.discover = functools.partial(devices.discover, ["cuda_host"], 600)
cuda_host.drivers = lambda found=cuda_host.drivers: [driver for driver in found() if driver.label == "g++"]
device_session.device_lock = lambda say: nullcontext()
cli.main()
"""
"""The command, on g++ alone, that waits for no other samebits."""

RIGHT, WRONG = "q = i64_add(q, i64_mul(b, cosine));", "q = i64_sub(q, i64_mul(b, cosine));"


@pytest.fixture
def changed(tmp_path):
    """A checkout whose CUDA source of rope has one changed line; all else is this one's."""
    copy = tmp_path / "checkout"
    for name in ("cuda", "harness"):  # workers take the sources that lie beside their own package
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("cpu_ref", "opencl", "shaders", "docs", "matrices", "tests"):
        (copy / name).symlink_to(ROOT / name)
    source = copy / "cuda" / "rope.cu"
    text = source.read_text()
    assert text.count(RIGHT) == 1
    source.write_text(text.replace(RIGHT, WRONG))
    return copy


def samebits(checkout: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(checkout),
        "SAMEBITS_STATE_DIR": str(folder / "state"),
        "SAMEBITS_CACHE_DIR": str(folder / "cache"),
    }
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)


def test_a_changed_line_of_a_kernel_is_named_and_its_command_repeats_it(changed, tmp_path):
    """Layer, operation, element, both values, exit 1; the command that is printed gives the same again."""
    model = tiny.write(tmp_path / "tiny.gguf", "qwen2", None, tiny.tensors(Q4_1, biases=True))
    devices = ["--device", "cuda_host:g++:0", "--device", "reference"]
    done = samebits(changed, tmp_path, "forward", model, "--profile", "dyadic-q16", "--tokens", "5,7", *devices)
    assert done.returncode == 1, done.stderr
    line, repeat = done.stderr.splitlines()[-2:]
    place = r"l0\.q_rope\[0, 0, 8\]"  # the second half of the first head: pairs lie half a head apart
    found = re.fullmatch(
        rf"samebits: mismatch: cuda_host:g\+\+:0: {place} = (-?\d+), expected (-?\d+) \(op rope\)", line
    )
    assert found and found[1] != found[2], line
    words = shlex.split(repeat.removeprefix("repeat it: samebits "))
    again = samebits(changed, tmp_path, *words)
    assert (again.returncode, again.stderr.splitlines()[-2:]) == (1, [line, repeat])
