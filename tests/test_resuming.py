"""Runs that are gone on with: what is carried over, what is done anew, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mock_gates import STRUCK, STRUCK_RUN, bad, done, gate_on, journal_files, mock_device, results_of, use_folders

from harness import devices, findings, gate, kernels, lane, matrix, models, presets, store
from harness.cases import Case
from harness.errors import UsageError
from harness.gate import Outcome
from harness.reference import Reference


def test_a_resumed_run_that_is_interrupted_at_once_still_holds_all_that_was_done(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is carried over is written first; and it is looked for in every run that came before."""
    first = gate_on(["card=crash/all"], here, monkeypatch)
    (run,) = first.runs()
    monkeypatch.setattr(lane.Lane, "_do", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    (again,) = gate_on(["card=match"], here, monkeypatch, resume=first.gate_run).runs()
    assert again.header.parent == run.header.run_id and done([again]) == done([run])
    monkeypatch.setattr(findings.Findings, "keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    (empty,) = gate_on(["card=match"], here, monkeypatch, resume=first.gate_run).runs()
    assert empty.header.parent == again.header.run_id and not done([empty])
    monkeypatch.undo()


def test_a_device_that_was_set_aside_is_gone_on_with_until_it_is_done(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resumption has three losses of its own; faults stay, and the last run names its parents in a line."""
    outcome = gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1)
    chain = [outcome.runs()[0]]
    while not chain[-1].complete:
        chain += gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1, resume="last").runs()
    planned = len(chain[0].header.planned)
    twins = sum(p.role == "known-bad" for p in chain[0].header.planned)
    crashes = [sum(r.verdict == "crash" for r in run.results) for run in chain]
    assert crashes[:-1] == list(range(3, 3 * len(chain), 3))[: len(chain) - 1] and crashes[-1] == planned - twins
    assert [run.header.parent for run in chain[1:]] == [run.header.run_id for run in chain[:-1]]
    assert matrix.latest(store.collect([here / "out"]))[0].header.run_id == chain[-1].header.run_id
    assert len(matrix.latest(store.collect([here / "out"]))) == 1


def test_no_fault_is_resumed_away(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a mismatch, not a crash, and not a hang in the end of a worker, though the device has been mended since."""
    items = ["a=mismatch+hang-shutdown", "b=crash"]
    outcome = gate_on(items, here, monkeypatch)
    before = results_of(outcome.runs())
    resumed = gate_on(["a=match", "b=match"], here, monkeypatch, resume=outcome.gate_run).runs()
    assert results_of(resumed) == before
    assert {v for _, _, v in [(k, r, v) for k, (v, r) in before.items()]} >= {"mismatch", "crash", "timeout"}


def test_a_void_run_is_done_anew(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results count for nothing, so none is carried over."""
    outcome = gate_on(["card=wrong-nonce"], here, monkeypatch)
    (run,) = gate_on(["card=match"], here, monkeypatch, resume=outcome.gate_run).runs()
    assert not run.voids and not bad(run) and run.header.parent == outcome.runs()[0].header.run_id


def test_of_a_fork_the_worse_result_stays(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two resumptions of one run, of which one found a fault."""
    monkeypatch.setattr(lane.Lane, "_do", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    root = gate_on(["card=match"], here, monkeypatch)
    monkeypatch.undo()
    use_folders(monkeypatch, here)
    (one,) = gate_on(["card=mismatch"], here, monkeypatch, resume=root.gate_run).runs()
    moved = here / "elsewhere"
    one.path.rename(moved)
    gate_on(["card=match"], here, monkeypatch, resume=root.gate_run)
    moved.rename(one.path)
    (last,) = gate_on(["card=match"], here, monkeypatch, resume=root.gate_run).runs()
    assert [(r.run, r.verdict) for r in bad(last).values()] == [(STRUCK_RUN, "mismatch")]


def test_a_journal_killed_in_its_header_does_not_hinder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a damaged record that has nothing to do with it."""
    outcome = gate_on(["card=crash/all"], here, monkeypatch, cases=[STRUCK], workers=1)
    (here / "state" / "journals" / "torn.jsonl").write_bytes(b'{"type":"hea')
    (here / "out" / "damaged.jsonl.gz").write_bytes(b"no")
    (run,) = gate_on(["card=match"], here, monkeypatch, cases=[STRUCK], resume="last").runs()
    assert run.header.gate_run == outcome.gate_run and run.complete


@pytest.mark.parametrize("resume", ["last", "0" * 32, "no/such/journal.jsonl"])
def test_nothing_to_resume_is_a_usage_error_before_anything_runs(
    resume: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what was asked for, and the mend."""
    with pytest.raises(UsageError, match=r"nothing to resume as .*; name a record, or leave --resume out"):
        gate_on(["match"], here, monkeypatch, resume=resume)
    assert not (here / "state" / "journals").exists() or journal_files(here) == []


def test_another_driver_is_not_resumed_and_nothing_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even on the device before it."""
    outcome = gate_on(["a=match", "b=match~1"], here, monkeypatch, cases=[STRUCK_RUN])
    records = set((here / "out").rglob("*.gz"))
    with pytest.raises(UsageError, match=r"it ran on mock:b:0 .*mock 1.* not mock:b:0 .*mock 2"):
        gate_on(["a=match", "b=match~2"], here, monkeypatch, cases=[STRUCK_RUN], resume=outcome.gate_run)
    assert set((here / "out").rglob("*.gz")) == records


def test_a_soak_is_gone_on_with_round_by_round(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that are done are carried over, the one under way is completed, and the next begins.

    What is carried over is not computed again by the reference.
    """

    def rounds() -> Iterator[list[Case]]:
        for seed in range(1, 100):
            yield [Case("gemm_i32", (("m", 17), ("n", 19), ("k", 23)), "full", seed)]

    monkeypatch.setattr(models, "verified", Path)  # no round here has a case of the model
    monkeypatch.setattr(presets, "soak_rounds", rounds)
    monkeypatch.setattr(presets, "SOAK_ELEMENTS", 3 * 7 * 2 * 17 * 19)
    honest = lane.Lane._do

    def interrupted(self: lane.Lane, task: Any) -> None:
        honest(self, task)
        if task.role == "case" and task.case.seed == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(lane.Lane, "_do", interrupted)
    soak = {"preset": "soak", "cases": ()}

    def gate_of(resume: str | None) -> Outcome:
        monkeypatch.setattr(devices, "discover", lambda **_: [mock_device("match")])
        return gate.execute(gate.Options(out=here / "out", resume=resume, **soak), lambda _: None)

    first = gate_of(None)
    assert first.interrupted and len(first.records) == 2
    monkeypatch.setattr(lane.Lane, "_do", honest)
    asked, answer = list[int](), Reference._answer
    monkeypatch.setattr(Reference, "_answer", lambda self, case: asked.append(case.seed) or answer(self, case))
    runs = gate_of("last").runs()
    assert 3 in asked and 1 not in asked
    assert len(runs) == 3 and all(run.complete and not bad(run) for run in runs)
    assert [run.header.parent is not None for run in sorted(runs, key=lambda r: r.header.planned[-1].run)] == [
        True, True, False,
    ]  # fmt: skip
    kept = matrix.latest(store.collect([here / "out"]))
    assert sorted(r.header.run_id for r in kept) == sorted(r.header.run_id for r in runs)


@pytest.mark.parametrize(("seconds", "families"), [(0.001, ["gemm"]), (None, ["gemm", "linear"])])
def test_the_time_of_a_soak_ends_it_after_a_family_and_not_after_a_round(
    here: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, families: list[str]
) -> None:
    """A round can take minutes. What was done is whole: the record of each family is complete, and nothing is not-run."""
    gemm = Case("gemm_i32", (("m", 17), ("n", 19), ("k", 23)), "full", 1)
    linear = Case("linear_q8_0", (("m", 2), ("n", 5), ("k", 64)), "full", 1)
    monkeypatch.setattr(models, "verified", Path)  # no round here has a case of the model
    monkeypatch.setattr(presets, "soak_rounds", lambda: iter([[gemm, linear]] * 2))
    monkeypatch.setattr(presets, "SOAK_ELEMENTS", 1)
    monkeypatch.setattr(devices, "discover", lambda **_: [mock_device("match")])
    soak = gate.Options("soak", here / "out", soak_seconds=seconds)
    outcome = gate.execute(soak, lambda _: None)
    runs = outcome.runs()
    assert [kernels.FAMILY_OF[run.header.planned[-1].case.partition(";")[0]] for run in runs] == families
    assert all(run.complete and not bad(run) for run in runs) and not outcome.interrupted


def test_a_run_is_gone_on_with_by_its_own_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer cases, or another device, would leave what it was to run out of sight."""
    both = ("gemm_i32;m=17*", "linear_q8_0;m=1;*")
    first = gate_on(["a=match", "b=match"], here, monkeypatch, cases=both)
    assert gate_on(["a=match"], here, monkeypatch, cases=both[::-1], resume=first.gate_run).runs()[0].complete
    with pytest.raises(UsageError, match=r"it was started with --case gemm_i32;m=17\* linear_q8_0;m=1;\*; go on with"):
        gate_on(["a=match"], here, monkeypatch, cases=both[:1], resume=first.gate_run)
    with pytest.raises(UsageError, match=r"that run is of mock:a:0, mock:b:0; name it with --device"):
        gate_on(["c=match"], here, monkeypatch, cases=both, resume=first.gate_run)
