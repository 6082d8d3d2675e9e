"""The GPU workflow: what its files promise, and each of its steps run here on mocks."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import FEW, MAIN, ROOT
from junitparser import JUnitXml

from harness import presets
from harness.errors import UsageError

SCRIPT = ROOT / "scripts" / "ci-gate.sh"


def read(path: str) -> dict[Any, Any]:
    """A YAML file of `.github`; `on` is a boolean to YAML."""
    found: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / path).read_text())
    return found


WORKFLOW = read("workflows/gpu-conformance.yml")
ACTION = read("actions/samebits/action.yml")
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


def step(folder: Path, name: str, mock: str = "card=match", **variables: str) -> subprocess.CompletedProcess[str]:
    """One step of the script, on a mock device."""
    command = folder / "samebits"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(FEW + MAIN)} "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "SAMEBITS": str(command),
        "SAMEBITS_MOCK": mock,
        "SAMEBITS_EXPECT": "",
        "SAMEBITS_STATE_DIR": str(folder / "state"),
        "SAMEBITS_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "OUT": str(folder / "out"),
        "PRESET": f"tiny@{presets.VERSION['tiny']}",
        "DEVICES": "mock",
        **variables,
    }
    return subprocess.run([SCRIPT, name], env=environment, cwd=folder, capture_output=True, text=True, timeout=600)


def test_no_pull_request_and_no_fork_reaches_a_machine() -> None:
    """Strangers' code never runs there, and the token can write nothing."""
    assert set(WORKFLOW[True]) == {"push", "schedule", "workflow_dispatch"}
    assert "!github.event.repository.fork" in WORKFLOW["jobs"]["gate"]["if"]
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_one_job_a_machine_at_a_time_with_a_time_limit_and_labels() -> None:
    """A job under way is not cut off by the next."""
    job = WORKFLOW["jobs"]["gate"]
    assert job["concurrency"] == {"group": "samebits-${{ matrix.machine.label }}", "cancel-in-progress": False}
    assert job["runs-on"][:2] == ["self-hosted", "samebits"]
    assert all(job["timeout-minutes"] <= 90 for job in WORKFLOW["jobs"].values())


def test_what_comes_after_the_gate_runs_whatever_it_said_and_records_and_junit_are_kept() -> None:
    """The more so when it failed."""
    names = [s["name"] for s in STEPS]
    after = STEPS[names.index("Gate") + 1 :]
    assert all(s["if"] == "always()" for s in after)
    kept = after[-1]["with"]["path"]
    assert all(name in kept for name in ("/records", "/junit.xml", "/summary.md", "/journals"))


def test_every_step_is_one_of_the_script_and_no_input_is_pasted_into_a_shell() -> None:
    """Inputs go by variables; only a step's own outputs and files may stand in a line."""
    runs = [s["run"] for s in [*STEPS, *WORKFLOW["jobs"]["matrix"]["steps"]] if "run" in s]
    assert not [run for run in runs if "${{" in run]
    called = re.findall(r"scripts/ci-gate\.sh (\w+)", "\n".join(runs))
    assert called == ["install", "gate", "summary", "diff", "install", "summary"]


def test_the_pinned_preset_is_one_that_there_is() -> None:
    """A raised version has to be raised there too."""
    for text in (
        ACTION["inputs"]["preset"]["default"],
        WORKFLOW[True]["workflow_dispatch"]["inputs"]["preset"]["default"],
    ):
        assert "@" in text and presets.pinned(text) == "full"
    with pytest.raises(UsageError, match="this samebits has full@"):
        presets.pinned("full@0")


def test_the_steps_run_here_on_a_good_device(tmp_path: Path) -> None:
    """Records, JUnit and a table come out; without a baseline nothing is compared."""
    ran = step(tmp_path, "all")
    assert ran.returncode == 0, ran.stderr
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "| mock:card:0 |" in summary and "gate: **OPEN**" in summary and "No baseline" in summary
    assert JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml")).failures == 0
    assert list((tmp_path / "out" / "records").rglob("*.jsonl.gz"))
    again = step(tmp_path, "gate")
    assert again.returncode == 2 and "name a fresh folder" in again.stderr


def test_a_regression_fails_the_job_and_all_is_kept(tmp_path: Path) -> None:
    """The diff with the baseline says of which driver; an entry makes it a known fault."""
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    assert step(tmp_path, "gate", OUT=good).returncode == 0
    ran = step(tmp_path, "all", mock="card=mismatch~2", OUT=bad, BASELINE=f"{good}/records")
    assert ran.returncode == 1, ran.stderr
    summary = Path(bad, "summary.md").read_text()
    assert "gate: **FAIL**" in summary and "REGRESSION gemm_i32;" in summary and "driver mock 1 -> mock 2" in summary
    assert JUnitXml.fromfile(f"{bad}/junit.xml").failures == 1

    entry = tmp_path / "known.toml"
    entry.write_text(
        "[[expect]]\nname = 'x'\ndevice = 'mock:card:*'\nruns = 'gemm_i32;m=17;n=19;k=23;*;schedule=reverse;variant=base'\n"
        "verdict = 'mismatch'\nreason = 'planted'\nsince = 2020-01-01\n"
    )
    known = step(tmp_path, "diff", OUT=bad, BASELINE=f"{good}/records", EXPECTATIONS=str(entry))
    assert known.returncode == 0 and "KNOWN gemm_i32;" in known.stdout


def test_without_records_the_summary_says_so(tmp_path: Path) -> None:
    """As when no device was there."""
    ran = step(tmp_path, "all", DEVICES="hardware")
    assert ran.returncode == 3
    assert "No records: no device was run." in (tmp_path / "out" / "summary.md").read_text()
