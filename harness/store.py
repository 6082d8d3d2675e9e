"""The store: reading records and journals with distrust. What no samebits writes is refused, naming file and mend."""

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from harness.errors import InputRefused, UsageError
from harness.records import (
    ROLES,
    SCHEMA,
    SUFFIX,
    Footer,
    Header,
    Key,
    Line,
    Planned,
    Run,
    Started,
    Void,
    inconsistency,
    run_parts,
    unit,
)
from harness.text import clean
from harness.verdicts import Result

MAX_FILE = 64 << 20
MAX_BYTES = 256 << 20
MAX_LINE = 32 << 20
"""Bytes of a record at most: compressed, unpacked, and in one line (the longest is the header of a `soak`)."""

MEND = "get it again from where it came, or leave it out"
_NAME = re.compile(r"(\d{8}T\d{6}Z)__([0-9a-f]{64})\.jsonl\.gz", re.ASCII)
_STARTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_WORD = re.compile(r"[\w.:+-]{1,200}", re.ASCII)

_LINE = msgspec.json.Decoder(Line)


class _Version(msgspec.Struct):
    schema: int


def load(path: Path) -> Run:
    """A sealed record or a journal, by its name; raises InputRefused, UsageError."""
    return load_record(path) if path.name.endswith(SUFFIX) else load_journal(path)


def load_record(path: Path) -> Run:
    """The sealed record at `path`, checked in every part; raises InputRefused, UsageError where it does not exist."""
    name = _NAME.fullmatch(path.name)
    if not name:
        raise _refused(path, f"is not named <utc>__<sha256>{SUFFIX}, as records are sealed", MEND)
    packed = _read(path, MAX_FILE)
    sha256 = hashlib.sha256(packed).hexdigest()
    if sha256 != name[2]:
        raise _refused(
            path, f"has SHA-256 {sha256[:16]}..., its name says {name[2][:16]}...: it was changed or cut", MEND
        )
    run = _parse(path, _unpack(path, packed), sha256)
    if run.footer is None:
        raise _refused(path, "has no footer", MEND)
    if run.header.stamp != name[1]:
        raise _refused(path, "was started at another time than its name says", MEND)
    return run


def load_journal(path: Path) -> Run:
    """The journal at `path`, finished or not; only a torn last line is forgiven. Raises InputRefused, UsageError."""
    data = _read(path, MAX_BYTES)
    return _parse(path, data[: data.rfind(b"\n") + 1], None)


def collect(paths: Iterable[Path]) -> list[Run]:
    """The records at `paths` (files, and folders with all below), each once, oldest first.

    Raises UsageError where there is none, and InputRefused where one is damaged or two conflict.
    """
    files: dict[Path, None] = {}
    for path in paths:
        found = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not found:
            raise UsageError(f"no record (*{SUFFIX}) in {path}; `samebits gate --out {path}` puts some there")
        files.update(dict.fromkeys(found))
    runs: dict[str, Run] = {}
    for file in files:
        run = load(file)
        other = runs.setdefault(run.header.run_id, run)
        if other.sha256 != run.sha256:
            what = f"and {other.path} are one run (id {run.header.run_id}) with different bytes"
            raise _refused(file, what, "keep the right one")
    for run in runs.values():
        parent = runs.get(run.header.parent or "")
        if parent and unit(parent.header.device) != unit(run.header.device):
            raise _refused(run.path, f"resumes {parent.path}, which ran on another device or driver", MEND)
    return sorted(runs.values(), key=lambda r: (r.header.started, r.header.run_id))


def _refused(path: Path, what: str, mend: str) -> InputRefused:
    return InputRefused(f"record {clean(str(path))} {clean(what)}; {mend}")


def _read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file, never more than `limit`."""
    try:
        if not path.exists():
            raise UsageError(f"no record at {clean(str(path))}; `samebits matrix DIR` lists what a folder holds")
        if not path.is_file():
            raise _refused(path, "is no file", "name a record")
        with path.open("rb") as f:
            data = f.read(limit + 1)
    except OSError as e:
        raise _refused(path, f"cannot be read: {e.strerror}", "mend its permissions, or leave it out") from e
    if len(data) > limit:
        raise _refused(path, f"is larger than {limit >> 20} MiB", MEND)
    return data


def _unpack(path: Path, packed: bytes) -> bytes:
    """One gzip member, whole, and nothing behind it; at most MAX_BYTES are ever held."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        data = inflater.decompress(packed, MAX_BYTES + 1)
    except zlib.error as e:
        raise _refused(path, f"is no gzip file: {e}", MEND) from e
    if len(data) > MAX_BYTES:
        raise _refused(path, f"unpacks to more than {MAX_BYTES >> 20} MiB", MEND)
    if not inflater.eof:
        raise _refused(path, "is truncated", MEND)
    if inflater.unused_data:
        raise _refused(path, "has something behind its end", MEND)
    return data


