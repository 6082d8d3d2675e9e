"""Every fault of the verdict table, end to end through workers, on mock devices: what it is called, and what it leaves alone."""

from pathlib import Path

import pytest

from harness import devices, gate, matrix
from harness.lane import Budgets
from harness.records import Run

STRUCK = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0"
CASES = ("gemm_i32;m=1;n=1;k=1;dist=full;seed=0", STRUCK)


def gate_of(mocks: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[dict[str, Run], matrix.Gate]:
    """The records by driver label, and the gate, of one command over mock devices."""
    everything = devices.discover
    monkeypatch.setenv("SAMEBITS_MOCK", mocks)
    monkeypatch.setenv("SAMEBITS_STATE_DIR", str(folder / "state"))
    monkeypatch.setattr(devices, "discover", lambda: everything(["mock"], budget=3.0))
    budgets = Budgets(probe=10, compile=2, run=2, shutdown=2)
    options = gate.Options("tiny", folder / "out", cases=CASES, budgets=budgets, memory_limit=1 << 30, workers=1)
    outcome = gate.execute(options, lambda _: None)
    runs = outcome.runs()
    return {r.header.device.label: r for r in runs}, matrix.judge(runs)


def verdicts(run: Run, role: str = "case") -> dict[str, str]:
    """Verdict by run key."""
    return {r.run: r.verdict for r in run.results if r.role == role}


@pytest.mark.parametrize(
    ("fault", "verdict", "phase"),
    [
        ("mismatch", "mismatch", None),
        ("unwritten", "unwritten", None),
        ("write-past-end", "mismatch", None),
        ("nondeterministic", "nondeterministic", None),
        ("sanitizer", "sanitizer", None),
        ("crash", "crash", "run"),
        ("hang-run", "timeout", "run"),
        ("device-lost", "device-lost", "run"),
        ("launch-error", "launch-error", "run"),
    ],
)
def test_a_fault_in_one_run_key_gets_its_verdict_and_touches_nothing_else(
    fault: str, verdict: str, phase: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The struck run key has the verdict of the table; all others of the device, and another device, match."""
    runs, judged = gate_of(f"{fault},match", monkeypatch, tmp_path)
    bad = {run: word for run, word in verdicts(runs[fault]).items() if word != "match"}
    assert bad == {f"{STRUCK};schedule=reverse;variant=base": verdict}
    assert set(verdicts(runs["match"]).values()) == {"match"}
    assert all(run.complete for run in runs.values())
    struck = next(r for r in runs[fault].results if r.verdict == verdict and r.role == "case")
    assert struck.phase == phase and struck.repeat and STRUCK in struck.repeat
    assert judged.gate == ("FAIL" if phase is None else "OPEN") and judged.exit_code() == 1


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("compile-error", "compile-error"), ("unsupported", "unsupported"), ("hang-compile", "timeout")],
)
def test_a_fault_of_the_compiler_strikes_one_program(
    fault: str, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only run keys under that schedule and variant have it."""
    runs, _ = gate_of(f"{fault},match", monkeypatch, tmp_path)
    words = verdicts(runs[fault])
    assert {w for run, w in words.items() if run.endswith("schedule=reverse;variant=base")} <= {verdict, "not-run"}
    others = {w for run, w in words.items() if not run.endswith("schedule=reverse;variant=base")}
    assert others <= ({"match", "not-run"} if fault == "hang-compile" else {"match"})
    assert set(verdicts(runs["match"]).values()) == {"match"}


@pytest.mark.parametrize("fault", ["known-bad-missed", "wrong-nonce"])
def test_a_run_that_proves_nothing_is_void(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A known-bad twin that matches, or a nonce that does not come back."""
    runs, judged = gate_of(f"{fault},match", monkeypatch, tmp_path)
    assert runs[fault].voids and not runs["match"].voids
    assert judged.gate == "VOID" and judged.exit_code() == 5


@pytest.mark.parametrize("habit", ["noisy", "closes-stdout", "signal-handlers", "zombies"])
def test_bad_habits_of_a_driver_cost_nothing(habit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Megabytes of text, a closed output, signal handlers and zombie children leave every result as it is."""
    runs, judged = gate_of(habit, monkeypatch, tmp_path)
    assert set(verdicts(runs[habit]).values()) == {"match"} and judged.exit_code() == 0


def test_a_device_that_crashes_everywhere_is_set_aside_after_three_losses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rest is not-run, says why, and makes the run incomplete."""
    runs, judged = gate_of("crash/all,match", monkeypatch, tmp_path)
    crashed = runs["crash-all"]
    words = [r.verdict for r in crashed.results]
    assert words.count("crash") == 3 and set(words) == {"crash", "not-run"}
    assert any("set aside" in (r.detail or "") for r in crashed.results)
    assert set(verdicts(runs["match"]).values()) == {"match"} and not judged.complete


def test_a_hang_in_shutdown_spoils_the_evidence_and_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The results stay; the fault has a line of its own."""
    runs, judged = gate_of("hang-shutdown", monkeypatch, tmp_path)
    assert set(verdicts(runs["hang-shutdown"]).values()) == {"match"}
    assert list(verdicts(runs["hang-shutdown"], "shutdown").values()) == ["timeout"]
    assert judged.rows[0].evidence


def test_drivers_that_fail_in_discovery_are_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hang, no device, and a software renderer with the name of a GPU."""
    monkeypatch.setenv("SAMEBITS_MOCK", "hang-probe,no-device,lying-name,match")
    found = {d.label: d for d in devices.discover(["mock"], budget=2.0)}
    assert (found["hang-probe"].status, found["hang-probe"].phase) == ("timeout", "probe")
    assert found["no-device"].status == "no-device"
    assert found["lying-name"].ok and found["lying-name"].kind == "software"
    assert found["match"].ok


def test_a_compile_only_device_is_compiled_and_neither_counts_nor_is_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In every role, without a comparison; a kernel that it refuses is a failure as on any device."""
    runs, judged = gate_of("compile-only,compile-only+compile-error,match", monkeypatch, tmp_path)
    plain, refusing = runs["compile-only"], runs["compile-only+compile-error"]
    assert {r.verdict for r in plain.results} == {"compiled"}
    assert {r.role for r in plain.results} == {"case", "self-test", "known-bad"}
    assert all(r.digest is None and r.elements == 0 for r in plain.results)
    assert plain.complete and not plain.voids
    assert set(verdicts(refusing).values()) == {"compiled", "compile-error"}
    assert not any("mock:compile-only:0" in sentence for sentence in judged.missing)
    assert any("mock:compile-only+compile-error:0" in sentence for sentence in judged.missing)
    assert judged.exit_code() == 1
    assert matrix.judge([plain, runs["match"]]).exit_code() == 0
