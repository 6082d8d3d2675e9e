"""The supervisor's promises on mock devices: each fault has its verdict where it strikes, and touches nothing else."""

import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import mock_gates
import numpy as np
import psutil
import pytest
from mock_gates import LINEAR, SELF_TEST_RUN, STRUCK, STRUCK_RUN, WORKERS, bad, mock_device, options, own_lock

from harness import devices, findings, gate, lane, locks, matrix, presets, process, store
from harness.cases import RunKey
from harness.errors import Incomplete
from harness.gate import Outcome
from harness.records import Run
from harness.verdicts import Result

CASE, SELF_TEST = ("case", STRUCK_RUN), ("self-test", SELF_TEST_RUN)

# Behaviour: run keys that it strikes, their verdict and phase.
FAULTS = {
    "mismatch": ([CASE], "mismatch", None),
    "unwritten": ([CASE], "unwritten", None),
    "write-past-end": ([CASE], "mismatch", None),
    "nondeterministic": ([CASE], "nondeterministic", None),
    "sanitizer": ([CASE], "sanitizer", None),
    "crash": ([CASE], "crash", "run"),
    "memory-eater": ([CASE], "crash", "run"),
    "hang-run": ([CASE], "timeout", "run"),
    "hang-run+signal-handlers": ([CASE], "timeout", "run"),
    "device-lost": ([CASE], "device-lost", "run"),
    "launch-error": ([CASE], "launch-error", "run"),
    "compile-error": ([SELF_TEST, CASE], "compile-error", "compile"),
    "unsupported": ([SELF_TEST, CASE], "unsupported", "compile"),
    "hang-compile": ([SELF_TEST, CASE], "timeout", "compile"),
    # These strike the run, or nothing at all.
    "match": ([], "", None),
    "noisy": ([], "", None),
    "closes-stdout": ([], "", None),
    "signal-handlers": ([], "", None),
    "zombies": ([], "", None),
    "lying-name": ([], "", None),
    "wrong-nonce": ([], "", None),
    "crash/all": ([], "", None),
    "known-bad-missed": ([], "", None),
    "hang-shutdown": ([], "", None),
}
ODD = ("crash/all", "known-bad-missed", "hang-shutdown")
RED = ("mismatch", "unwritten", "write-past-end", "nondeterministic")
MEMORY = 600 << 20


def use_folders(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Everything that a gate of this process writes goes into `folder`; what the reference says is shared by all tests."""
    for name, place in mock_gates.folders(folder).items():
        patch.setenv(name, place)
    patch.setenv("SAMEBITS_CACHE_DIR", str(folder.parent / "cache"))
    patch.setattr("tempfile.tempdir", None)
    patch.setattr(gate, "device_lock", own_lock(folder))


def run_on(items: list[str], folder: Path, patch: pytest.MonkeyPatch, **more: object) -> Outcome:
    """A gate over `items`."""
    patch.setattr(devices, "discover", lambda: [mock_device(item) for item in items])
    return gate.execute(options(folder, **more), lambda _: None)


def left_behind(folder: Path) -> list[str]:
    """Living processes whose temporary folder is `folder`'s, and what lies there."""
    found = [str(path) for path in (folder / "tmp").iterdir()]
    for process_ in psutil.process_iter():
        try:
            if process_.environ().get("TMPDIR") == str(folder / "tmp") and process_.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process_.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Run]]:
    """One gate over every behaviour; the folder, and the records by behaviour."""
    folder = tmp_path_factory.mktemp("all")
    items = list(FAULTS)
    with pytest.MonkeyPatch.context() as patch:
        use_folders(patch, folder)
        runs = run_on(items, folder, patch, memory_limit=MEMORY).runs()
    ids = {mock_device(item).id: item for item in items}
    return folder, {ids[run.header.device.id]: run for run in runs}


@pytest.mark.parametrize("item", [i for i in FAULTS if i not in ODD])
def test_each_behaviour_has_its_verdict_where_it_strikes_and_all_else_matches(
    item: str, ran: tuple[Path, dict[str, Run]]
) -> None:
    """With its phase and the command that repeats it; known-bad twins mismatch; nothing planned is left out."""
    run = ran[1][item]
    where, verdict, phase = FAULTS[item]
    assert {key: (r.verdict, r.phase) for key, r in bad(run).items()} == {key: (verdict, phase) for key in where}
    assert all(f"--case '{r.run}'" in (r.repeat or "") and run.header.device.id in r.repeat for r in bad(run).values())
    assert run.complete and len(run.results) == len(run.header.planned)
    assert bool(run.voids) == (item == "wrong-nonce")


