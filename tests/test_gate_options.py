"""Options of `gate` that are refused before anything runs."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import ROOT, samebits

from harness.cli import cli
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "nan"], "no time"),
        (["--preset", "soak", "--time", "inf"], "no time"),
        (["--preset", "tiny", "--time", "5"], "--preset soak"),
        (["--resume", ""], "names nothing"),
        (["--junit", "absent/junit.xml"], "there is no folder absent; make it first"),
        (["--junit", "."], "--junit .: it is a folder; name a file in it"),
        (["--preset", "ful"], "did you mean full?"),
        (["--case", "gem_i32*"], "did you mean gemm_i32?"),
        (["--case", "gemm_i33;m=1;n=1;k=1;dist=full;seed=0"], "unknown kernel 'gemm_i33'; did you mean gemm_i32?"),
        (["--case", "gemm_i32;m=1;n=1;k=1;dist=ful;seed=0"], "did you mean full?"),
        (["--case", "gemm_i32*;schedule=three"], "did you mean tree?"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(words: list[str], said: str) -> None:
    """One line and exit code 2."""
    with pytest.raises(UsageError, match=re.escape(said)):
        CliRunner().invoke(cli, ["gate", *words], catch_exceptions=False, standalone_mode=False)


ONE_LINE = [
    (["run", "--resume"], "--resume goes on with a run's own command: give its --device and --case again too"),
    (["matrix", ".", "--json", "--format", "csv"], "--json and --format csv do not go together: give one of them"),
    (["forward", "x.gguf"], "Missing option '--profile'; see `samebits forward --help`"),
    (["gate", "--device", "mock:mach"], "did you mean mock:match?"),
    (["forward", "x.gguf", "--profile", "dyadic-q61", "--tokens", "1"], "did you mean dyadic-q16?"),
    (["fetch-model", "smollm2-135m"], "did you mean smollm2-135m-q4_1?"),
    (["inspect", "/dev/null"], "null: it is no regular file"),
    (["inspect", "."], ".: it is a folder"),
    (["matrix", ""], "the name is empty; '.' is the working folder; see `samebits matrix --help`"),
    (["run", "--device", "mock:match", "--out", ""], "the name is empty"),
    (["gate", "--shard", ""], "shard ''"),
    (
        ["run", "--device", "mock:match", "--case", "probe_bits;rows=11;dist=wide;seed=0;schedule=tree;variant=base"],
        "the kernel's schedules by variant are base: forward; literal: forward",
    ),
    (
        ["gate", "--device", "mock:match", "--case", "gemm_i8;m=1;n=1;k=1;dist=full;seed=0;variant=mma_m8n8k16"],
        "nothing of that selection runs on mock:match:0",
    ),
    (
        ["run", "--device", "mock:match", "--case", "gemm_i8;m=1000000;n=1000000;k=1;dist=full;seed=0"],
        "125000 workgroups in one dimension, at most 65535",
    ),
]


@pytest.mark.parametrize(("words", "said"), ONE_LINE)
def test_bad_input_is_one_clear_line(tmp_path: Path, words: list[str], said: str) -> None:
    """No traceback, no class name, no full stop before a semicolon."""
    done = samebits(tmp_path, *words)
    line = done.stderr.splitlines()[-1]
    assert done.returncode in (2, 3) and line.startswith("samebits: ") and said in line and ".;" not in line


def test_output_that_nobody_reads_any_more_ends_the_command_quietly(tmp_path: Path) -> None:
    """As cat does it: by SIGPIPE, without a word."""
    command = [sys.executable, "-m", "harness.cli", "cases"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=tmp_path) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize("command", ["cases", "matrix FOLDER", "profile list", "show RECORD"])
def test_a_closed_or_full_standard_output_is_no_internal_error(command: str) -> None:
    """Closed: as if sent to nowhere. Full, as on a full disk: one line and 2. Into a pipe that is closed: by SIGPIPE."""
    record = next((ROOT / "matrices" / "runs").glob("*/*.jsonl.gz"))
    places = {"RECORD": str(record), "FOLDER": str(record.parent)}
    argv = [sys.executable, "-m", "harness.cli", *(places.get(word, word) for word in command.split())]
    line = shlex.join(argv)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def shell(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", script], env=env, cwd=ROOT, capture_output=True, text=True)

    closed = shell(f"{line} >&-")
    assert (closed.returncode, closed.stderr) == (shell(f"{line} >/dev/null").returncode, "")
    full = shell(f"{line} >/dev/full")
    told = "samebits: standard output cannot be written: No space left on device; send it elsewhere\n"
    assert (full.returncode, full.stderr) == (2, told)
    nobody, pipe = os.pipe()
    os.close(nobody)
    broken = subprocess.run(argv, env=env, cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, text=True)
    os.close(pipe)
    assert (broken.returncode, broken.stderr) == (-signal.SIGPIPE, "")


def test_run_tells_which_expected_device_is_missing(tmp_path: Path) -> None:
    """Exit code 3 has its line."""
    words = ["run", "--device", "mock:match", "--case", "limbs;n=13;dist=full;seed=0"]
    done = samebits(tmp_path, *words, expect="vulkan:nvidia")
    assert done.returncode == 3
    assert "missing: expected device vulkan:nvidia" in done.stderr


def test_the_object_of_gate_json_has_the_keys_that_the_design_promises(tmp_path: Path) -> None:
    """Named in docs/design.md, in that order. Devices that were not asked for are no rows."""
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    promise = text[text.index("`gate --json` and") : text.index("A failure is")]
    names = re.findall(r"`([a-z_]+)`", promise)
    split = names.index("devices", names.index("records"))
    done = samebits(
        tmp_path,
        "gate",
        "--device",
        "mock:match",
        "--case",
        "limbs;n=13;dist=full;seed=0",
        "--json",
        mock="match,mismatch",
    )
    result = json.loads(done.stdout)
    assert list(result) == names[:split]
    assert [row["id"] for row in result["devices"]] == ["mock:match:0"]
    assert list(result["devices"][0]) == names[split + 1 :]
    listed = samebits(tmp_path, "devices", "--json", mock="match,mismatch")
    assert [list(row) for row in json.loads(listed.stdout)] == [names[split + 1 : -4]] * 2
    table = samebits(tmp_path, "devices", mock="match")
    assert "note" in table.stdout and "verdicts" not in table.stdout and "not run" not in table.stdout


def test_what_is_told_of_a_finished_device_counts_a_known_fault_as_waived(tmp_path: Path) -> None:
    """On standard error, as in every table."""
    entry = [
        "name = 'one'",
        "api = 'mock'",
        "runs = 'gemm_i32*'",
        "verdict = 'mismatch'",
        "reason = 'x'",
        "since = 2025-11-30",
    ]
    (tmp_path / "faults.toml").write_text("\n".join(["[[expect]]", *entry]))
    words = [
        "gate",
        "--device",
        "mock",
        "--case",
        "gemm_i32;m=1;n=1;k=1;dist=full;seed=0;schedule=forward;variant=base",
    ]
    told = []
    for more in ([], ["--expectations", "faults.toml"]):
        done = samebits(tmp_path, *words, *more, mock="mismatch/all")
        told += re.findall(r"^mock:mismatch-all:0: (.*) in [0-9.]+ s", done.stderr, re.MULTILINE)
    assert told == ["1 mismatch", "1 waived"]


def test_without_a_command_the_whole_help_is_shown(tmp_path: Path) -> None:
    """On standard error, for it is no success."""
    done = samebits(tmp_path)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) > 20
    assert "Usage: samebits" in done.stderr and "doctor" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that takes nothing")
def test_a_full_standard_error_changes_no_exit_code(tmp_path: Path) -> None:
    """1 would be a finding."""
    command = shlex.join([sys.executable, "-m", "harness.cli", "show", str(tmp_path / "nope")])
    assert subprocess.run(f"{command} 2>/dev/full", shell=True, cwd=ROOT).returncode == 2


def test_a_junit_file_that_cannot_be_written_hides_no_verdict(tmp_path: Path) -> None:
    """The table and the folder of the records are told, then why there is no file."""
    case = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0;schedule=forward"
    done = samebits(tmp_path, "gate", "--device", "mock:match", "--case", case, "--junit", "/dev/full")
    assert done.returncode == 2 and "1 match" in done.stdout and "records: " in done.stderr
    assert "samebits: --junit /dev/full: No space left on device; name a file that can be written" in done.stderr
