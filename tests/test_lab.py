"""The lab script: its steps on a mock device, its refusals, and that whatever happens the records come home."""

import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from command import FEW, MAIN, ROOT

SHORT = ("--soak", "0", "--bench", "off")
SCRIPT = ROOT / "scripts" / "gpu-lab.sh"


def lab(folder: Path, *arguments: str, mock: str = "card=match@VendorA") -> subprocess.CompletedProcess[str]:
    """The script in `folder`, with a samebits that sees only `mock`."""
    command = folder / "samebits"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(FEW + MAIN)} "$@"\n')
    command.chmod(0o755)
    variables = {
        **os.environ,
        "SAMEBITS": str(command),
        "SAMEBITS_MOCK": mock,
        "SAMEBITS_EXPECT": "",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run([SCRIPT, *arguments], env=variables, cwd=folder, capture_output=True, text=True, timeout=600)


def archived(folder: Path) -> list[str]:
    """Names in the one archive that lies in `folder`."""
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        return file.getnames()


def test_the_card_is_run_and_its_records_are_one_archive(tmp_path: Path) -> None:
    done = lab(tmp_path, "run", "--preset", "tiny", *SHORT)
    assert done.returncode == 0, done.stderr
    names = archived(tmp_path)
    assert any(name.startswith("records/mock-card") and name.endswith(".jsonl.gz") for name in names)
    assert "matrix.md" in names and "bench.txt" not in names
    assert not any("doctor" in name or "state" in name or "cache" in name for name in names)


def test_a_finding_is_the_exit_code_and_comes_home_with_its_tensors(tmp_path: Path) -> None:
    done = lab(tmp_path, "run", "--preset", "tiny", *SHORT, "--out", "found", mock="card=mismatch@VendorA")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "found.tar.gz").is_file()
    assert any(name.endswith("expected.bin") for name in archived(tmp_path))


def test_without_hardware_there_is_nothing_to_bring_home_unless_a_device_is_named(tmp_path: Path) -> None:
    assert lab(tmp_path, "run", "--preset", "tiny", mock="card=match").returncode == 3
    assert not list(tmp_path.glob("*.tar.gz"))
    done = lab(tmp_path, "run", "--preset", "tiny", *SHORT, "--device", "card", "--out", "x", mock="card=match")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fly",),
        ("run", "--soak"),
        ("run", "--soak", "long"),
        ("run", "--what", "1"),
    ],
)
def test_what_it_does_not_understand_is_refused_before_anything_runs(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = lab(tmp_path, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("gpu-lab: ")


def test_it_never_runs_into_a_folder_with_records(tmp_path: Path) -> None:
    (tmp_path / "old/records").mkdir(parents=True)
    assert lab(tmp_path, "run", "--out", "old").returncode == 2