def test_details_say_what_happened(ran: tuple[Path, dict[str, Run]]) -> None:
    """The signal, the limit, the words of the compiler, the feature, the guard words."""
    said = {item: next(iter(bad(run).values()), None) for item, run in ran[1].items()}
    details = {item: r.detail or "" for item, r in said.items() if r}
    assert details["crash"].startswith("killed by SIGSEGV")
    assert "over the limit of 0.59 GiB" in details["memory-eater"]
    assert "for 1.5 s" in details["hang-run"] and "for 1.5 s" in details["hang-compile"]
    assert details["compile-error"].startswith("kernel:1:1: error: planted")
    assert said["unsupported"] and (said["unsupported"].feature, said["unsupported"].needed) == ("mock-feature", "yes")
    assert details["write-past-end"] == "wrote past the end: 2 guard words"
    assert "planted report" in details["sanitizer"]


def test_a_mismatch_is_shown_with_index_window_operands_and_count(ran: tuple[Path, dict[str, Run]]) -> None:
    """One bit of one word: the middle one."""
    found = ran[1]["mismatch"].results
    difference = next(r.difference for r in found if r.verdict == "mismatch" and r.role == "case")
    assert difference and difference.count == 1 and difference.index == [8, 9]
    at = 8 * 19 + 9 - difference.window_start
    assert difference.expected[at] ^ difference.actual[at] == 1 << 7
    assert [len(v) for v in difference.operands.values()] == [23, 23]
    total = sum(a * b for a, b in zip(difference.operands["a"], difference.operands["b"], strict=True))
    assert (total - difference.expected[at]) % 2**32 == 0


@pytest.mark.parametrize("item", RED)
def test_the_failure_folder_holds_both_sides_and_what_was_compiled(item: str, ran: tuple[Path, dict[str, Run]]) -> None:
    """Expected tensor, both dumps with their guards, the artefacts; the record names the folder."""
    folder, runs = ran
    (kept,) = bad(runs[item])[CASE].artefacts
    place = folder / "out" / "failures" / kept
    names = {"expected.bin", "actual-1.bin", "actual-2.bin", "kernel.txt"}
    assert {p.name for p in place.iterdir()} == names
    right, first, second = (np.fromfile(place / f"{n}.bin", "<u4") for n in ("expected", "actual-1", "actual-2"))
    assert len(right) == 17 * 19 and len(first) == len(second) > len(right)
    differing = [int(np.count_nonzero(dump[: len(right)] != right)) for dump in (first, second)]
    wanted = {"mismatch": [1, 1], "unwritten": [1, 1], "write-past-end": [0, 0], "nondeterministic": [0, 1]}
    assert differing == wanted[item]
    assert (place / "kernel.txt").read_text() == "mock gemm_i32\n"


@pytest.mark.parametrize("item", ["wrong-nonce", "known-bad-missed"])
def test_a_run_that_proves_nothing_is_void_and_no_other_is(item: str, ran: tuple[Path, dict[str, Run]]) -> None:
    """A nonce that does not come back; a twin that leaves out a term and yet matches. Exit code 5."""
    runs = ran[1]
    assert runs[item].voids and not any(v.everywhere for v in runs[item].voids)
    assert {key for key, r in bad(runs[item]).items()} <= {
        (r.role, r.run) for r in runs[item].results if r.role == "known-bad"
    }
    judged = matrix.judge([runs[item], runs["match"]])
    assert (judged.gate, judged.exit_code()) == ("VOID", 5)
    assert [bool(row.void) for row in judged.rows] == [True, False]


def test_after_three_losses_the_device_is_set_aside_and_the_rest_is_not_run(ran: tuple[Path, dict[str, Run]]) -> None:
    """Three run keys have the crash, and what another worker had under way then; each of the others says why it was not run."""
    run = ran[1]["crash/all"]
    lost = [r for r in run.results if r.verdict == "crash"]
    assert 3 <= len(lost) < 3 + WORKERS and {r.verdict for r in run.results} == {"crash", "not-run"} | {
        r.verdict for r in run.results if r.role == "known-bad"
    }
    rest = [r for r in run.results if r.verdict == "not-run"]
    twins = [r for r in run.results if r.role == "known-bad" and r.verdict == "mismatch"]
    assert len(rest) + len(lost) + len(twins) == len(run.header.planned) and not run.complete
    assert {r.detail for r in rest} == {"device set aside after 3 losses, the last: crash in run"}
    assert matrix.judge([run]).exit_code() == 1


