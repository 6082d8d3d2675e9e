"""`samebits diff`: what each pair of results is called, and what counts for nothing."""

from pathlib import Path
from typing import Any

import pytest

from harness.devices import Device
from harness.diff import Diff, compare
from harness.records import Footer, Header, Planned, Run, System, Void
from harness.report.diff import print_diff
from harness.verdicts import Result

CASE = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0"


def result(verdict: str = "match", schedule: str = "forward", **more: Any) -> Result:
    """A judged run key."""
    run = f"{CASE};schedule={schedule};variant=base"
    given = {"case_version": "v1", "kernel_hash": "h1", "digest": "a" * 64} | more
    return Result(run=run, case=CASE, schedule=schedule, variant="base", verdict=verdict, **given)


def run_of(
    *results: Result,
    driver: str = "1",
    device: str = "vulkan:one:0",
    uuid: str | None = None,
    started: str = "2026-11-30T00:00:00Z",
    complete: bool = True,
    void: bool = False,
) -> Run:
    """A record as read back."""
    api, label, _ = device.split(":")
    described = Device(device, api, label, kind="hardware", vendor="V", name=label, driver=driver, uuid=uuid)
    header = Header(
        schema=1, run_id=f"{device}{uuid}{started}", gate_run="g", parent=None, version="0", git=None, preset="full",
        preset_version="1", started=started, argv=[], libraries={}, variables={}, identified=False, nonce=1, budgets={},
        system=System("Linux", "6", "x86_64", "3.11"), device=described, options={},
        planned=[Planned(r.run, r.case_version, r.kernel_hash, r.role) for r in results],
    )  # fmt: skip
    voids = (Void("the nonce did not come back"),) if void else ()
    return Run(header, results, voids, Footer(started, {}, complete, None), None, Path("x.jsonl.gz"), "0" * 64)


def words(found: Diff) -> list[str]:
    """The words of the changes, in their order."""
    return [change.word for change in found.changes]


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ("match", "match", None),
        ("match", "mismatch", "REGRESSION"),
        ("match", "crash", "REGRESSION"),
        ("crash", "mismatch", "REGRESSION"),
        ("mismatch", "match", "FIX"),
        ("timeout", "match", "FIX"),
        ("mismatch", "mismatch", None),
        ("match", "unsupported", "GONE"),
        ("mismatch", "unsupported", "GONE"),
        ("unsupported", "match", "NEW"),
        ("unsupported", "mismatch", "NEW"),
        ("not-run", "match", "NEW"),
        ("match", "not-run", "NOT-RUN"),
        ("mismatch", "not-run", "NOT-RUN"),
        ("not-run", "not-run", None),
        ("informational", "informational", None),
    ],
)
def test_what_became_of_a_run_key_has_one_word(before: str, after: str, word: str | None) -> None:
    """Only a regression exits with 1; a fault of another kind is one, and what did not run is no fix."""
    found = compare([run_of(result(before))], [run_of(result(after))])
    assert words(found) == ([word] if word else [])
    assert found.exit_code() == (1 if word == "REGRESSION" else 0)


def test_a_known_fault_is_no_regression_and_a_fix_is_one_though_its_entry_stays() -> None:
    """The new side has expectations laid over it."""
    known = compare([run_of(result())], [run_of(result("waived", was="mismatch"))])
    assert words(known) == ["KNOWN"] and known.exit_code() == 0
    assert words(compare([run_of(result("mismatch"))], [run_of(result("fix", was="mismatch"))])) == ["FIX"]
    assert words(compare([run_of(result("mismatch"))], [run_of(result("waived", was="mismatch"))])) == []


def test_a_change_says_what_differs_of_all_that_could_explain_it() -> None:
    """Driver, compiler, kernel hash, case version; nothing where nothing differs."""
    old = run_of(result(), result(schedule="tree"))
    new = run_of(result("mismatch", kernel_hash="h2"), result(schedule="tree"), driver="2")
    (change,) = compare([old], [new]).changes
    assert change.changed == ["driver 1 -> 2", "kernel hash h1 -> h2"]
    assert compare([old], [run_of(result("mismatch"))]).changes[0].changed == []


def test_a_match_with_another_digest_is_told_with_the_case_version() -> None:
    """Inputs or reference changed: that is to be seen, though all is green."""
    (change,) = compare([run_of(result())], [run_of(result(digest="b" * 64, case_version="v2"))]).changes
    assert (change.word, change.changed) == ("CHANGED-DIGEST", ["case version v1 -> v2"])


def test_a_match_of_another_case_version_is_no_fix() -> None:
    """Other inputs say nothing of the fault."""
    found = compare([run_of(result("mismatch"))], [run_of(result(case_version="v2", digest="b" * 64))])
    assert words(found) == ["CHANGED-DIGEST"]


def test_an_incomplete_run_is_never_a_fix_and_exits_with_4() -> None:
    """A fault that did not show before the run broke off may still be there."""
    found = compare([run_of(result("mismatch"))], [run_of(result(), complete=False)])
    assert words(found) == [] and found.exit_code() == 4
    assert any("that is no fix" in note for note in found.notes)
    assert compare([run_of(result(), complete=False)], [run_of(result("mismatch"))]).exit_code() == 1


def test_a_void_run_is_left_out_and_exits_with_5_where_it_is_new() -> None:
    """Its results count for nothing, on either side."""
    assert compare([run_of(result())], [run_of(result("mismatch"), void=True)]).exit_code() == 5
    assert compare([run_of(result("mismatch"), void=True)], [run_of(result())]).exit_code() == 0


def test_a_void_run_is_told_where_the_changes_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """`no change` alone would say that all is as before."""
    found = compare([run_of(result())], [run_of(result("mismatch"), void=True)])
    print_diff(found)
    assert "VOID: 1 records count for nothing; of the others: 1 GONE, 0 as before" in capsys.readouterr().out
    assert found.plain()["void"] == 1


def test_what_is_only_on_one_side_is_new_or_gone() -> None:
    """Run keys, and whole devices."""
    old, new = run_of(result()), run_of(result(schedule="tree"))
    assert words(compare([old], [new])) == ["NEW", "GONE"]
    assert words(compare([old], [old, run_of(result(), device="opencl:two:0")])) == ["NEW"]
    assert words(compare([old, run_of(result(), device="opencl:two:0")], [old])) == ["GONE"]


def test_of_several_records_those_of_the_newest_driver_count_and_the_worst_of_them() -> None:
    """A fault that shows in one of two runs is there."""
    faulty = run_of(result("mismatch"), driver="2", started="2026-12-01T00:00:00Z")
    later = run_of(result(), driver="2", started="2026-12-02T00:00:00Z")
    updated = run_of(result(), driver="3", started="2026-12-03T00:00:00Z")
    assert words(compare([run_of(result())], [faulty, later])) == ["REGRESSION"]
    assert words(compare([faulty, later], [updated])) == ["FIX"]
    assert words(compare([faulty], [faulty, updated])) == ["FIX"]


def test_identical_devices_are_told_apart_by_their_unit() -> None:
    """One of two equal cards that begins to fail is a regression of that card; a lone card is the same by any name."""
    good = [run_of(result(), uuid="1"), run_of(result(), device="vulkan:one:1", uuid="2")]
    worn = [run_of(result("mismatch"), uuid="2"), run_of(result(), device="vulkan:one:1", uuid="1")]
    found = compare(good, worn)
    assert words(found) == ["REGRESSION"] and found.unchanged == 1
    assert words(compare([good[0]], [worn[0]])) == ["REGRESSION"]
