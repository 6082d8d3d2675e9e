"""Records that no samebits writes: each is refused in one line, and no mutation of a record gives a traceback."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_maker import encoded, forged, header, lines, refused, result, sealed

from harness import store
from harness.errors import InputRefused, UsageError

Lines = list[Any]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_STATE_DIR", str(tmp_path / "state"))


WINDOWS = {"index": [0], "count": 1, "window_start": 0, "expected": [1, 2], "actual": [1, 3]}


HOSTILE: list[tuple[str, Callable[[Lines], Lines]]] = [
    ("newer samebits", lambda ls: [ls[0] | {"schema": 2}, *ls[1:]]),
    ("no known samebits", lambda ls: [ls[0] | {"schema": 0}, *ls[1:]]),
    ("unknown field", lambda ls: [ls[0] | {"more": 1}, *ls[1:]]),
    ("unknown field", lambda ls: [*ls[:2], ls[2] | {"more": 1}, *ls[3:]]),
    ("Expected `int`", lambda ls: [ls[0] | {"schema": "1"}, *ls[1:]]),
    ("Expected `array`", lambda ls: [ls[0] | {"planned": None}, *ls[1:]]),
    ("Invalid value", lambda ls: [*ls[:1], {"type": "\x1b[31mred"}, *ls[1:]]),
    ("a second header", lambda ls: [ls[0], *ls]),
    ("schema", lambda ls: ls[1:]),
    ("behind the footer", lambda ls: [*ls, ls[1]]),
    ("behind the footer", lambda ls: [*ls, ls[-1]]),
    ("no footer", lambda ls: ls[:-1]),
    ("counts", lambda ls: [*ls[:-1], ls[-1] | {"counts": {"match": 4}}]),
    ("complete", lambda ls: [*ls[:-1], ls[-1] | {"complete": False}]),
    ("two results", lambda ls: [*ls[:3], ls[2], *ls[3:]]),
    ("planned twice", lambda ls: [ls[0] | {"planned": [ls[0]["planned"][0]] * 2}, *ls[1:]]),
    ("not planned", lambda ls: [ls[0] | {"planned": ls[0]["planned"][1:]}, *ls[1:]]),
    (
        "no run key",
        lambda ls: [ls[0] | {"planned": [ls[0]["planned"][0] | {"run": "x|y;schedule=a;variant=b"}]}, *ls[1:]],
    ),
    ("no run key", lambda ls: [ls[0] | {"planned": [ls[0]["planned"][0] | {"role": "queen"}]}, *ls[1:]]),
    ("another case version", lambda ls: [*ls[:2], ls[2] | {"case_version": "w"}, *ls[3:]]),
    ("another case version", lambda ls: [*ls[:2], ls[2] | {"kernel_hash": "w"}, *ls[3:]]),
    ("unknown verdict", lambda ls: [*ls[:2], ls[2] | {"verdict": "splendid"}, *ls[3:]]),
    ("no record holds", lambda ls: [*ls[:2], ls[2] | {"verdict": "waived"}, *ls[3:]]),
    ("no record holds", lambda ls: [*ls[:2], ls[2] | {"verdict": "fix"}, *ls[3:]]),
    ("another digest", lambda ls: [*ls[:2], ls[2] | {"digest": "b" * 64}, *ls[3:]]),
    ("no SHA-256", lambda ls: [*ls[:2], ls[2] | {"digest": "b", "verdict": "mismatch"}, *ls[3:]]),
    ("elements", lambda ls: [*ls[:2], ls[2] | {"elements": -1}, *ls[3:]]),
    ("case, schedule and variant", lambda ls: [*ls[:2], ls[2] | {"schedule": "tree"}, *ls[3:]]),
    ("not planned", lambda ls: [*ls[:1], {"type": "started", "run": "x"}, *ls[1:]]),
    ("run_id", lambda ls: [ls[0] | {"run_id": "../../etc"}, *ls[1:]]),
    ("that no samebits gives", lambda ls: [ls[0] | {"preset": "full\n"}, *ls[1:]]),
    ("that no samebits gives", lambda ls: [ls[0] | {"device": ls[0]["device"] | {"id": "x\x1b[2J"}}, *ls[1:]]),
    ("control characters", lambda ls: [ls[0] | {"system": ls[0]["system"] | {"kernel": "\x9b2J"}}, *ls[1:]]),
    ("windows do not fit", lambda ls: [*ls[:2], ls[2] | {"difference": WINDOWS | {"actual": [1]}}, *ls[3:]]),
    (
        "windows do not fit",
        lambda ls: [*ls[:2], ls[2] | {"difference": WINDOWS | {"operands": {"a": [0] * 999}}}, *ls[3:]],
    ),
    ("runs more than samebits", lambda ls: [*ls[:2], ls[2] | {"repeat": "samebits run; rm -rf ."}, *ls[3:]]),
    ("UTC time", lambda ls: [ls[0] | {"started": "yesterday"}, *ls[1:]]),
    ("another time", lambda ls: [ls[0] | {"started": "2020-01-01T00:00:00Z"}, *ls[1:]]),
]


@pytest.mark.parametrize(("words", "forge"), HOSTILE)
def test_what_no_samebits_writes_is_refused(tmp_path: Path, words: str, forge: Callable[[Lines], Lines]) -> None:
    """Though the name fits the bytes: anybody can make a hash."""
    content = lines(sealed(tmp_path))
    content[0]["started"] = "2026-11-30T00:00:00Z"
    store.load(forged(tmp_path, encoded(content)))
    assert words in refused(forged(tmp_path, encoded(forge(content))))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"no json\n",
        b"\xff\xfe\n",
        b'{"schema":1',
        b"{" * 100_000 + b"\n",
        b'{"schema":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        b'{"schema":NaN}\n',
        b'{"schema":1e999}\n',
        b'{"schema":' + b"9" * 10_000 + b"}\n",
    ],
)
def test_what_is_no_record_at_all_is_refused(tmp_path: Path, data: bytes) -> None:
    """No JSON, no object, no depth, no number beyond reason."""
    refused(forged(tmp_path, data))


def test_a_deeply_nested_raw_report_is_refused(tmp_path: Path) -> None:
    """`raw` takes any JSON; nesting is where a parser's stack ends."""
    content = lines(sealed(tmp_path))
    text = encoded(content).replace(b'"raw":{}', b'"raw":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert "nested too deep" in refused(forged(tmp_path, text))


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    """NaN and Infinity."""
    text = encoded(lines(sealed(tmp_path)))
    for word in (b"NaN", b"Infinity", b"1e400"):
        refused(forged(tmp_path, text.replace(b'"run":0.5', b'"run":' + word)))


def test_a_record_is_bounded_in_every_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb of zeros is stopped at the limit, not after it."""
    monkeypatch.setattr(store, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(store, "MAX_LINE", 1 << 16)
    assert "unpacks to more" in refused(forged(tmp_path, bytes(64 << 20)))
    assert "longer than" in refused(forged(tmp_path, b"x" * (1 << 17) + b"\n"))
    monkeypatch.setattr(store, "MAX_FILE", 1 << 10)
    assert "larger than" in refused(forged(tmp_path, os.urandom(1 << 11), packed=True))


def test_a_changed_cut_or_extended_file_is_refused(tmp_path: Path) -> None:
    """Under its old name by the hash, under a new one by what is inside."""
    path = sealed(tmp_path)
    stamp = path.name[:16]
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-9])
    assert "changed or cut" in refused(path)
    assert "truncated" in refused(forged(tmp_path, whole[:-9], stamp, packed=True))
    assert "behind its end" in refused(forged(tmp_path, whole + b"x", stamp, packed=True))
    assert "no gzip file" in refused(forged(tmp_path, b"x" + whole, stamp, packed=True))
    other = tmp_path / "record.jsonl.gz"
    other.write_bytes(whole)
    assert "is not named" in refused(other)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """A named pipe would wait for ever; a folder and nothing at all have their own line."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is no file" in refused(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match="no record at"):
        store.load(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="no record"):
        store.collect([tmp_path / "state"])


def test_one_run_with_different_bytes_is_a_conflict(tmp_path: Path) -> None:
    """A copy is the same record; another content under the same id is an error."""
    first = sealed(tmp_path / "a", run_id="1" * 32)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / first.name).write_bytes(first.read_bytes())
    assert len(store.collect([tmp_path / "a", tmp_path / "copy"])) == 1
    sealed(tmp_path / "b", run_id="1" * 32, results=[result(verdict="crash", digest=None)])
    with pytest.raises(InputRefused, match="different bytes"):
        store.collect([tmp_path / "a", tmp_path / "b"])


