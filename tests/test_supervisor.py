"""The supervisor's promises on mock devices: each fault has its verdict where it strikes, and touches nothing else."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from mock_gates import (
    HURRIED,
    LINEAR,
    SELF_TEST_RUN,
    STRUCK,
    STRUCK_RUN,
    WORKERS,
    bad,
    gate_on,
    left_behind,
    mock_device,
    options,
    use_folders,
)
from patience import MINUTES

from harness import devices, gate, locks, matrix, store
from harness.records import Run

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
    "compile-only": ([], "", None),
    "compile-only+compile-error": ([], "", None),
}
ODD = ("crash/all", "known-bad-missed", "hang-shutdown", "compile-only", "compile-only+compile-error")
RED = ("mismatch", "unwritten", "write-past-end", "nondeterministic")
MEMORY = 300 << 20


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Run]]:
    """Every behaviour; the folder, and the records by behaviour. Those that hang wait side by side in two workers."""
    folder = tmp_path_factory.mktemp("all")
    hang = [item for item in FAULTS if "hang" in item]
    runs: list[Run] = []
    with pytest.MonkeyPatch.context() as patch:
        use_folders(patch, folder)
        for items, workers in ((hang, WORKERS), ([item for item in FAULTS if item not in hang], 1)):
            runs += gate_on(items, folder, patch, memory_limit=MEMORY, workers=workers).runs()
    ids = {mock_device(item).id: item for item in FAULTS}
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
    judged = matrix.judge([run])
    red = verdict in (*RED, "sanitizer")
    spoiled = not red and verdict not in ("", "unsupported")
    assert judged.gate == ("VOID" if run.voids else "FAIL" if red else "OPEN")
    assert judged.exit_code() == (5 if run.voids else 1 if red or spoiled else 0)


def test_details_say_what_happened(ran: tuple[Path, dict[str, Run]]) -> None:
    """The signal, the limit, the words of the compiler, the feature, the guard words."""
    said = {item: next(iter(bad(run).values()), None) for item, run in ran[1].items()}
    details = {item: r.detail or "" for item, r in said.items() if r}
    assert details["crash"].startswith("killed by SIGSEGV")
    assert "over the limit of 0.29 GiB" in details["memory-eater"]
    assert all(f"for {HURRIED.run:g} s" in details[item] for item in ("hang-run", "hang-compile"))
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
    """Three run keys have the crash; each of the others says why it was not run."""
    run = ran[1]["crash/all"]
    lost = [r for r in run.results if r.verdict == "crash"]
    assert len(lost) == 3 and {r.verdict for r in run.results} == {"crash", "not-run"} | {
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


def test_a_compile_only_device_is_compiled_and_neither_counts_nor_is_missed(ran: tuple[Path, dict[str, Run]]) -> None:
    """Without a comparison, and without known-bad twins; a kernel that it refuses is a failure as on any device."""
    plain, refusing, right = (ran[1][item] for item in ("compile-only", "compile-only+compile-error", "match"))
    assert {(r.role, r.verdict) for r in plain.results} == {("case", "compiled"), ("self-test", "compiled")}
    assert all(r.digest is None and r.elements == 0 for r in plain.results)
    assert plain.complete and not plain.voids
    assert {r.verdict for r in refusing.results if r.role == "case"} == {"compiled", "compile-error"}
    judged = matrix.judge([plain, refusing, right])
    assert not any("mock:compile-only:0" in sentence for sentence in judged.missing)
    assert any("mock:compile-only+compile-error:0" in sentence for sentence in judged.missing)
    assert judged.exit_code() == 1
    assert matrix.judge([plain, right]).exit_code() == 0


def test_no_process_and_no_temporary_file_is_left(ran: tuple[Path, dict[str, Run]]) -> None:
    """Not after crashes, hangs, handlers that ignore TERM, sleeping grandchildren, or eaten memory."""
    assert left_behind(ran[0]) == []


def test_drivers_without_a_device_are_rows_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in discovery and one that has none cost nothing; a liar is run as the software that it is."""
    use_folders(monkeypatch, tmp_path)
    found: list[devices.Device] = []
    for mocks, budget in (("hang-probe", 2), ("no-device,lying-name,match", MINUTES)):
        monkeypatch.setenv("SAMEBITS_MOCK", mocks)
        found += devices.discover(["mock"], budget)
    monkeypatch.setattr(devices, "discover", lambda **_: found)
    outcome = gate.execute(options(tmp_path, [STRUCK_RUN]), lambda _: None)
    rows = {d.label: (d.status, d.phase, d.kind) for d in outcome.devices}
    assert rows == {
        "hang-probe": ("timeout", "probe", "unknown"),
        "no-device": ("no-device", "probe", "unknown"),
        "lying-name": ("ok", "", "software"),
        "match": ("ok", "", "software"),
    }
    assert [run.header.device.label for run in outcome.runs()] == ["lying-name", "match"]
    assert all(run.complete and not bad(run) for run in outcome.runs()) and left_behind(tmp_path) == []


def test_artefacts_are_of_the_kernel_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel under the same schedule and variant was compiled by the same worker."""
    use_folders(monkeypatch, tmp_path)
    (run,) = gate_on(["mismatch"], tmp_path, monkeypatch, cases=(LINEAR, STRUCK)).runs()
    (kept,) = bad(run)[CASE].artefacts
    assert (tmp_path / "out" / "failures" / kept / "kernel.txt").read_text() == "mock gemm_i32\n"


def test_a_second_samebits_waits_and_says_for_whom(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it runs as if nothing had been."""
    monkeypatch.setattr(devices, "discover", lambda **_: [mock_device("match")])
    said: list[str] = []
    held, done = threading.Event(), threading.Event()

    def first() -> None:
        with locks.device_lock(lambda _: None, here / "lock"):
            held.set()
            done.wait(MINUTES)

    holder = threading.Thread(target=first)
    holder.start()
    held.wait(MINUTES)

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("waiting"):
            done.set()

    outcome = gate.execute(options(here, [STRUCK_RUN]), say)
    holder.join()
    (waiting,) = [text for text in said if text.startswith("waiting")]
    assert f"process {os.getpid()}" in waiting and not bad(store.load(outcome.records[0]))
