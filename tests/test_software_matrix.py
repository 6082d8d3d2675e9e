"""The script of CI's rows: which gates it runs, and what it exits with."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import ROOT

from harness import kernels, presets
from harness.selections import of_selectors

SCRIPT = ROOT / "scripts" / "software-matrix.sh"


def run(folder: Path, *arguments: str, codes: str = "") -> tuple[int, list[str]]:
    """Exit code and gates of the script, on a command that only notes what it was asked. `codes`: `PRESET=CODE ...`."""
    command = folder / "samebits"
    listed = [
        {"id": case.id, "kernel": case.kernel, "schedules": kernels.base(case.kernel).schedules}
        for case in presets.cases("tiny")
    ]
    (folder / "tiny.json").write_text(json.dumps(listed))
    faults = "\n".join(
        f'case " $* " in *" --preset {c.partition("=")[0]} "*) exit {c.partition("=")[2]};; esac' for c in codes.split()
    )
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = cases ]; then\ncat {folder}/$3.json\nexit 0\nfi\necho "$*" >>{folder}/asked\n{faults}\n'
    )
    command.chmod(0o755)
    done = subprocess.run(
        [SCRIPT, "records", *arguments], env={**os.environ, "SAMEBITS": str(command)}, cwd=folder, timeout=600
    )
    asked = folder / "asked"
    return done.returncode, asked.read_text().splitlines() if asked.exists() else []


FAST = "--device opencl:intel-cpu --device opencl:pocl --device cuda_host:g++"


def test_rows_of_whole_presets(tmp_path: Path) -> None:
    """What is published, but for the rows of the slowest."""
    code, asked = run(tmp_path, "quick", "full", "pass", "tiny", "compile")
    slower = "--device lavapipe --device opengl:llvmpipe --device swiftshader --device opencl:rusticl"
    four = next(c.id for c in presets.cases("full") if c.kernel in kernels.WHOLE and c.dims["t"] == 4)
    assert code == 0 and asked == [
        "gate --out records --preset quick",
        f"gate --out records --preset full {FAST}",
        f"gate --out records --preset full {slower} --case {four};schedule=forward",
        "gate --out records --preset tiny --device cuda_host:g++-asan --device cuda_host:clang++-asan",
        "gate --out records --preset tiny --device nvrtc --device hiprtc",
    ]


def test_the_slowest_get_the_first_case_of_each_kernel(tmp_path: Path) -> None:
    """PoCL's methods, Oclgrind, and in CI what only compiles; under the schedule with the most barriers."""
    _, asked = run(tmp_path, "first", "compile-once")
    devices = [[word for word in line.split() if ":" in word or "rtc" in word] for line in asked]
    assert devices == [
        ["opencl:pocl-loops", "opencl:pocl-loopvec"],
        ["opencl:oclgrind"],
        ["opencl:pocl-repl"],
        ["nvrtc", "hiprtc"],
    ]
    methods, oclgrind, repl, compiled = ([word for word in line.split() if ";" in word] for line in asked)
    first = {case.kernel: case.id for case in reversed(presets.cases("tiny"))}
    smallest = {
        k: f"{i};schedule={'tree' if 'tree' in kernels.base(k).schedules else 'forward'}" for k, i in first.items()
    }
    assert sorted(methods) == sorted(smallest.values())
    chosen = [run for selection in of_selectors(compiled, presets.cases("tiny")) for run in selection.runs("cuda")]
    built = {(run.case.partition(";")[0], run.variant) for run in chosen}
    assert built == {(k.name, k.variant) for k in kernels.KERNELS if "cuda" in k.languages}
    assert {run.schedule for run in chosen} == {"forward", "split_k"}
    assert {word.partition(";schedule=")[0] for word in oclgrind} == set(first.values())
    slow = [w for w in oclgrind if w not in methods]
    assert {w.partition(";")[0] for w in slow} == {k for k in first if k.startswith(("gemm_", "linear_"))} | {"limbs"}
    assert all(";schedule=forward" in w for w in slow)
    single = [w.partition(";")[0] for w in oclgrind if w.endswith(";variant=base")]
    assert sorted(single) == ["gemm_i32_i64", "limbs"]
    assert len(repl) == 8 and set(repl) < set(methods)


@pytest.mark.parametrize(
    ("codes", "worst"), [("quick=4 full=1", 1), ("tiny=3", 3), ("quick=3 tiny=5", 5), ("full=2", 2)]
)
def test_all_is_run_and_the_worst_code_counts(tmp_path: Path, codes: str, worst: int) -> None:
    code, asked = run(tmp_path, codes=codes)
    assert (code, len(asked)) == (worst, 8)


def test_rows_that_are_none_are_a_usage_error(tmp_path: Path) -> None:
    assert run(tmp_path, "huge") == (2, [])
