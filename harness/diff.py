"""What changed between two sets of records, by device group: fixes told from regressions, and known faults from new ones."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from harness.devices import slug
from harness.matrix import latest
from harness.records import Key, Run, unit
from harness.verdicts import FAULTS, SEVERITY, Result, exit_code

Word = Literal["REGRESSION", "KNOWN", "FIX", "CHANGED-DIGEST", "NEW", "GONE", "NOT-RUN"]
WORDS: tuple[Word, ...] = ("REGRESSION", "KNOWN", "FIX", "CHANGED-DIGEST", "NEW", "GONE", "NOT-RUN")
"""In the order in which they matter. KNOWN: it would be a REGRESSION, but an expectation waives it."""


class Change(msgspec.Struct, frozen=True):
    """One run key that is not as it was. `changed`: what differs between the two runs, of all that could explain it."""

    word: Word
    group: str
    device: str
    run: str
    role: str
    before: str | None
    after: str | None
    changed: list[str] = []
    detail: str | None = None


@dataclass
class Diff:
    """What `compare` finds. `notes` are sentences on runs that count for nothing or less; `codes` exit codes that apply; `void`
    runs were left out."""

    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    notes: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    void: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Changes by word, those that matter most first."""
        counted = Counter(change.word for change in self.changes)
        return {word: counted[word] for word in WORDS if counted[word]}

    def exit_code(self) -> int:
        """1 on a regression; 4 and 5 where what is new is incomplete or void."""
        return exit_code([*self.codes, *([1] if "REGRESSION" in self.counts else [])])

    def plain(self) -> dict[str, Any]:
        """The object that `diff --json` promises."""
        return {
            "counts": self.counts,
            "unchanged": self.unchanged,
            "void": self.void,
            "notes": self.notes,
            "changes": self.changes,
        }


@dataclass(frozen=True)
class _State:
    """One device on one side: its runs under its newest driver, and the worst result of each run key in them."""

    runs: tuple[Run, ...]
    results: dict[Key, Result]

    @property
    def complete(self) -> bool:
        return all(run.complete for run in self.runs)


def compare(old: Sequence[Run], new: Sequence[Run]) -> Diff:
    """`new` may have expectations laid over it. Of several records of one device those of its newest driver count, and in
    these the worst result of a run key. A run that is void counts for nothing; one that is incomplete shows no fix."""
    found = Diff()
    before, after = _states(old, "old", found), _states(new, "new", found)
    for group in sorted(before.keys() | after.keys()):
        for one, other in _pairs(before.get(group, {}), after.get(group, {})):
            _compare(group, one, other, found)
    found.changes.sort(key=lambda c: (c.group, c.device, WORDS.index(c.word), c.role, c.run))
    return found


def _states(runs: Sequence[Run], side: str, found: Diff) -> dict[str, dict[str, _State]]:
    """By group and by device within it."""
    runs = latest(runs)
    everywhere = any(v.everywhere for run in runs for v in run.voids)
    devices: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(runs, key=lambda run: run.header.started):
        if run.voids or everywhere:
            found.notes.append(f"{side} {run.path.name} is void and was left out")
            found.void += 1
            found.codes += [5] if side == "new" else []
            continue
        device = run.header.device
        devices[slug(device)][device.uuid or device.pci or device.id].append(run)
    states = {group: {name: _state(of) for name, of in members.items()} for group, members in devices.items()}
    for run in (run for members in states.values() for state in members.values() for run in state.runs):
        if not run.complete:
            found.notes.append(f"{side} {run.path.name} ({run.header.device.id}) is incomplete")
            found.codes += [4] if side == "new" else []
    return states


def _state(runs: Sequence[Run]) -> _State:
    newest = unit(runs[-1].header.device)
    runs = [run for run in runs if unit(run.header.device) == newest]
    results: dict[Key, Result] = {}
    for result in (r for run in runs for r in run.results if r.role in ("case", "self-test")):
        key = result.role, result.run
        if key not in results or _weight(result) < _weight(results[key]):
            results[key] = result
    return _State(tuple(runs), results)


def _weight(result: Result) -> int:
    """Least for the worst; what was not run is no result where another record has one."""
    return len(SEVERITY) if result.verdict == "not-run" else SEVERITY[_raw(result)]


def _raw(result: Result) -> str:
    """The verdict without expectations."""
    return {"waived": result.was or "", "fix": "match"}.get(result.verdict, result.verdict)


def _pairs(old: dict[str, _State], new: dict[str, _State]) -> Iterator[tuple[_State | None, _State | None]]:
    """A group's only device is the same device, whatever it is called on the other side; several are told apart."""
    if len(old) == len(new) == 1:
        yield next(iter(old.values())), next(iter(new.values()))
        return
    for name in sorted(old.keys() | new.keys()):
        yield old.get(name), new.get(name)


def _compare(group: str, old: _State | None, new: _State | None, found: Diff) -> None:
    before, after = old.results if old else {}, new.results if new else {}
    newest = (new or old).runs[-1].header.device  # type: ignore[union-attr]  # one of them is there
    environment = _differences(old, new)
    unproven = 0
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key), after.get(key)
        word = _word(one, other)
        if word == "FIX" and new and not new.complete:
            unproven += 1
            continue
        if word is None:
            found.unchanged += 1
            continue
        changed = [*environment, *_inputs(one, other)] if one and other else []
        detail = other.detail if other else None
        was, now = (_raw(r) if r else None for r in (one, other))
        found.changes.append(Change(word, group, newest.id, key[1], key[0], was, now, changed, detail))
    if unproven:
        found.notes.append(f"{newest.id}: {unproven} faults did not show, in an incomplete run: that is no fix")


def _word(old: Result | None, new: Result | None) -> Word | None:
    """What became of a run key; None where nothing did."""
    if new is None:
        return "GONE"
    before, after = _raw(old) if old else "not-run", _raw(new)
    if after == "not-run":
        return "NOT-RUN" if before != "not-run" else None
    if old is None or before == "not-run":
        return "NEW"
    if after == before:
        moved = old.digest != new.digest and after != "nondeterministic"
        return "CHANGED-DIGEST" if moved else None
    if after in FAULTS and (before in FAULTS or before == "match"):
        return "KNOWN" if new.verdict == "waived" else "REGRESSION"
    if after == "match" and before in FAULTS:
        # With other inputs, or another reference, a match says nothing of the fault.
        return "FIX" if old.case_version == new.case_version else "CHANGED-DIGEST"
    return "GONE" if before == "match" or before in FAULTS else "NEW"


def _differences(old: _State | None, new: _State | None) -> list[str]:
    if not old or not new:
        return []
    one, other = (state.runs[-1].header.device for state in (old, new))
    return _unequal({"driver": (one.driver, other.driver), "compiler": (one.compiler, other.compiler)}.items())


def _inputs(old: Result, new: Result) -> list[str]:
    pairs = {
        "kernel hash": (old.kernel_hash[:12], new.kernel_hash[:12]),
        "case version": (old.case_version[:12], new.case_version[:12]),
    }
    return _unequal(pairs.items())


def _unequal(pairs: Iterable[tuple[str, tuple[str, str]]]) -> list[str]:
    return [f"{name} {one or 'unknown'} -> {other or 'unknown'}" for name, (one, other) in pairs if one != other]