def _lines(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    start, number = 0, 1
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            raise _refused(path, f"line {number}: does not end", MEND)
        if end - start > MAX_LINE:
            raise _refused(path, f"line {number}: longer than {MAX_LINE >> 20} MiB", MEND)
        yield number, data[start:end]
        start, number = end + 1, number + 1


def _decode(path: Path, number: int, line: bytes) -> Line:
    try:
        if number == 1:
            version = msgspec.json.decode(line, type=_Version).schema
            if version != SCHEMA:
                age, mend = ("a newer", "upgrade samebits") if version > SCHEMA else ("no known", MEND)
                raise _refused(
                    path, f"was made by {age} samebits (record schema {version}, this one reads {SCHEMA})", mend
                )
        found: Line = _LINE.decode(line)
    except RecursionError:
        raise _refused(path, f"line {number}: nested too deep", MEND) from None
    except msgspec.ValidationError as e:
        mend = "upgrade samebits" if "unknown field" in str(e) or "Invalid value" in str(e) else MEND
        raise _refused(path, f"line {number}: {e}", mend) from None
    except ValueError as e:
        raise _refused(path, f"line {number}: {e}", MEND) from None
    return found


class _Reader:
    """Takes the lines of one record in order, and refuses what no samebits writes."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.footer: Footer | None = None
        self.planned: dict[Key, Planned] = {}
        self.runs: set[str] = set()
        self.results: dict[Key, Result] = {}
        self.voids: list[Void] = []
        self.under_way: list[str] = []

    def take(self, line: Line) -> str | None:
        """What is wrong with the next line, if anything."""
        if isinstance(line, Header):
            return "a second header" if self.header else self._header(line)
        if self.header is None:
            return "no header before it"
        if self.footer is not None:
            return "something behind the footer"
        if isinstance(line, Started):
            self.under_way.append(line.run)
            return None if line.run in self.runs else f"{line.run} was started but not planned"
        if isinstance(line, Result):
            return self._result(line)
        if isinstance(line, Void):
            self.voids.append(line)
            return None
        self.footer = line
        if line.counts != dict(Counter(r.verdict for r in self.results.values())):
            return "the footer's counts are not those of the results"
        return None if line.complete == self.complete else "the footer says `complete` wrongly"

    @property
    def complete(self) -> bool:
        """Whether every planned run key has a result that says something."""
        done = {key for key, r in self.results.items() if r.verdict != "not-run"}
        return done >= self.planned.keys()

    def _header(self, header: Header) -> str | None:
        self.header = header
        self.planned = {p.key: p for p in header.planned}
        self.runs = {p.run for p in header.planned}
        if len(self.planned) != len(header.planned):
            return "a run key is planned twice"
        if not re.fullmatch(r"[0-9a-f]{32}", header.run_id):
            return "run_id is not 32 hex digits"
        if not _STARTED.fullmatch(header.started):
            return "started is no UTC time to the second"
        device, system = header.device, header.system
        names = (
            device.id,
            device.api,
            device.label,
            header.preset,
            header.preset_version,
            header.version,
            header.gate_run,
        )
        if not all(_WORD.fullmatch(name) for name in names):
            return "a name that no samebits gives, of the device, the preset or the version"
        if not all(text.isprintable() for text in (system.os, system.kernel, system.machine, system.python)):
            return "control characters in the name of the system"
        wrong = next((p for p in header.planned if not run_parts(p.run) or p.role not in ROLES[:-1]), None)
        return f"{wrong.run} ({wrong.role}) is no run key" if wrong else None

    def _result(self, result: Result) -> str | None:
        key = (result.role, result.run)
        planned = self.planned.get(key)
        if result.run in self.under_way:
            self.under_way.remove(result.run)
        if key in self.results:
            return f"two results of {result.run}"
        self.results[key] = result
        if result.role == "shutdown":  # stands for the worker; it names the run key that came before
            return None if result.run in self.runs else f"{result.run} was not planned"
        if planned is None:
            return f"{result.run} ({result.role}) was not planned"
        if (planned.case_version, planned.kernel_hash) != (result.case_version, result.kernel_hash):
            return f"{result.run} is of another case version or kernel than planned"
        return inconsistency(result)


def _parse(path: Path, data: bytes, sha256: str | None) -> Run:
    reader = _Reader()
    for number, line in _lines(path, data):
        problem = reader.take(_decode(path, number, line))
        if problem:
            raise _refused(path, f"line {number}: {problem}", MEND)
    if reader.header is None:
        raise _refused(path, "holds no whole line: nothing was run", "remove it")
    results = []  # in the order of the plan: which lane was faster is nobody's concern
    for key, planned in reader.planned.items():
        cut = "interrupted while it was under way" if planned.run in reader.under_way else "interrupted before it"
        results.append(reader.results.pop(key) if key in reader.results else planned.not_run(cut))
    results += reader.results.values()  # of workers' ends
    under_way = tuple(reader.under_way)
    return Run(reader.header, tuple(results), tuple(reader.voids), reader.footer, under_way, path, sha256)
