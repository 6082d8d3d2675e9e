"""Workers that do what none of ours does: what they say is never trusted, and costs one run key at most."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from mock_gates import HURRIED, STRUCK, STRUCK_RUN, bad, gate_on, left_behind, use_folders

from harness import findings, lane, matrix, presets, process
from harness.cases import RunKey
from harness.errors import Incomplete
from harness.records import Run
from harness.verdicts import Result

CASE = ("case", STRUCK_RUN)

# A worker that does what none of ours does: at its run key each body stands in the place of `send`.
ROGUE = """
import os, re, sys, time
from harness import worker
from harness.channel import Channel
{functions}
BODIES = {bodies}

class Rogue(Channel):
    def send(self, event):
        run = str(event.get("run"))
        body = BODIES.get(run) or BODIES.get("")
        event = body(self, super().send, event["event"], run, event) if body else event
        if event:
            super().send(event)

worker.Channel = Rogue
worker.main()
"""


def rogue(bodies: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    """Have all workers of this test distort what they send of some run keys (of all, and of none: the empty one)."""
    code = (textwrap.indent(body, "    ") for body in bodies.values())
    functions = [f"def body_{n}(self, send, kind, run, event):\n{c}\n    return event\n" for n, c in enumerate(code)]
    names = ", ".join(f"{run!r}: body_{n}" for n, run in enumerate(bodies))
    script = ROGUE.format(functions="\n".join(functions), bodies=f"{{{names}}}")
    patch.setattr(lane, "python", lambda _, *arguments: [sys.executable, "-P", "-c", script, *arguments])


DUMPED = "if kind == 'dumped': "
NONSENSE = {
    "endless phases": "if kind == 'phase':\n    while True: send(event)",
    "started again and again": "if kind == 'started':\n    while True: send(event)",
    "a line of two megabytes": DUMPED + "event['more'] = 'x' * (2 << 20)",
    "a line without end": DUMPED + "\n    while True: os.write(self._fd, b'x' * 65536)",
    "no JSON": DUMPED + "os.write(self._fd, b'\\xff\\x00{nonsense}\\n')",
    "a JSON list": DUMPED + "os.write(self._fd, b'[1]\\n')",
    "an unknown event": DUMPED + "event['event'] = '\\x1b[2J'",
    "the run key of another case": DUMPED + "event['run'] = run.replace('seed=0', 'seed=1')",
    "the run key before it": DUMPED + "event['run'] = re.sub('schedule=[a-z_]+', 'schedule=forward', run)",
    "the run key after it": DUMPED + "event['run'] = re.sub('schedule=[a-z_]+', 'schedule=tree', run)",
    "no run key": DUMPED + "del event['run']",
    "done too early": DUMPED + "event = {'event': 'case-done'}",
    "a missing dump": DUMPED + "os.unlink(event['files'][0])",
    "one dump": DUMPED + "event['files'].pop()",
    "three dumps": DUMPED + "event['files'] *= 2",
    "dumps that are numbers": DUMPED + "event['files'] = [0, 1]",
    "a dump elsewhere": DUMPED + "event['files'][1] = '/dev/zero'",
    "a dump above": DUMPED + "event['files'][1] = os.path.dirname(event['files'][1]) + '/../x'",
    "a dump with a zero in its name": DUMPED + "event['files'][1] += chr(0)",
    "a folder as dump": DUMPED + "event['files'][1] = os.path.dirname(event['files'][1]) + '/..'",
    "a link as dump": DUMPED + "f = event['files'][1]; os.unlink(f); os.symlink('/dev/zero', f)",
    "a pipe as dump": DUMPED + "f = event['files'][1]; os.unlink(f); os.mkfifo(f)",
    "negative seconds": DUMPED + "event['seconds']['run'] = -1.0",
    "seconds that are no number": DUMPED + "event['seconds']['run'] = float('nan')",
    "seconds without end": DUMPED + "event['seconds']['run'] = 1e300",
    "no seconds": DUMPED + "event['seconds'] = {}",
    "receipts that are none": DUMPED + "event['receipts'] = 'abc'",
    "reports that are none": DUMPED + "event['sanitizer'] = [1]",
    "compiled, and not run": DUMPED + "event = {'event': 'compiled', 'run': run, 'seconds': {'compile': 1.0}}",
    "a verdict of its own": DUMPED + "event = {'event': 'fault', 'run': run, 'verdict': 'match'}",
}


@pytest.fixture
def gate_of_one(here: Path) -> Iterator[Path]:
    """A folder for a gate over one mock that matches. Nothing is left behind there."""
    yield here
    assert left_behind(here) == []


def run_of_one(folder: Path, patch: pytest.MonkeyPatch, *cases: str, **more: object) -> Run:
    """The record of a gate over one mock that matches, with one worker, so that it is known what comes before what."""
    (run,) = gate_on(["match"], folder, patch, cases=cases or (STRUCK,), **{"workers": 1, **more}).runs()
    return run


@pytest.fixture(scope="module")
def nonsense(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """One gate whose workers speak all the nonsense there is, each at a run key of its own; what came of it."""
    folder = tmp_path_factory.mktemp("nonsense")
    self_tests = presets.SELF_TEST.values()
    cases = [
        case.id
        for case in presets.cases("tiny")
        if case.kernel in ("gemm_i32", "linear_q8_0") and case.id not in {t.id for t in self_tests}
    ]
    runs = [str(RunKey(case, schedule, "base")) for schedule in ("reverse", "split_k") for case in cases]
    at = dict(zip(NONSENSE, runs, strict=False))
    assert len(at) == len(NONSENSE)
    with pytest.MonkeyPatch.context() as patch:
        use_folders(patch, folder)
        patch.setattr(findings, "LOSSES_ALLOWED", 1000)
        rogue({at[name]: body for name, body in NONSENSE.items()}, patch)
        (run,) = gate_on(["match"], folder, patch, cases=cases).runs()
    assert left_behind(folder) == [] and run.complete
    found = bad(run)
    assert set(found) == {("case", place) for place in at.values()}
    return {name: found["case", place] for name, place in at.items()}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_worker_that_speaks_nonsense_costs_one_run_key(name: str, nonsense: dict[str, Result]) -> None:
    """It is a crash there, at once, and another worker goes on."""
    result = nonsense[name]
    assert result.verdict == "crash" and "nonsense" in (result.detail or "")
    assert (result.detail or "").isprintable() and len(result.detail or "") < 1000


@pytest.mark.parametrize(
    "body",
    [
        "while kind == 'started': send({'event': 'phase', 'phase': 'run'})",
        "if kind == 'started': return",
    ],
    ids=["endless phases", "a result without a start"],
)
def test_nonsense_before_a_run_key_was_started_is_charged_to_the_worker_first(
    body: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new worker that does it again takes the run key with it."""
    rogue({STRUCK_RUN: body}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch)
    before = STRUCK_RUN.replace("reverse", "forward")
    assert set(bad(run)) == {("shutdown", before), CASE}


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "dumped [0, "), (1000, "dumped [1000, "), (1 << 40, "dumped [")],
    ids=["empty", "cut", "terabyte"],
)
def test_a_dump_of_the_wrong_length_is_a_launch_error(
    size: int, told: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is: no more is read than there should be."""
    rogue({STRUCK_RUN: DUMPED + f"os.truncate(event['files'][0], {size})"}, monkeypatch)
    (found,) = bad(run_of_one(gate_of_one, monkeypatch)).values()
    assert (found.run, found.verdict) == (STRUCK_RUN, "launch-error") and told in (found.detail or "")


@pytest.mark.parametrize("receipts", ["[[], []]", "[[event['receipts'][0][0]], ['00000000']]"], ids=["none", "wrong"])
def test_a_receipt_that_is_missing_or_wrong_makes_the_run_void(
    receipts: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old program may have run."""
    rogue({STRUCK_RUN: DUMPED + f"event['receipts'] = {receipts}"}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch)
    assert len(run.voids) == 1 and run.voids[0].reason.startswith(STRUCK_RUN) and not bad(run)


def test_long_words_of_a_driver_are_cut(gate_of_one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record holds 4000 characters of them."""
    fault = "event = {'event': 'fault', 'run': run, 'verdict': 'launch-error', 'detail': 'x' * 500_000}"
    rogue({STRUCK_RUN: DUMPED + fault}, monkeypatch)
    (found,) = bad(run_of_one(gate_of_one, monkeypatch)).values()
    assert (found.run, found.verdict, len(found.detail or "")) == (STRUCK_RUN, "launch-error", 4000)


@pytest.mark.parametrize(
    ("body", "detail"),
    [("send(event); os._exit(7)", "exit 7"), ("send(event)", "the worker spoke nonsense: unexpected event")],
    ids=["exit", "a result twice"],
)
def test_a_loss_between_two_run_keys_is_charged_to_the_worker(
    body: str, detail: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run key is lost: there was none under way. The device gives no evidence all the same."""
    rogue({STRUCK_RUN: DUMPED + body}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch)
    (found,) = bad(run).values()
    assert (found.role, found.run, found.verdict) == ("shutdown", STRUCK_RUN, "crash")
    assert (found.detail or "").startswith(detail)
    assert run.complete and matrix.judge([run]).rows[0].evidence


def test_a_hang_after_the_last_result_is_charged_to_the_worker(
    gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all run keys of a case are judged, a fault can spoil none."""
    remember = "self.last = run if kind == 'dumped' else getattr(self, 'last', '')\n"
    rogue({"": remember + "if kind == 'case-done' and 'k=23' in self.last: time.sleep(3600)"}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch, budgets=HURRIED)
    (found,) = bad(run).values()
    assert (found.role, found.verdict, found.phase) == ("shutdown", "timeout", "run")
    assert found.run == run.header.planned[-1].run and run.complete


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("if kind == 'opened': event['report'] = {**__import__('msgspec').to_builtins(event['report']), 'name': 'other'}",
         "opened another device"),
        ("if kind == 'opened': event['report'] = 3", "nonsense"),
        ("while kind == 'opened': send({'event': 'phase', 'phase': 'probe'})", "nonsense"),
        ("if kind == 'opened': os._exit(3)", "exit 3"),
    ],
    ids=["another device", "no report", "endless phases", "exit"],
)  # fmt: skip
def test_a_worker_that_does_not_open_the_device_is_lost_in_probe(
    body: str, detail: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times, then the device is set aside."""
    rogue({"": body}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch)
    lost = [r for r in run.results if r.verdict != "not-run"]
    assert [(r.verdict, r.phase) for r in lost] == [("crash", "probe")] * 3
    assert all(detail in (r.detail or "") for r in lost)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("while kind == 'closed': send({'event': 'phase', 'phase': 'shutdown'})", "crash"),
        ("if kind == 'closed':\n    send(event); os.abort()", "crash"),
        ("if kind == 'closed':\n    send(event); time.sleep(3600)", "timeout"),
    ],
    ids=["endless phases", "abort", "hang"],
)
def test_what_goes_wrong_in_the_end_is_a_fault_of_the_end(
    body: str, verdict: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `closed` too."""
    rogue({"": body}, monkeypatch)
    (found,) = bad(run_of_one(gate_of_one, monkeypatch, budgets=HURRIED)).values()
    assert (found.role, found.verdict, found.phase) == ("shutdown", verdict, "shutdown")


def test_a_full_temporary_folder_is_no_fault_of_the_device(gate_of_one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with the mend in one line, and is gone on with later."""
    rogue(
        {STRUCK_RUN: DUMPED + "event = {'event': 'host-fault', 'detail': 'No space left on device: /tmp/x'}"},
        monkeypatch,
    )
    with pytest.raises(Incomplete, match=r"mock:match:0: No space left .*TMPDIR .* --resume"):
        run_of_one(gate_of_one, monkeypatch)
    monkeypatch.setattr(lane, "python", process.python)
    run = run_of_one(gate_of_one, monkeypatch, resume="last")
    assert run.header.parent and run.complete and not bad(run)
