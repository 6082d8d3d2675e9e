"""Records: one run on one device, as JSON lines. The schema; `harness.store` reads it, `harness.journal` writes it.

    header       who ran what on which device, and every run key planned
    started      a run key is about to be dispatched
    result       a run key is judged (`harness.verdicts.Result`)
    void         why the results of this run count for nothing (`everywhere`: of every run)
    footer       counts, and whether all that was planned was done

While the run goes on the lines are a journal. Sealed, they are `<utc>__<sha256>.jsonl.gz`, where
the SHA-256 is that of the compressed file: `sha256sum` checks a store, and nothing is unpacked before it fits.
What is planned and has no result is `not-run`: that is derived on reading, so an unfinished journal says it too.

A field may be added without a new SCHEMA; a reader refuses fields that it does not know, and asks to be upgraded.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.devices import Device
from harness.verdicts import TABLE, Result

SCHEMA = 1
SUFFIX = ".jsonl.gz"
JOURNAL_SUFFIX = ".jsonl"
ROLES = ("case", "self-test", "known-bad", "shutdown")

_RUN = re.compile(r"([\w.:+=,/@-]+(?:;[\w.:+=,/@-]+)+);schedule=([a-z0-9_]+);variant=([a-z0-9_]+)", re.ASCII)
_RUN_LENGTH = 500
_WINDOW_LIMIT = 256
_REPEAT = re.compile(r"samebits[\w .:+=,/@-]*", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}")

Key = tuple[str, str]
"""Role and run key: what a record has at most one result of."""


class Planned(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run key that the run means to do, in one role, of one case version and kernel hash."""

    run: str
    case_version: str
    kernel_hash: str
    role: str = "case"

    @property
    def key(self) -> Key:
        """Role and run key."""
        return self.role, self.run

    @property
    def case(self) -> str:
        """The case id in the run key."""
        return self.run.rpartition(";schedule=")[0]

    def not_run(self, detail: str) -> Result:
        """The result of what was not done."""
        case, schedule, variant = run_parts(self.run) or (self.run, "", "")
        return Result(
            run=self.run,
            case=case,
            schedule=schedule,
            variant=variant,
            verdict="not-run",
            role=self.role,
            case_version=self.case_version,
            kernel_hash=self.kernel_hash,
            detail=detail,
        )


class Git(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The commit of the checkout that ran, and whether tracked files differed from it."""

    commit: str
    dirty: bool


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operating system, kernel version, machine and Python."""

    os: str
    kernel: str
    machine: str
    python: str


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="header"):
    """The first line. `gate_run` is shared by the runs of one command; `parent` is the run that this one resumes.

    `started` is UTC, to the second. `budgets` are seconds by phase. `identified`: units are named in clear.
    """

    schema: int
    run_id: str
    gate_run: str
    parent: str | None
    version: str
    git: Git | None
    preset: str
    preset_version: str
    started: str
    argv: list[str]
    libraries: dict[str, str]
    variables: dict[str, str]
    system: System
    device: Device
    identified: bool
    nonce: int
    budgets: dict[str, float]
    options: dict[str, bool | int | str]
    planned: list[Planned]

    @property
    def stamp(self) -> str:
        """`started` as it stands in file names: 20251130T043000Z."""
        return self.started.replace("-", "").replace(":", "")


class Started(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="started"):
    """A run key is about to be dispatched."""

    run: str


class Void(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type", tag="void"):
    """Why this run's results count for nothing. `everywhere`: reference and second disagree, so no run counts."""

    reason: str
    everywhere: bool = False


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="footer"):
    """The last line: results by verdict, whether all that was planned was done, and why not."""

    ended: str
    counts: dict[str, int]
    complete: bool
    reason: str | None


Line = Header | Started | Result | Void | Footer


@dataclass(frozen=True)
class Run:
    """A record or journal as read: everything planned has a result, `not-run` where the file has none."""

    header: Header
    results: tuple[Result, ...]
    voids: tuple[Void, ...]
    footer: Footer | None
    under_way: tuple[str, ...]
    path: Path
    sha256: str | None

    @property
    def complete(self) -> bool:
        """Whether it has its footer, and everything planned was done."""
        return self.footer is not None and self.footer.complete

    @property
    def seconds(self) -> int | None:
        """Of wall time that it took; None where it has no end, or one that makes no sense."""
        try:
            end = datetime.fromisoformat(self.footer.ended if self.footer else "")
            took = int((end - datetime.fromisoformat(self.header.started)).total_seconds())
        except (TypeError, ValueError):
            return None
        return took if took >= 0 else None


def json_schema() -> bytes:
    """The JSON Schema of one line, as checked in beside this module. It changes with the structs, not with their docstrings."""
    schema = _without_descriptions(msgspec.json.schema(Line))
    schema["title"] = f"A line of a samebits record, schema {SCHEMA}"
    return msgspec.json.format(msgspec.json.encode(schema, order="deterministic"), indent=1) + b"\n"


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_descriptions(v) for k, v in value.items() if k != "description"}
    return [_without_descriptions(v) for v in value] if isinstance(value, list) else value


def unit(device: Device) -> tuple[str | None, ...]:
    """What tells one device under one driver from all others, as records name it."""
    d = device
    return d.id, d.kind, d.vendor, d.name, d.driver, d.compiler, d.uuid, d.pci


def run_parts(run: str) -> tuple[str, ...] | None:
    """Case, schedule and variant of a run key; None where it is none."""
    match = _RUN.fullmatch(run) if len(run) <= _RUN_LENGTH else None
    return match.groups() if match else None


def inconsistency(result: Result) -> str | None:
    """What in a result contradicts itself, so that no judging can have made it."""
    if run_parts(result.run) != (result.case, result.schedule, result.variant):
        return f"run key {result.run} is not case, schedule and variant"
    if result.verdict not in TABLE:
        return f"{result.run}: unknown verdict {result.verdict!r}"
    if result.verdict in ("waived", "fix"):
        return (
            f"{result.run}: {result.verdict}, which expectations make of a record when it is read, and no record holds"
        )
    if result.verdict == "match" and (result.digest is None or result.digest != result.expected):
        return f"{result.run}: match with another digest than expected"
    if any(d is not None and not _HEX.fullmatch(d) for d in (result.digest, result.expected, result.second)):
        return f"{result.run}: a digest that is no SHA-256"
    if not 0 <= result.elements < 2**53:
        return f"{result.run}: {result.elements} elements"
    if result.repeat and not _REPEAT.fullmatch(result.repeat.replace(f"'{result.run}'", "")):
        return f"{result.run}: a command to repeat it that runs more than samebits"
    d = result.difference
    if d and (len(d.expected) != len(d.actual) or max(map(len, (d.expected, *d.operands.values()))) > _WINDOW_LIMIT):
        return f"{result.run}: a difference whose windows do not fit"
    return None
