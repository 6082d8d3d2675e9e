"""Records: what is written can be read, what was interrupted is not lost, and no path, user or host gets into it."""

import errno
import gzip
import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_maker import CASE, DEVICE, RUNS, header, lines, redactor, refused, result, sealed

from harness import journal, records, store
from harness.errors import Incomplete, UsageError
from harness.journal import Journal, carry_over
from harness.records import Planned

Lines = list[Any]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_STATE_DIR", str(tmp_path / "state"))


def test_a_sealed_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """Header, results in their order, footer; the name carries the time and the file's SHA-256."""
    path = sealed(tmp_path)
    run = store.load(path)
    assert [r.run for r in run.results] == RUNS and run.complete and run.under_way == ()
    assert run.footer is not None and run.footer.counts == {"match": 3}
    assert path.parent.name == "vulkan-lvp-nvidia-test" and path.name.startswith(run.header.stamp)
    assert run.sha256 is not None and run.sha256 in path.name


def test_a_sealed_record_is_read_only_and_its_journal_is_gone(tmp_path: Path) -> None:
    """Nothing else is left in either folder."""
    path = sealed(tmp_path / "out")
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert journal.unfinished() == [] and list(path.parent.iterdir()) == [path]


def test_the_same_lines_make_the_same_file() -> None:
    """No name and no time goes into the compressed form."""
    assert journal._compress(b"x" * 1000) == journal._compress(b"x" * 1000)
    assert journal._compress(b"x")[4:8] == bytes(4)


def test_the_schema_that_is_checked_in_is_that_of_the_structs() -> None:
    """`python scripts/record_schema.py` writes it."""
    assert Path(records.__file__).with_name("record.schema.json").read_bytes() == records.json_schema()


def test_an_unfinished_journal_says_what_was_under_way_and_what_was_not_run() -> None:
    """A killed run loses the case under way, no more."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
        kept.started(RUNS[1])
    run = store.load(kept.path)
    assert [r.verdict for r in run.results] == ["match", "not-run", "not-run"]
    assert run.under_way == (RUNS[1],) and not run.complete and journal.unfinished() == [kept.path]
    assert run.results[1].detail == "interrupted while it was under way"


def test_results_read_in_the_order_of_the_plan_and_several_run_keys_may_be_under_way(tmp_path: Path) -> None:
    """Which of several workers was faster is nobody's concern."""
    one = store.load_record(sealed(tmp_path, results=[result(run) for run in reversed(RUNS)]))
    assert [r.run for r in one.results] == RUNS and one.complete
    with Journal(header(), redactor()) as kept:
        for run in reversed(RUNS):
            kept.started(run)
        kept.result(result(RUNS[1]))
    cut = store.load(kept.path)
    assert cut.under_way == (RUNS[2], RUNS[0]) and [r.verdict for r in cut.results] == ["not-run", "match", "not-run"]


@pytest.mark.parametrize(("kind", "synced"), [("hardware", 2), ("software", 1)])
def test_a_start_is_on_the_disk_first_where_it_may_take_the_machine_down(
    kind: Any, synced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result always is."""
    with Journal(header(msgspec.structs.replace(DEVICE, kind=kind)), redactor()) as kept:
        calls: list[int] = []
        monkeypatch.setattr(os, "fsync", calls.append)
        kept.started(RUNS[0])
        kept.result(result(RUNS[0]))
        monkeypatch.undo()
    assert len(calls) == synced


def test_a_torn_last_line_is_forgiven_at_every_length() -> None:
    """Whatever part of the last line reached the disk, what stands before it counts."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
    whole = kept.path.read_bytes()
    kept.path.write_bytes(whole + whole.splitlines(keepends=True)[-1])
    first = whole.index(b"\n") + 1
    for size in range(first, len(whole), 37):
        kept.path.write_bytes(whole[:size])
        assert {r.verdict for r in store.load(kept.path).results} == {"not-run"}
    kept.path.write_bytes(whole[: first - 1])
    assert "nothing was run" in refused(kept.path)


def test_a_damaged_line_that_is_not_the_last_is_refused() -> None:
    """Only a tear is forgiven."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
        kept.result(result(RUNS[1]))
    content = kept.path.read_bytes().splitlines(keepends=True)
    kept.path.write_bytes(content[0] + content[1][:40] + b"\n" + content[2])
    assert "line 2" in refused(kept.path)


def test_a_resumed_run_carries_over_what_is_finished() -> None:
    """Faults are finished too; what was under way is done again."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
        kept.result(result(RUNS[1], "crash", digest=None))
        kept.started(RUNS[2])
    parent = store.load(kept.path)
    child = header(parent=parent.header.run_id)
    assert {key: r.verdict for key, r in carry_over(parent, child).items()} == {
        ("case", RUNS[0]): "match",
        ("case", RUNS[1]): "crash",
    }


def test_what_has_another_kernel_or_case_version_is_not_carried_over() -> None:
    """The result would be of another program, or of other inputs."""
    with Journal(header(), redactor()) as kept:
        for run in RUNS:
            kept.result(result(run))
    parent = store.load(kept.path)
    changed = [
        Planned(RUNS[0], "w" * 64, "h" * 64),
        Planned(RUNS[1], "v" * 64, "i" * 64),
        Planned(RUNS[2], "v" * 64, "h" * 64),
    ]
    assert list(carry_over(parent, header(planned=changed))) == [("case", RUNS[2])]


def test_a_void_run_carries_nothing_over() -> None:
    """Its results count for nothing."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
        kept.void("the nonce did not come back")
    assert carry_over(store.load(kept.path), header()) == {}


@pytest.mark.parametrize("change", [{"device": msgspec.structs.replace(DEVICE, driver="2.0")}, {"preset": "quick"}])
def test_a_run_on_another_driver_or_preset_is_not_resumed(change: dict[str, Any]) -> None:
    """The error says what differs."""
    with Journal(header(), redactor()) as kept:
        pass
    with pytest.raises(UsageError, match="--resume"):
        carry_over(store.load(kept.path), header(**change))


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, Incomplete), (errno.EROFS, UsageError), (errno.EACCES, UsageError)]
)
def test_a_full_or_read_only_folder_keeps_the_journal_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """Nothing is lost, and no half record is left."""
    with Journal(header(), redactor()) as kept:
        kept.footer()
        real = os.write

        def full(descriptor: int, data: Any) -> int:
            if len(data) > 10 and os.fstat(descriptor).st_size == 0:
                raise OSError(number, os.strerror(number))
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(error, match="the journal is kept") as raised:
            kept.seal(tmp_path / "out")
    assert str(kept.path) in str(raised.value) and store.load(kept.path).footer is not None
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_an_output_folder_that_is_a_file_is_a_usage_error_before_the_run(tmp_path: Path) -> None:
    """Better before it than after it."""
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="--out"):
        journal.check_out(tmp_path / "out")


def test_a_full_disk_under_the_journal_is_incomplete_and_the_file_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back."""
    with Journal(header(), redactor()) as kept:
        kept.result(result(RUNS[0]))
        real, calls = os.write, []

        def full(descriptor: int, data: Any) -> int:
            calls.append(data)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data[:10])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(Incomplete, match="--resume"):
            kept.result(result(RUNS[1]))
    assert kept.path.read_bytes().endswith(b"\n") and len(store.load(kept.path).results) == 3


