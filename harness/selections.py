"""What a command line selects: presets, case selectors and run keys, as cases with the run keys wanted of each."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from harness import kernels, presets
from harness.cases import Case, RunKey, select
from harness.errors import UsageError
from harness.schedules import NAMES
from harness.text import near

SHARDS_LIMIT = 256


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of all run keys, `number` counting from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that `i/n` writes; raises UsageError."""
        match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text, re.ASCII)
        if not match or not int(match[1]) <= int(match[2]) <= SHARDS_LIMIT:
            raise UsageError(f"shard {text[:20]!r}: write I/N, as in 1/4; N is at most {SHARDS_LIMIT}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, run: RunKey) -> bool:
        """Whether the run key is in it: by the key's SHA-256, so everywhere and always alike."""
        return int.from_bytes(hashlib.sha256(str(run).encode()).digest()[:8], "big") % self.count == self.number - 1


@dataclass(frozen=True)
class Selection:
    """A case and which of its run keys are wanted; None stands for all."""

    case: Case
    schedule: str | None = None
    variant: str | None = None
    shard: Shard | None = None

    def runs(self, language: kernels.Language) -> list[RunKey]:
        """The run keys in `language`, base variant first."""
        runs = [
            RunKey(self.case.id, schedule, kernel.variant)
            for kernel in kernels.variants(self.case.kernel, language)
            if self.variant in (None, kernel.variant) and kernel.takes(self.case, language)
            for schedule in kernel.schedules
            if self.schedule in (None, schedule)
        ]
        return [run for run in runs if self.shard is None or self.shard.holds(run)]


def of_preset(preset: str) -> list[Selection]:
    """Every case of `preset`, all run keys."""
    return [Selection(case) for case in presets.cases(preset)]


def chosen(preset: str, selectors: Sequence[str] = (), shard: Shard | None = None) -> list[Selection]:
    """What a command line selects: all of `preset`, or what `selectors` name in it or beyond it; raises UsageError."""
    in_preset = presets.cases(preset)
    if preset == "soak" and (selectors or shard):
        raise UsageError("--case and --shard do not go with the preset soak: soak makes its own seeds")
    found = [] if selectors else of_preset(preset)
    for selector in selectors:
        try:
            found += of_selectors([selector], in_preset)
        except UsageError:
            found += of_selectors([selector])  # a selector may reach beyond the preset
    return [replace(selection, shard=shard) for selection in found]


def of_selectors(selectors: Iterable[str], cases: Sequence[Case] | None = None) -> list[Selection]:
    """What `selectors` name (case ids, prefixes ending in `*`, run keys) among `cases`; raises UsageError.

    A whole id need not be in a preset: any well-formed case can be run.
    """
    pool = presets.all_cases() if cases is None else cases
    found: list[Selection] = []
    for selector in selectors:
        wanted = Selector.parse(selector)
        chosen = [Selection(c, wanted.schedule, wanted.variant) for c in select(pool, [wanted.case])]
        _check_there_are_some(selector, chosen)
        found += chosen
    return list(dict.fromkeys(found))


def _check_there_are_some(selector: str, chosen: Sequence[Selection]) -> None:
    """UsageError where a selector names run keys that no device could have, or a case beyond what can be dispatched."""
    runs = (run for s in chosen for language in kernels.FOLDERS for run in s.runs(language))
    first = next(runs, None)
    if first is None:
        entries = [kernel for s in chosen for kernel in kernels.entries(s.case.kernel)]
        there = dict.fromkeys(f"{kernel.variant}: {', '.join(kernel.schedules)}" for kernel in entries)
        raise UsageError(f"no run key is {selector!r}; the kernel's schedules by variant are {'; '.join(there)}")
    if len(chosen) == 1 and chosen[0].case.kernel not in kernels.WHOLE:  # one that may be in no preset
        for run in dict.fromkeys([first, *runs]):
            kernels.find(chosen[0].case.kernel, run.variant).plan(chosen[0].case, run.schedule)


@dataclass(frozen=True)
class Selector:
    """A case selector (a whole id, or a prefix ending in `*`), and the schedule and variant where these are named."""

    case: str
    schedule: str | None = None
    variant: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The selector of run keys that `text` writes; raises UsageError for a schedule or a variant that is none."""
        fields: dict[str, str | None] = {"schedule": None, "variant": None}
        case = text
        for name in ("variant", "schedule"):
            head, found, value = case.rpartition(f";{name}=")
            if found:
                case, fields[name] = head, value
        if fields["schedule"] is not None and fields["schedule"] not in NAMES:
            there = f"{', '.join(NAMES)}{near(fields['schedule'], NAMES)}"
            raise UsageError(f"case {text!r}: no schedule {fields['schedule']!r}; there are {there}")
        if fields["variant"] is not None and not case.partition(";")[0].endswith("*"):
            kernels.find(kernels.base(case.partition(";")[0]).name, fields["variant"])
        return cls(case, **fields)

    def matches(self, case: str, schedule: str, variant: str) -> bool:
        """Whether it selects this run key."""
        fits = case.startswith(self.case[:-1]) if self.case.endswith("*") else case == self.case
        return fits and self.schedule in (None, schedule) and self.variant in (None, variant)
