"""The journal of a run under way: every result is on the disk before the next step. Sealing makes a record of it.

A journal lies in the user's state folder, so that a full or read-only output folder loses nothing.
"""

import errno
import gzip
import hashlib
import io
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from harness.devices import Device, slug
from harness.errors import Incomplete, SamebitsError, UsageError
from harness.folders import state_folder
from harness.privacy import Redactor
from harness.provenance import utc_now
from harness.records import JOURNAL_SUFFIX, SUFFIX, Footer, Header, Key, Line, Planned, Run, Started, Void, unit
from harness.verdicts import Result

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


def folder() -> Path:
    """Where journals lie; raises UsageError where it cannot be made."""
    path = state_folder("journals")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(
            f"state folder {path}: {e.strerror}; name one that can be written in SAMEBITS_STATE_DIR"
        ) from e
    return path


def check_out(out: Path) -> None:
    """Raise UsageError unless records can be put into `out`: better before the run than after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out, prefix=".samebits-"):
            pass
    except OSError as e:
        raise UsageError(f"output folder {out}: {e.strerror}; name one that can be written with --out") from e


class Journal:
    """Takes the lines of one run, from any thread. Use it in `with`; `footer` and `seal` end it, else the file stays and is named.

    Raises Incomplete when a line cannot be kept; the file then ends with the last whole line.
    """

    def __init__(self, header: Header, redactor: Redactor) -> None:
        self.header = header
        self.redactor = redactor
        self.path = folder() / f"{header.stamp}__{slug(header.device)}__{header.run_id}{JOURNAL_SUFFIX}"
        self._ended = False
        try:
            self._file = open(self.path, "xb", buffering=0, opener=_appending)  # noqa: SIM115 (closed by `close`)
        except OSError as e:
            raise UsageError(
                f"journal {self.path}: {e.strerror}; name a folder that can be written in SAMEBITS_STATE_DIR"
            ) from e
        self._size = 0
        self._lock = threading.Lock()
        try:
            self._write(header)
        except Incomplete as e:
            self.close()
            self.path.unlink()  # there is nothing in it to go on with
            why = getattr(e.__cause__, "strerror", "")
            raise Incomplete(
                f"journal {self.path}: {why}; make room, or name a folder with some in SAMEBITS_STATE_DIR"
            ) from None
        _sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; an unsealed journal stays where it is."""
        self._file.close()

    def started(self, run: str) -> None:
        """A run key is about to be dispatched. On hardware that may take the machine down, so there it is on the disk first."""
        self._write(Started(run), sync=self.header.device.kind == "hardware")

    def result(self, result: Result) -> None:
        """A run key is judged. Texts of drivers are redacted."""
        text = self.redactor.text
        changes: dict[str, Any] = {
            name: text(value) for name in ("detail", "there") if (value := getattr(result, name)) is not None
        }
        if result.artefacts:
            changes["artefacts"] = [text(a) if a.startswith(("/", "~")) else a for a in result.artefacts]
        self._write(msgspec.structs.replace(result, **changes))

    def void(self, reason: str, *, everywhere: bool = False) -> None:
        """The results of this run count for nothing; `everywhere`: nor do those of any other."""
        self._write(Void(self.redactor.text(reason), everywhere))

    def footer(self, reason: str | None = None) -> None:
        """The run ends here; `reason` says why, where not all that was planned was done.

        It counts what is on the disk: an interrupt may have come between any two steps of this process. A second footer
        is not written.
        """
        data = self.path.read_bytes()
        self._size = data.rfind(b"\n") + 1
        self._file.truncate(self._size)
        lines = [msgspec.json.decode(line, type=Line) for line in data[: self._size].splitlines()]
        if not isinstance(lines[-1], Footer):
            results = {(r.role, r.run): r.verdict for r in lines if isinstance(r, Result)}
            done = {key for key, verdict in results.items() if verdict != "not-run"}
            complete = all(p.key in done for p in self.header.planned)
            told = None if reason is None else self.redactor.text(reason)
            self._write(Footer(utc_now(), dict(Counter(results.values())), complete, told))
        self._ended = True

    def seal(self, out: Path) -> Path:
        """Make the record `<out>/<device group>/<utc>__<sha256>.jsonl.gz`, read-only, and remove the journal.

        Needs the footer. Raises UsageError or Incomplete, naming the journal that stays, where `out` does not take it.
        """
        if not self._ended:
            raise ValueError("a journal is sealed after its footer")
        self.close()
        packed = _compress(self.path.read_bytes())
        name = f"{self.header.stamp}__{hashlib.sha256(packed).hexdigest()}{SUFFIX}"
        try:
            record = _store(out / slug(self.header.device), name, packed)
        except OSError as e:
            raise self._kept(out, e) from e
        with suppress(OSError):  # sealed is sealed: a journal that stays behind does no harm
            self.path.unlink()
        return record

    def _write(self, line: msgspec.Struct, *, sync: bool = True) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            try:
                _write_all(self._file.fileno(), data)
                if sync:
                    os.fsync(self._file.fileno())
            except OSError as e:
                with suppress(OSError):
                    self._file.truncate(self._size)
                raise Incomplete(
                    f"journal {self.path}: {e.strerror}; make room, then go on with --resume {self.path}"
                ) from e
            self._size += len(data)

    def _kept(self, out: Path, e: OSError) -> SamebitsError:
        mend = f"the journal is kept: mend it, then --resume {self.path}"
        if e.errno in _NOT_WRITABLE:
            return UsageError(f"output folder {out}: {e.strerror}; {mend}")
        return Incomplete(f"record cannot be kept in {out}: {e.strerror}; {mend}")


