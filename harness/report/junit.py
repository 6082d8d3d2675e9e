"""JUnit XML of a judged gate: a suite a device, a test case a run key, as the table of verdicts says."""

import os
from collections.abc import Sequence
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.errors import UsageError
from harness.matrix import Gate, latest
from harness.records import Run
from harness.report import beside, difference_lines
from harness.text import clean
from harness.verdicts import TABLE, Result

GATE = "gate"
"""The suite of what concerns no run key: void runs, devices that are missing."""


def write_junit(path: Path, gate: Gate, runs: Sequence[Run], missing: Sequence[str] = ()) -> None:
    """Write `gate` over `runs`, with expectations laid over them; `missing`: devices that had to be there.

    Raises UsageError where `path` cannot be written.
    """
    xml = JUnitXml("samebits")
    for run in latest(runs):
        xml.add_testsuite(_suite(run))
    xml.add_testsuite(_gate_suite(gate, missing))
    xml.update_statistics()  # type: ignore[no-untyped-call]
    check_path(path)
    try:
        xml.write(str(path), pretty=True)
    except OSError as e:
        raise UsageError(f"--junit {path}: {e.strerror}; name a file that can be written") from e


def check_path(path: Path) -> None:
    """Raise UsageError where no file can be made at `path`: known before anything runs."""
    if path.is_dir():
        raise UsageError(f"--junit {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"--junit {path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--junit {path}: no permission to write there; name a file that can be written")


def _suite(run: Run) -> TestSuite:
    h = run.header
    suite = TestSuite(clean(h.device.id))
    suite.timestamp = h.started
    for name, value in {
        "device": h.device.name,
        "kind": h.device.kind,
        "vendor": h.device.vendor,
        "driver": h.device.driver,
        "compiler": h.device.compiler,
        "preset": f"{h.preset} {h.preset_version}",
        "shard": str(h.options.get("shard", "")),
        "record": run.path.name,
        "samebits": h.version,
    }.items():
        if value:
            suite.add_property(clean(name), clean(value))
    for result in run.results:
        suite.add_testcase(_case(h.device.id, result))
    return suite


def _case(device: str, r: Result) -> TestCase:
    role = "" if r.role == "case" else f" [{r.role}]"
    case = TestCase(clean(r.run, 600) + role, clean(f"{device}.{r.case.partition(';')[0]}"), sum(r.seconds.values()))
    twin_caught = r.role == "known-bad" and TABLE[r.verdict].colour == "red"
    outcome = "pass" if twin_caught else TABLE[r.verdict].junit
    said = beside(r)
    message = f"{r.verdict}: {said}" if said else r.verdict
    if outcome == "skipped":
        case.result = [Skipped(message)]
    elif outcome != "pass":
        kind = Failure if outcome == "failure" else Error
        entry = kind(message, r.verdict)
        lines = difference_lines(r.difference) if r.difference else []
        entry.text = "\n".join([*lines, *([f"repeat: {clean(r.repeat, 600)}"] if r.repeat else [])])
        case.result = [entry]
    return case


def _gate_suite(gate: Gate, missing: Sequence[str]) -> TestSuite:
    """One test case for the gate as such. OPEN is no failure: that is a matter of --require."""
    suite = TestSuite(GATE)
    suite.add_property("gate", gate.gate)
    for sentence in gate.missing:
        suite.add_property("missing", clean(sentence, 600))
    case = TestCase("no run is void", GATE)
    case.result = [Error(clean(f"{row.device.id}: {reason}", 600), "void") for row in gate.rows for reason in row.void]
    suite.add_testcase(case)
    case = TestCase("every device that had to be there was there", GATE)
    case.result = [Error(clean(sentence, 600), "missing") for sentence in missing]
    suite.add_testcase(case)
    return suite