def test_a_parent_on_another_device_is_refused(tmp_path: Path) -> None:
    """Results cannot be carried from one device to another."""
    sealed(tmp_path, run_id="1" * 32)
    sealed(tmp_path, run_id="2" * 32, parent="1" * 32, device=msgspec.structs.replace(header().device, driver="9"))
    with pytest.raises(InputRefused, match="another device"):
        store.collect([tmp_path])


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_mutation_of_a_record_gives_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes are changed, cut, doubled or put in, inside and outside the compression; the name is made to fit."""
    whole = _example(tmp_path)
    packed = data.draw(st.booleans())
    content = bytearray(whole if packed else gzip.decompress(whole))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 40))
        content[at : at + length] = data.draw(
            st.binary(max_size=12)
            | st.sampled_from([b'"', b"{", b"]", b"\n", b"null", b"NaN", b"-1", b"1e999", b"9" * 40, b"\\ud800", b"\0"])
            | st.just(bytes(content[at : at + 3 * length]))
        )
    path = forged(tmp_path, bytes(content), _stamp(tmp_path), packed=packed)
    try:
        store.load(path)
    except InputRefused as e:
        assert str(e).isprintable() and len(str(e)) < 1200
    finally:
        path.unlink()


def _example(folder: Path) -> bytes:
    kept = folder / "example"
    if not kept.exists():
        sealed(kept)
    return next(kept.rglob("*.gz")).read_bytes()


def _stamp(folder: Path) -> str:
    return next((folder / "example").rglob("*.gz")).name[:16]
