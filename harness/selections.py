"""What a command line selects: presets, case selectors and run keys, as cases with the run keys wanted of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness import kernels, presets
from harness.cases import Case, RunKey, select
from harness.errors import UsageError
from harness.schedules import NAMES


@dataclass(frozen=True)
class Selection:
    """A case and which of its run keys are wanted; None stands for all."""

    case: Case
    schedule: str | None = None
    variant: str | None = None

    def runs(self, language: kernels.Language) -> list[RunKey]:
        """The run keys in `language`, base variant first."""
        return [
            RunKey(self.case.id, schedule, kernel.variant)
            for kernel in kernels.variants(self.case.kernel, language)
            if self.variant in (None, kernel.variant)
            for schedule in kernel.schedules
            if self.schedule in (None, schedule)
        ]


def of_preset(preset: str) -> list[Selection]:
    """Every case of `preset`, all run keys."""
    return [Selection(case) for case in presets.cases(preset)]


def of_selectors(selectors: Iterable[str], cases: Sequence[Case] | None = None) -> list[Selection]:
    """What `selectors` name (case ids, prefixes ending in `*`, run keys) among `cases`; raises UsageError.

    A whole id need not be in a preset: any well-formed case can be run.
    """
    pool = presets.all_cases() if cases is None else cases
    found: list[Selection] = []
    for selector in selectors:
        case, schedule, variant = _run_key(selector)
        found += [Selection(c, schedule, variant) for c in select(pool, [case])]
    return list(dict.fromkeys(found))


def _run_key(selector: str) -> tuple[str, str | None, str | None]:
    """Case selector, schedule and variant of a run key; the last two may be absent."""
    fields: dict[str, str | None] = {"schedule": None, "variant": None}
    case = selector
    for name in ("variant", "schedule"):
        head, found, value = case.rpartition(f";{name}=")
        if found:
            case, fields[name] = head, value
    if fields["schedule"] is not None and fields["schedule"] not in NAMES:
        raise UsageError(f"case {selector!r}: no schedule {fields['schedule']!r}; there are {', '.join(NAMES)}")
    if fields["variant"] is not None:
        kernels.find(kernels.base(case.partition(";")[0]).name, fields["variant"])
    return case, fields["schedule"], fields["variant"]
