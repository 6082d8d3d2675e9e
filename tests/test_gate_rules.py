"""The gate over records: every rule of docs/design.md, on runs made by hand."""

from pathlib import Path
from typing import Any

import pytest

from harness import matrix
from harness.devices import Device
from harness.records import Footer, Header, Planned, Run, System, Void
from harness.verdicts import TABLE, Result

CASE = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0"
RIGHT = "a" * 64


def result(verdict: str = "match", role: str = "case", schedule: str = "forward", **more: Any) -> Result:
    """A judged run key."""
    given = {"digest": RIGHT, "expected": RIGHT, "elements": 2 * 10**9} | more
    run = f"{CASE};schedule={schedule};variant=base"
    return Result(
        run=run, case=CASE, schedule=schedule, variant="base", verdict=verdict, case_version="v", kernel_hash="h", role=role,
        **given,
    )  # fmt: skip


def run_of(
    *results: Result,
    device: str = "vulkan:one:0",
    vendor: str = "NVIDIA",
    kind: str = "hardware",
    preset: str = "full",
    voids: tuple[Void, ...] = (),
    complete: bool = True,
    version: str = "v",
    run_id: str | None = None,
    parent: str | None = None,
    options: dict[str, Any] | None = None,
) -> Run:
    """A record, as read back, of one device."""
    api, label, _ = device.split(":")
    described = Device(device, api, label, kind=kind, vendor=vendor, name=label)  # type: ignore[arg-type]
    header = Header(
        schema=1, run_id=run_id or device, gate_run="g", parent=parent, version="0", git=None, preset=preset,
        preset_version="1", started="2026-11-30T00:00:00Z", argv=[], libraries={}, variables={},
        system=System("Linux", "6", "x86_64", "3.11"), device=described, identified=False, nonce=1, budgets={},
        options=options or {}, planned=[Planned(r.run, version, "h", r.role) for r in results],
    )  # fmt: skip
    footer = Footer("2026-11-30T00:00:01Z", {}, complete, None)
    return Run(header, tuple(results), voids, footer, None, Path(f"{device}.jsonl.gz"), "0" * 64)


def whole(**more: Any) -> Run:
    """A run that has all that a PASS wants of one device."""
    return run_of(result(), control(), **more)


def control() -> Result:
    """The f32 control, diverged."""
    run = "gemm_f32;m=1;n=1;k=1;dist=full;seed=0;schedule=forward;variant=base"
    return Result(
        run=run, case=run.rpartition(";schedule=")[0], schedule="forward", variant="base", verdict="informational",
        case_version="v", kernel_hash="h", digest="b" * 64,
    )  # fmt: skip


def others(gate: matrix.Gate) -> list[str]:
    """What is missing, but for the control, whose rule has tests of its own."""
    return [sentence for sentence in gate.missing if "control" not in sentence]


def two_vendors(**more: Any) -> list[Run]:
    """Two hardware vendors; `more` goes to the second."""
    return [whole(), whole(**{"device": "vulkan:two:0", "vendor": "AMD"} | more)]


def test_two_vendors_with_enough_elements_lack_nothing() -> None:
    """Nothing but the control can still be missing."""
    assert others(matrix.judge(two_vendors())) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "software"}, "hardware of 2 vendors"),
        ({"vendor": "NVIDIA"}, "hardware of 2 vendors"),
        ({"device": "mock:two:0"}, "hardware of 2 vendors"),
        ({"preset": "quick"}, "REDUCED"),
        ({"version": "w"}, "equal case versions"),
        ({"complete": False}, "incomplete"),
        ({"options": {"cases": "gemm_i32*"}}, "only selected cases"),
    ],
)
def test_each_condition_of_a_pass_is_named_when_it_is_missing(change: dict[str, Any], sentence: str) -> None:
    """The gate is OPEN and says exactly what is missing."""
    gate = matrix.judge(two_vendors(**change))
    assert gate.gate == "OPEN"
    assert any(sentence in m for m in gate.missing), gate.missing


def test_fewer_than_a_billion_elements_on_a_vendor_are_missing() -> None:
    """Elements of one vendor do not count for the other."""
    few = run_of(result(elements=999_999_999), control(), device="vulkan:two:0", vendor="AMD")
    assert any("10^9" in m and "AMD" in m for m in matrix.judge([whole(), few]).missing)


def test_elements_of_repeated_records_add_up() -> None:
    """Two records of half a billion each make a billion."""
    halves = [
        run_of(result(elements=500_000_000), control(), device="vulkan:two:0", vendor="AMD", run_id=name)
        for name in "xy"
    ]
    assert others(matrix.judge([whole(), *halves])) == []


