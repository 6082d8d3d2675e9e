"""The composite action and the workflow's second job, run here step by step as their files have them, on a mock device."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import MAIN, ROOT
from junitparser import JUnitXml
from mock_gates import STRUCK_RUN

from harness import presets, selections
from harness.selections import Shard

ACTION = yaml.safe_load((ROOT / ".github/actions/samebits/action.yml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/gpu-conformance.yml").read_text())
SHARDS = 64


class Runner:
    """As much of a GitHub runner as these files ask for: expressions of inputs and outputs, files for variables, always()."""

    def __init__(self, folder: Path, inputs: dict[str, str], mock: str) -> None:
        self.folder, self.failed = folder, False
        self.known = {f"inputs.{name}": value for name, value in inputs.items()}
        files = {name: folder / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        # In the place of `python3 -m venv`: an environment whose pip only notes what it is to install.
        (folder / "bin").mkdir()
        samebits = f'exec {sys.executable} -c {shlex.quote(MAIN)} "$@"'
        (folder / "samebits").write_text(f"#!/bin/sh\n{samebits}\n")
        (folder / "pip").write_text(f'#!/bin/sh\necho "$@" >>{folder}/installed\n')
        (folder / "bin/python3").write_text(
            f'#!/bin/sh\nmkdir -p "$3/bin" && cp {folder}/pip {folder}/samebits "$3/bin"\n'
        )
        for program in ("samebits", "pip", "bin/python3"):
            (folder / program).chmod(0o755)
        self.variables = {
            **os.environ,
            **{name: str(file) for name, file in files.items()},
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder),
            "PYTHONPATH": str(ROOT),
            "SAMEBITS_MOCK": mock,
            "SAMEBITS_EXPECT": "",
            "SAMEBITS_CACHE_DIR": str(folder / "cache"),
        }

    def said(self, text: str) -> str:
        """`text` with its expressions evaluated; one that is not known fails the test."""
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: self.known[match[1]], text)

    def run(self, step: dict[str, Any], folder: Path = ROOT) -> None:
        """One step with `run`, unless an earlier one failed and it does not say always()."""
        if self.failed and step.get("if") != "always()":
            return
        own = {name: self.said(value) for name, value in step.get("env", {}).items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.said(step["run"])]
        done = subprocess.run(command, env=self.variables | own, cwd=folder, timeout=600, check=False)
        self.failed |= done.returncode != 0
        self.variables |= pairs(Path(self.variables["GITHUB_ENV"]))
        outputs = pairs(Path(self.variables["GITHUB_OUTPUT"])).items()
        self.known |= {f"steps.{step['id']}.outputs.{name}": value for name, value in outputs if "id" in step}


def pairs(file: Path) -> dict[str, str]:
    """The lines NAME=VALUE of a runner's file."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())  # type: ignore[misc]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The action on a device with one wrong bit, in the shard that holds it, and the steps' end."""
    parts = (Shard(number, SHARDS) for number in range(1, SHARDS + 1))
    held = next(
        p for p in parts if STRUCK_RUN in {str(r) for s in selections.chosen("tiny", shard=p) for r in s.runs("opencl")}
    )
    given = {
        "preset": f"tiny@{presets.VERSION['tiny']}",
        "devices": "mock",
        "shard": str(held),
        "name": "samebits-card",
    }
    inputs = {name: str(said.get("default", "")) for name, said in ACTION["inputs"].items()} | given
    runner = Runner(tmp_path_factory.mktemp("action"), inputs, "card=mismatch")
    for step in ACTION["runs"]["steps"]:
        if "run" in step:
            runner.run(step)
    return runner


def test_the_action_s_steps_run_as_written_and_what_is_uploaded_is_there_though_the_gate_failed(ran: Runner) -> None:
    """Environment, gate, table, comparison, job summary."""
    assert ran.failed
    assert (ran.folder / "installed").read_text().split()[-1] == "."
    summary = Path(ran.variables["GITHUB_STEP_SUMMARY"]).read_text()
    assert "gate: **FAIL**" in summary and "| mock:card:0 |" in summary and "No baseline" in summary
    upload = ACTION["runs"]["steps"][-1]
    kept = [Path(ran.said(line)) for line in upload["with"]["path"].splitlines()]
    records, journals, junit, page = kept
    assert list(records.rglob("*.jsonl.gz")) and list(records.rglob("expected.bin"))
    assert journals.is_dir() and page.is_file()
    assert JUnitXml.fromfile(str(junit)).failures == 1
    assert ran.said(upload["with"]["name"]) == "samebits-card"


def test_the_matrix_of_all_machines_runs_as_written_and_knows_of_shards_that_never_came(ran: Runner) -> None:
    """Artifacts are unpacked into a folder each; the job is a summary, and fails nothing that was told already."""
    job = ran.folder / "job"
    (job / "union/records").mkdir(parents=True)
    (job / "scripts").symlink_to(ROOT / "scripts")
    upload = ACTION["runs"]["steps"][-1]["with"]
    Path(ran.said(upload["path"].splitlines()[0])).rename(job / "union/records/samebits-card")
    (ran.folder / "second").mkdir()
    runner = Runner(ran.folder / "second", {}, "card=mismatch")
    for step in WORKFLOW["jobs"]["matrix"]["steps"]:
        if "run" in step:
            runner.run(step, job)
    assert not runner.failed
    summary = Path(runner.variables["GITHUB_STEP_SUMMARY"]).read_text()
    assert "gate: **FAIL**" in summary and "| mock:card:0 |" in summary and "not-run" in summary