def test_a_hang_in_shutdown_spoils_no_result_but_the_evidence(ran: tuple[Path, dict[str, Run]]) -> None:
    """A result in a role of its own names the run key that came before."""
    run = ran[1]["hang-shutdown"]
    assert len(bad(run)) == WORKERS
    for (role, at), result in bad(run).items():
        assert (role, result.verdict, result.phase, result.elements) == ("shutdown", "timeout", "shutdown", 0)
        assert at in {p.run for p in run.header.planned if p.role == "case"} and result.digest is None
    assert matrix.judge([run]).rows[0].evidence


def test_no_process_and_no_temporary_file_is_left(ran: tuple[Path, dict[str, Run]]) -> None:
    """Not after crashes, hangs, handlers that ignore TERM, sleeping grandchildren, or eaten memory."""
    assert left_behind(ran[0]) == []


def test_drivers_without_a_device_are_rows_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in discovery and one that has none cost nothing; a liar is run as the software that it is."""
    use_folders(monkeypatch, tmp_path)
    found: list[devices.Device] = []
    for mocks, budget in (("hang-probe", 2), ("no-device,lying-name,match", 60)):
        monkeypatch.setenv("SAMEBITS_MOCK", mocks)
        found += devices.discover(["mock"], budget)
    monkeypatch.setattr(devices, "discover", lambda: found)
    outcome = gate.execute(options(tmp_path, [STRUCK_RUN]), lambda _: None)
    rows = {d.label: (d.status, d.kind) for d in outcome.devices}
    assert rows == {
        "hang-probe": ("timeout", "unknown"),
        "no-device": ("no-device", "unknown"),
        "lying-name": ("ok", "software"),
        "match": ("ok", "software"),
    }
    assert [run.header.device.label for run in outcome.runs()] == ["lying-name", "match"]
    assert all(run.complete and not bad(run) for run in outcome.runs()) and left_behind(tmp_path) == []


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
def gate_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a gate over one mock that matches. Nothing is left behind there."""
    use_folders(monkeypatch, tmp_path)
    yield tmp_path
    assert left_behind(tmp_path) == []


def run_of_one(folder: Path, patch: pytest.MonkeyPatch, *cases: str, **more: object) -> Run:
    """The record of a gate over one mock that matches, with one worker, so that it is known what comes before what."""
    (run,) = run_on(["match"], folder, patch, cases=cases or (STRUCK,), **{"workers": 1, **more}).runs()
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
        (run,) = run_on(["match"], folder, patch, cases=cases).runs()
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
    assert list(bad(run)) == [("shutdown", before), CASE]


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
    rogue({"": remember + "if kind == 'case-done' and 'k=23' in self.last: time.sleep(60)"}, monkeypatch)
    run = run_of_one(gate_of_one, monkeypatch)
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
        ("if kind == 'closed':\n    send(event); time.sleep(60)", "timeout"),
    ],
    ids=["endless phases", "abort", "hang"],
)
def test_what_goes_wrong_in_the_end_is_a_fault_of_the_end(
    body: str, verdict: str, gate_of_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `closed` too."""
    rogue({"": body}, monkeypatch)
    (found,) = bad(run_of_one(gate_of_one, monkeypatch)).values()
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


def test_artefacts_are_of_the_kernel_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel under the same schedule and variant was compiled by the same worker."""
    use_folders(monkeypatch, tmp_path)
    (run,) = run_on(["mismatch"], tmp_path, monkeypatch, cases=(LINEAR, STRUCK)).runs()
    (kept,) = bad(run)[CASE].artefacts
    assert (tmp_path / "out" / "failures" / kept / "kernel.txt").read_text() == "mock gemm_i32\n"


def test_a_second_samebits_waits_and_says_for_whom(gate_of_one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it runs as if nothing had been."""
    monkeypatch.setattr(devices, "discover", lambda: [mock_device("match")])
    said: list[str] = []
    held, done = threading.Event(), threading.Event()

    def first() -> None:
        with locks.device_lock(lambda _: None, gate_of_one / "lock"):
            held.set()
            done.wait(20)

    holder = threading.Thread(target=first)
    holder.start()
    held.wait(20)

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("waiting"):
            done.set()

    outcome = gate.execute(options(gate_of_one, [STRUCK_RUN]), say)
    holder.join()
    (waiting,) = [text for text in said if text.startswith("waiting")]
    assert f"process {os.getpid()}" in waiting and not bad(store.load(outcome.records[0]))
