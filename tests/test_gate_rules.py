"""The gate over records: every rule of docs/design.md, on runs made by hand."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import matrix, presets
from harness.cases import parse_case
from harness.devices import Device
from harness.records import Footer, Header, Planned, Run, System, Void
from harness.verdicts import TABLE, Result

CASE = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0"
RIGHT = "a" * 64


def result(verdict: str = "match", role: str = "case", schedule: str = "forward", **more: Any) -> Result:
    """A judged run key."""
    given = {"digest": RIGHT, "expected": RIGHT, "second": RIGHT, "elements": 2 * 10**9} | more
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
    return run_of(result(), *sound(), **more)


def sound() -> list[Result]:
    """Self-test and known-bad twin as they should be, and the control, diverged."""
    checks = [result(role="self-test"), result("mismatch", role="known-bad", digest="c" * 64)]
    return [*checks, control("forward", "b"), control("reverse", "d")]


@pytest.fixture(autouse=True)
def _one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every preset is CASE alone, in version 1."""
    monkeypatch.setattr(presets, "cases", lambda _: [parse_case(CASE)])
    monkeypatch.setattr(presets, "VERSION", dict.fromkeys(presets.VERSION, "1"))


def control(schedule: str, digit: str) -> Result:
    """The f32 control under one schedule."""
    run = f"gemm_f32;m=1;n=1;k=1;dist=full;seed=0;schedule={schedule};variant=base"
    return Result(
        run=run, case=run.rpartition(";schedule=")[0], schedule=schedule, variant="base", verdict="informational",
        case_version="v", kernel_hash="h", digest=digit * 64,
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
    few = run_of(result(elements=999_999_999), *sound(), device="vulkan:two:0", vendor="AMD")
    assert any("10^9" in m and "AMD" in m for m in matrix.judge([whole(), few]).missing)


def test_a_billion_elements_are_missing_too_where_no_vendor_or_one_is_there() -> None:
    """What PASS wants is said whole: not only that there is no hardware."""
    there = {"software": "hardware of 2 vendors, each", "hardware": "a 2nd vendor"}
    for kind, on in there.items():
        gate = matrix.judge([run_of(result(elements=10**9), *sound(), kind=kind)])
        assert f"10^9 compared elements on {on}: there are none" in gate.missing


def test_elements_of_repeated_records_add_up() -> None:
    """Two records of half a billion each make a billion."""
    halves = [
        run_of(result(elements=500_000_000), *sound(), device="vulkan:two:0", vendor="AMD", run_id=name)
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
    bad = run_of(result(), result(word, schedule="tree"), *sound(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), bad])
    assert gate.gate == "OPEN" and gate.exit_code() == 1
    assert any("vulkan:two:0" in m and word in m for m in gate.missing)


@pytest.mark.parametrize("word", ["unsupported", "informational"])
def test_what_cannot_be_run_has_no_effect(word: str) -> None:
    """It is grey: neither evidence against nor for."""
    run = run_of(result(), result(word, schedule="tree"), *sound(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), run])
    assert others(gate) == [] and gate.exit_code() == 0


def test_a_failed_self_test_is_a_mismatch_of_its_own_and_spoils_the_evidence() -> None:
    """The device's other results stay in the counts."""
    run = run_of(result(), result("mismatch", role="self-test"), *sound(), device="vulkan:two:0", vendor="AMD")
    gate = matrix.judge([whole(), run])
    assert gate.gate == "FAIL" and gate.rows[1].counts["match"] == 1 and gate.rows[1].evidence