def unfinished() -> list[Path]:
    """The journals in the state folder, oldest first: of runs that were interrupted, or are under way."""
    return sorted(folder().glob(f"*{JOURNAL_SUFFIX}"))


def check_parent(parent: Run, device: Device, preset: str, version: str) -> None:
    """Raise UsageError where device, driver or preset are not those of `parent`, which is to be resumed."""
    old = parent.header
    if unit(old.device) != unit(device):
        raise UsageError(
            f"--resume {parent.path}: it ran on {old.device.id} ({old.device.name}, {old.device.driver}), "
            f"not {device.id} ({device.name}, {device.driver}); run anew without --resume"
        )
    if (old.preset, old.preset_version) != (preset, version):
        raise UsageError(
            f"--resume {parent.path}: it ran preset {old.preset} {old.preset_version}; name that with --preset"
        )


def check_selection(parent: Run, options: Mapping[str, str]) -> None:
    """Raise UsageError where other cases, another shard or another optimiser are wanted than `parent` was to run."""
    old = parent.header.options
    for name, option in (("cases", "--case"), ("shard", "--shard"), ("optimiser", "--optimiser")):
        there = str(old.get(name, ""))
        if sorted(there.split()) != sorted(options.get(name, "").split()):
            told = f"{option} {there}" if there else f"no {option}"
            raise UsageError(f"--resume {parent.path}: it was started with {told}; go on with the same, or run anew")


def carry_over(parent: Run, header: Header) -> dict[Key, Result]:
    """The results of `parent` that the run of `header` need not make again: same case version and kernel hash.

    Faults are carried too, those of a worker's end among them; what was under way or not run is not. A void run gives
    nothing. Raises UsageError where device, driver or preset are not the parent's.
    """
    check_parent(parent, header.device, header.preset, header.preset_version)
    if parent.voids:
        return {}
    planned: Mapping[Key, Planned] = {p.key: p for p in header.planned}
    by_run = {p.run: p for p in header.planned}
    return {
        (r.role, r.run): r
        for r in parent.results
        if r.verdict != "not-run"
        and (p := by_run.get(r.run) if r.role == "shutdown" else planned.get((r.role, r.run)))
        and (p.case_version, p.kernel_hash) == (r.case_version, r.kernel_hash)
    }


def _appending(path: str, flags: int) -> int:
    """Each line goes to the end, also after a line that was taken back."""
    return os.open(path, flags | os.O_APPEND, 0o666)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _compress(data: bytes) -> bytes:
    """The same bytes for the same lines: no name, no time."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as f:
        f.write(data)
    return packed.getvalue()


def _store(place: Path, name: str, packed: bytes) -> Path:
    """Put the file there whole or not at all, and read-only."""
    place.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=place, prefix=".", suffix=".part")
    try:
        try:
            _write_all(descriptor, packed)
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, place / name)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(place)
    return place / name


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
