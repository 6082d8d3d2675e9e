"""JUnit: each verdict becomes what its row of the table says, and strangers' text does no harm."""

from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from test_gate_rules import result, run_of

from harness import matrix
from harness.records import Run, Void
from harness.report.junit import write_junit
from harness.verdicts import TABLE

KINDS = {"pass": [], "failure": [Failure], "error": [Error], "skipped": [Skipped]}


def cases(tmp_path: Path, *runs: Run, missing: tuple[str, ...] = ()) -> list[TestCase]:
    """The test cases of what is written, in order; those of the gate come last."""
    path = tmp_path / "junit.xml"
    write_junit(path, matrix.judge(runs), runs, missing)
    return [case for suite in JUnitXml.fromfile(str(path)) for case in suite]


@pytest.mark.parametrize("verdict", TABLE)
def test_each_verdict_is_what_the_table_says(tmp_path: Path, verdict: str) -> None:
    """And names itself in the message."""
    case = cases(tmp_path, run_of(result(verdict, detail="as it came")))[0]
    assert [type(r) for r in case.result] == KINDS[TABLE[verdict].junit]
    assert all(r.message == f"{verdict}: as it came" for r in case.result)


def test_a_twin_that_was_caught_passes_and_one_that_crashed_is_an_error(tmp_path: Path) -> None:
    """It has to mismatch."""
    caught, crashed = run_of(result("mismatch", role="known-bad")), run_of(result("crash", role="known-bad"))
    assert cases(tmp_path, caught)[0].result == []
    assert isinstance(cases(tmp_path, crashed)[0].result[0], Error)


def test_void_runs_and_missing_devices_are_errors_of_the_gate(tmp_path: Path) -> None:
    """They belong to no run key."""
    *_, void, missing = cases(tmp_path, run_of(result(), voids=(Void("no nonce"),)), missing=("no lavapipe",))
    assert [r.message for r in void.result] == ["vulkan:one:0: no nonce"]
    assert [r.message for r in missing.result] == ["no lavapipe"]


def test_text_of_drivers_is_cleaned(tmp_path: Path) -> None:
    """XML has no place for control characters, and a reader none for escapes."""
    case = cases(tmp_path, run_of(result("crash", detail="a\x1b[31m\x00</testcase>\nb")))[0]
    assert case.result[0].message == "crash: a[31m</testcase> b"