def test_a_known_bad_twin_that_mismatches_is_as_it_should_be() -> None:
    """It is no failure and spoils nothing."""
    run = run_of(
        result(), result("mismatch", role="known-bad", schedule="tree"), *sound(), device="vulkan:two:0", vendor="AMD"
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


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([result(second=None)], "second implementation"),
        ([result()], "known-answer self-test of gemm_i32 on vulkan:two:0"),
        ([result()], "known-bad twin of gemm_i32 on vulkan:two:0"),
        ([result(), result("unsupported", role="self-test")], "known-answer self-test"),
    ],
)
def test_what_a_match_rests_on_must_be_in_the_record(results: list[Result], sentence: str) -> None:
    """A record without its checks proves nothing."""
    gate = matrix.judge([whole(), run_of(*results, device="vulkan:two:0", vendor="AMD")])
    assert gate.gate == "OPEN" and any(sentence in m for m in gate.missing), gate.missing


def test_a_case_that_is_unsupported_in_every_form_is_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count, so it cannot count for PASS."""
    other = CASE.replace("seed=0", "seed=1")
    monkeypatch.setattr(presets, "cases", lambda _: [parse_case(CASE), parse_case(other)])
    missing = matrix.judge(two_vendors()).missing
    assert [m for m in missing if "a match on AMD in 1 cases" in m and other in m]


@pytest.mark.parametrize("vendor", ["Nvidia Corp", "NVIDIA Corporation", "Mesa", "Google", "Somebody", ""])
def test_two_spellings_are_not_two_vendors(vendor: str) -> None:
    """Only makers of hardware that are known count, each once."""
    assert any("hardware of 2 vendors" in m for m in matrix.judge(two_vendors(vendor=vendor)).missing)


@pytest.mark.parametrize(
    "change", [{"second": "b" * 64}, {"expected": "b" * 64, "digest": "b" * 64, "second": "b" * 64}]
)
def test_two_answers_to_what_is_right_void_every_run(change: dict[str, str]) -> None:
    """Reference and second of one record, or the references of two."""
    gate = matrix.judge([whole(), run_of(result(**change), device="vulkan:two:0", vendor="AMD")])
    assert gate.gate == "VOID" and all(row.void for row in gate.rows) and gate.exit_code() == 5


def test_resuming_hides_no_fault() -> None:
    """A child that does not repeat its parent's mismatch leaves it standing."""
    parent = run_of(result("mismatch"), complete=False, run_id="p")
    for child in (whole(run_id="c", parent="p"), run_of(result(schedule="tree"), run_id="c", parent="p")):
        gate = matrix.judge([parent, child])
        assert gate.gate == "FAIL" and [f.result.verdict for f in gate.failures] == ["mismatch"]


def test_a_fault_that_the_child_repeats_is_told_once_and_of_a_mended_kernel_never() -> None:
    """What was carried over is one fault; another kernel is another program."""
    parent = run_of(result("mismatch"), complete=False, run_id="p")
    again = matrix.judge([parent, run_of(result("mismatch"), run_id="c", parent="p")])
    assert len(again.failures) == 1
    mended = run_of(msgspec.structs.replace(result(), kernel_hash="i"), run_id="c", parent="p")
    assert matrix.judge([parent, mended]).failures == []


def test_a_control_without_power_is_said_and_never_counts() -> None:
    """Digests of two devices or two cases are not two schedules."""
    runs = [run_of(result(), *sound()[:2], control("forward", d), device=f"vulkan:{d}:0") for d in "be"]
    assert matrix.control(runs) == "no power" and matrix.control([whole()]) == "diverged (2 digests)"
    assert any("no power" in m for m in matrix.judge(runs).missing)


def test_two_digests_of_one_schedule_are_no_power() -> None:
    """As where the kernel changed between two records of one device: that shows no order at work."""
    runs = [run_of(result(), *sound()[:2], control("tree", digest)) for digest in "be"]
    assert matrix.control(runs) == "no power"
    assert matrix.control([*runs, run_of(control("forward", "b"))]) == "diverged (2 digests)"


def test_all_conditions_together_are_a_pass() -> None:
    """The rules can be met."""
    gate = matrix.judge(two_vendors())
    assert (gate.gate, gate.missing, gate.exit_code(require_pass=True)) == ("PASS", [], 0)