def test_no_path_user_host_or_unit_gets_into_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are published. Units keep one name in a store, so that runs of one unit can be told."""
    monkeypatch.setenv("VK_DRIVER_FILES", "/home/alice/icd/lvp.json:/opt/x/radv.json")
    monkeypatch.setenv("NVIDIA_API_KEY", "hunter2")
    device = msgspec.structs.replace(
        DEVICE,
        raw={
            "deviceUUID": "0a1b2c3d11112222", "serial": 8153007942651, "nested": [{"pciBusId": "17"}],
            "text": f"unit at {DEVICE.pci}", "bytes": b"\0\1", "huge": 2**70, "file": "/home/alice/lib/libvulkan.so",
        },
        environment={"HOME": "/home/alice"}, origin="/home/alice/icd/lvp.json",
    )  # fmt: skip
    argv = [
        "/home/alice/bin/samebits",
        "--out=/home/alice/records",
        "-r",
        "/home/alice/a/b.jsonl",
        f"{CASE};schedule=*",
    ]
    names = redactor().arguments(argv)
    assert names == ["samebits", "--out=records", "-r", "b.jsonl", f"{CASE};schedule=*"]
    detail = f"cannot open /home/alice/x/y.cl on secrethost ({DEVICE.uuid})"
    path = sealed(tmp_path, device=header(device).device, argv=names, results=[result(detail=detail)])
    text = gzip.decompress(path.read_bytes()).decode()
    for secret in ("alice", "secrethost", "/home", "hunter2", "0a1b2c3d", "8153007942651", str(DEVICE.pci), '"17"'):
        assert secret not in text, secret
    run = store.load(path)
    assert run.header.variables["VK_DRIVER_FILES"] == "lvp.json:radv.json"
    assert run.header.device.uuid == redactor().unit(DEVICE.uuid) and run.header.device.uuid.startswith("salted:")


def test_identify_keeps_units_and_still_no_paths() -> None:
    """`--identify` names units in clear."""
    known = redactor(identify=True)
    assert known.unit(DEVICE.uuid) == DEVICE.uuid and known.text("/home/alice/x/lib.so for alice") == "lib.so for NAME"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("see https://example.org/a/b/c", "see https://example.org/a/b/c"),
        ("error:/usr/lib/x/y.so: bad", "error:y.so: bad"),
        (r"C:\Users\bob\x.dll", "x.dll"),
        ("int32/int64 and n/a", "int32/int64 and n/a"),
        ("at 12:30:45", "at 12:30:45"),
    ],
)
def test_only_folders_are_cut_from_messages(text: str, kept: str) -> None:
    """A message stays readable."""
    assert redactor().text(text) == kept


@given(st.text(st.sampled_from("/~ab.:\\-C 01f()'é") | st.characters(), max_size=60))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    """Results that a resumed run carries over are redacted again, and must stay equal."""
    once = redactor().text(text)
    assert redactor().text(once) == once


def test_a_command_that_repeats_a_run_key_is_kept(tmp_path: Path) -> None:
    """As the supervisor writes it: the run key is quoted, its semicolons are no shell's."""
    command = f"samebits run --device {DEVICE.id} --case '{RUNS[0]}'"
    assert store.load(sealed(tmp_path, results=[result(repeat=command)])).results[0].repeat == command


def test_every_line_fits_the_schema_that_is_checked_in(tmp_path: Path) -> None:
    """Each kind of line names a definition whose properties hold all its fields."""
    schema = json.loads(records.json_schema())
    by_tag = {
        d["properties"]["type"]["enum"][0]: d for d in schema["$defs"].values() if "type" in d.get("properties", {})
    }
    with Journal(header(), redactor()) as kept:
        kept.started(RUNS[0])
        kept.result(result())
        kept.void("x")
        kept.footer()
        path = kept.seal(tmp_path)
    for line in lines(path):
        definition = by_tag[line["type"]]
        assert set(definition["required"]) <= set(line) <= set(definition["properties"])
        assert definition["additionalProperties"] is False