def test_a_missing_control_is_named() -> None:
    """Without a control nothing shows that the schedules reorder."""
    runs = [run_of(result()), run_of(result(), device="vulkan:two:0", vendor="AMD")]
    gate = matrix.judge(runs)
    assert gate.gate == "OPEN" and any("control" in m for m in gate.missing)


@pytest.mark.parametrize("word", [w for w, v in TABLE.items() if v.fails_gate])
@pytest.mark.parametrize("kind", ["hardware", "software"])
def test_any_red_verdict_on_any_device_fails_the_gate(word: str, kind: str) -> None:
    """Software devices are compared like all others."""
    gate = matrix.judge([*two_vendors(), run_of(result(word), device="opencl:three:0", kind=kind)])
    assert gate.gate == "FAIL" and gate.exit_code() == 1
    assert [f.result.verdict for f in gate.failures] == [word]


@pytest.mark.parametrize("word", ["crash", "timeout", "device-lost", "launch-error", "compile-error"])
def test_an_orange_verdict_gives_no_evidence_and_exits_1_without_failing_the_gate(word: str) -> None:
    """A crash is no wrong bit, and no evidence either."""
    bad = run_of(result(), result(word, schedule="tree"), control(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), bad])
    assert gate.gate == "OPEN" and gate.exit_code() == 1
    assert any("vulkan:two:0" in m and word in m for m in gate.missing)


@pytest.mark.parametrize("word", ["unsupported", "informational"])
def test_what_cannot_be_run_has_no_effect(word: str) -> None:
    """It is grey: neither evidence against nor for."""
    run = run_of(result(), result(word, schedule="tree"), control(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), run])
    assert others(gate) == [] and gate.exit_code() == 0


def test_a_failed_self_test_is_a_mismatch_of_its_own_and_spoils_the_evidence() -> None:
    """The device's other results stay in the counts."""
    run = run_of(result(), result("mismatch", role="self-test"), control(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), run])
    assert gate.gate == "FAIL" and gate.rows[1].counts["match"] == 1 and gate.rows[1].evidence


def test_a_known_bad_twin_that_mismatches_is_as_it_should_be() -> None:
    """It is no failure and spoils nothing."""
    run = run_of(
        result(), result("mismatch", role="known-bad", schedule="tree"), control(), device="vulkan:two:0", vendor="AMD"
    )
    gate = matrix.judge([whole(), run])
    assert others(gate) == [] and gate.exit_code() == 0 and gate.failures == []


def test_a_void_run_voids_the_gate_with_exit_5() -> None:
    """Its results count for nothing."""
    gate = matrix.judge([*two_vendors(voids=(Void("the known-bad twin matched"),))])
    assert gate.gate == "VOID" and gate.exit_code() == 5
    assert [bool(row.void) for row in gate.rows] == [False, True]


def test_a_disagreement_of_reference_and_second_voids_every_run() -> None:
    """Nobody knows what is right then."""
    gate = matrix.judge([*two_vendors(voids=(Void("reference and second disagree", everywhere=True),))])
    assert gate.gate == "VOID" and all(row.void for row in gate.rows)


def test_not_run_is_incomplete_and_exits_4() -> None:
    """An interrupted run never looks like a complete one."""
    gate = matrix.judge([run_of(result(), result("not-run", schedule="tree"), complete=False)])
    assert gate.exit_code() == 4 and not gate.complete and gate.gate == "OPEN"


def test_a_resumed_run_replaces_its_parent() -> None:
    """The child carries the parent's results; they do not count twice."""
    parent = run_of(result(), result("not-run", schedule="tree"), complete=False, run_id="p")
    child = run_of(result(), result(schedule="tree"), run_id="c", parent="p")
    gate = matrix.judge([parent, child])
    assert gate.complete and gate.rows[0].counts == {"match": 2}


def test_open_exits_0_unless_a_pass_is_required() -> None:
    """`--require pass` makes anything but PASS exit 1."""
    gate = matrix.judge([whole()])
    assert (gate.gate, gate.exit_code(), gate.exit_code(require_pass=True)) == ("OPEN", 0, 1)


def test_of_several_codes_the_void_one_wins() -> None:
    """5, 1, 4, 3, 2."""
    runs = [run_of(result("mismatch"), complete=False, voids=(Void("nonce"),))]
    assert matrix.judge(runs).exit_code(more=[3]) == 5


def test_nothing_run_is_open_with_a_sentence() -> None:
    """No device is no PASS."""
    gate = matrix.judge([])
    assert gate.gate == "OPEN" and gate.missing == ["no device was run"]
