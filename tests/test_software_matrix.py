"""The script of CI's rows: which gates it runs, and what it exits with."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import ROOT

from harness import kernels, presets

SCRIPT = ROOT / "scripts" / "software-matrix.sh"


def run(folder: Path, *arguments: str, codes: str = "") -> tuple[int, list[str]]:
    """Exit code and gates of the script, on a command that only notes what it was asked. `codes`: `PRESET=CODE ...`."""
    command = folder / "samebits"
    listed = [
        {"id": case.id, "kernel": case.kernel, "schedules": kernels.base(case.kernel).schedules}
        for case in presets.cases("tiny")
    ]
    (folder / "cases.json").write_text(json.dumps(listed))
    faults = "\n".join(
        f'case " $* " in *" --preset {c.partition("=")[0]} "*) exit {c.partition("=")[2]};; esac' for c in codes.split()
    )
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = cases ]; then\ncat {folder}/cases.json\nexit 0\nfi\necho "$*" >>{folder}/asked\n{faults}\n'
    )
    command.chmod(0o755)
    done = subprocess.run(
        [SCRIPT, "records", *arguments], env={**os.environ, "SAMEBITS": str(command)}, cwd=folder, timeout=60
    )
    asked = folder / "asked"
    return done.returncode, asked.read_text().splitlines() if asked.exists() else []


def test_every_row_of_ci_is_asked_for_under_its_preset(tmp_path: Path) -> None:
    """Oclgrind and PoCL's methods get the first case of each kernel, the rest whole presets."""
    code, asked = run(tmp_path)
    assert code == 0 and len(asked) == 6
    assert asked[0] == "gate --out records --preset quick"
    named = "--device opencl:intel-cpu --device opencl:pocl --device cuda_host:g++"
    assert asked[1] == f"gate --out records --preset full {named}"
    slower = "--device lavapipe --device opengl:llvmpipe --device swiftshader --device opencl:rusticl"
    four = next(c.id for c in presets.cases("full") if c.kernel in kernels.WHOLE and c.dims["t"] == 4)
    passes = f"--case {four};schedule=forward"
    assert asked[2] == f"gate --out records --preset full {slower} {passes}"
    assert asked[3].startswith(
        "gate --out records --preset tiny --device nvrtc --device hiprtc --device cuda_host:g++-asan "
    )
    linear = [k for k in dict.fromkeys(c.kernel for c in presets.cases("tiny")) if k.startswith("linear_")]
    assert (
        asked[5].count(" --case linear_")
        == asked[5].count(";variant=int64")
        == asked[5].count(" --case ")
        == len(linear)
    )
    first = {case.kernel: case.id for case in reversed(presets.cases("tiny"))}
    assert asked[4].startswith("gate --out records --preset tiny --device opencl:oclgrind --device opencl:pocl-loops ")
    chosen = [word for word in asked[4].split() if ";schedule=" in word]
    assert sorted(word.partition(";schedule=")[0] for word in chosen) == sorted(first.values())
    for kernel in kernels.KERNELS:
        smallest = f"{first[kernel.name]};schedule={'tree' if 'tree' in kernel.schedules else kernel.schedules[0]}"
        assert kernel.variant != "base" or smallest in chosen


@pytest.mark.parametrize(
    ("codes", "worst"), [("quick=4 full=1", 1), ("tiny=3", 3), ("quick=3 tiny=5", 5), ("full=2", 2)]
)
def test_all_is_run_and_the_worst_code_counts(tmp_path: Path, codes: str, worst: int) -> None:
    code, asked = run(tmp_path, codes=codes)
    assert (code, len(asked)) == (worst, 6)


def test_a_preset_without_rows_is_a_usage_error(tmp_path: Path) -> None:
    assert run(tmp_path, "huge") == (2, [])
    assert run(tmp_path, "full")[1][0].startswith("gate --out records --preset full")
