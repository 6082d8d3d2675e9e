"""Records as tables: devices by families of kernels and by profiles. `matrix.py` judges, this shows."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from harness.kernels import FAMILY_OF, KERNELS, WHOLE
from harness.matrix import CONTROL, control, kernel_of, latest
from harness.profiles import PROFILES, Profile
from harness.records import Run
from harness.verdicts import SEVERITY, worst

PROFILE_OF = {
    kernel: profile.name
    for profile in PROFILES.values()
    for kernels in profile.operations.values()
    for kernel in kernels
} | {name: entry.whole.profile for name, entry in WHOLE.items() if entry.whole}
"""Kernel, or whole pass -> the profile that it is part of."""


def row_name(run: Run) -> str:
    """The device's id, and whether its optimiser was off: what a row of the tables is called."""
    return run.header.device.id + (", optimiser off" if run.header.options.get("optimiser") else "")


def frame(runs: Sequence[Run]) -> Any:
    """Every judged case of `runs` as a pandas DataFrame: one line a device and run key."""
    import pandas as pd

    lines = []
    for run in latest(runs):
        device = run.header.device
        for r in run.results:
            if r.role == "case":
                lines.append(
                    {
                        "device": row_name(run),
                        "api": device.api,
                        "kind": device.kind,
                        "vendor": device.vendor,
                        "name": device.name,
                        "driver": device.driver,
                        "group": device.group,
                        "started": run.header.started,
                        "preset": run.header.preset,
                        "kernel": kernel_of(r.case),
                        "profile": PROFILE_OF.get(kernel_of(r.case), ""),
                        "variant": r.variant,
                        "schedule": r.schedule,
                        "case": r.case,
                        "verdict": r.verdict,
                        "elements": r.elements,
                        "digest": r.digest,
                        "expected": r.expected,
                        "run": r.run,
                        "record": run.path.name,
                    }
                )
    return pd.DataFrame(lines)


def pivot(runs: Sequence[Run], by_kernel: bool = False) -> Any:
    """Devices by family and variant as a DataFrame of texts: `70 match`, or the worst verdict with its count.

    The control has a column of its own: it is never right or wrong, and its cell says how many digests its schedules gave.
    Behind them a column for each profile (see `profile_cell`). `by_kernel`: a column for every kernel and variant instead.
    """
    table = frame(runs)
    if table.empty:
        return table
    name = "{} {}".format if by_kernel else column
    table["column"] = [name(kernel, variant) for kernel, variant in zip(table["kernel"], table["variant"], strict=True)]
    # Cells are texts, so that what has no data says so and is never a number.
    cells = table.groupby(["device", "column"], sort=False)["verdict"].agg(_cell)
    order = dict.fromkeys([name(k.name, k.variant) for k in (*KERNELS, *WHOLE.values())] + list(table["column"]))
    wide = cells.unstack("column").reindex(columns=[c for c in order if c in set(table["column"])]).fillna("no data")
    for title in {"control", f"{CONTROL} base"} & set(wide.columns):
        wide[title] = [
            control_cell(cell, [run for run in runs if row_name(run) == row]) for row, cell in wide[title].items()
        ]
    for profile in PROFILES.values() if not by_kernel else ():
        mine = table[table["profile"] == profile.name]
        if not mine.empty:
            words = {
                row: profile_cell(profile, zip(lines["case"], lines["verdict"], strict=True))
                for row, lines in mine.groupby("device", sort=False)
            }
            wide[profile.name] = [words.get(row, "no data") for row in wide.index]
    return wide


def profile_cell(profile: Profile, results: Iterable[tuple[str, str]]) -> str:
    """What `results`, cases with a verdict each, say of a profile, faults in front: `11 of 11 operations match; whole passes
    of 4, 28 tokens match`.

    An operation is worth its worst verdict; a form of it that the device lacks takes nothing from one that it has. So are
    whole passes over so many tokens.
    """
    verdicts: dict[str, list[str]] = defaultdict(list)
    lengths: dict[int, list[str]] = defaultdict(list)
    for case, verdict in results:
        verdicts[kernel_of(case)].append(verdict)
        if kernel_of(case) in WHOLE and (length := re.search(r";t=(\d+);", case)):
            lengths[int(length[1])].append(verdict)
    whole: dict[str, list[str]] = defaultdict(list)
    for t in sorted(lengths):
        whole[worst(lengths[t])].append(str(t))
    by_word: dict[str, list[str]] = defaultdict(list)
    for operation, kernels in profile.operations.items():
        if found := [verdict for kernel in kernels for verdict in verdicts.get(kernel, ())]:
            by_word[worst([v for v in found if v != "unsupported"] or found)].append(operation)
    good = "compiled" if "compiled" in by_word and "match" not in by_word else "match"
    faults = sorted((word for word in by_word if word != good), key=SEVERITY.__getitem__)
    parts = [f"{word} in {', '.join(by_word[word])}" for word in faults]
    if by_word:
        parts.append(f"{len(by_word[good])} of {len(profile.operations)} operations {good}")
    passes = {word: f"of {', '.join(whole[word])} tokens" for word in sorted(whole, key=SEVERITY.__getitem__)}
    matched = [f"whole passes {passes.pop('match')} match"] if "match" in passes else []
    return "; ".join([*(f"{word} in whole passes {of}" for word, of in passes.items()), *parts, *matched])


def control_cell(verdicts: str, runs: Sequence[Run]) -> str:
    """What the control showed in a row's `runs`; its `verdicts` where it did not run, or the worst is a fault."""
    return control(runs) if re.fullmatch(r"\d+ informational( of \d+)?", verdicts) else verdicts


def column(kernel: str, variant: str = "base") -> str:
    """The family of `kernel`, with the variant unless it is the base form; a kernel of another samebits stands for itself."""
    name = "control" if kernel == CONTROL else FAMILY_OF.get(kernel, kernel)
    return name if variant == "base" else f"{name} {variant}"


def _cell(verdicts: Any) -> str:
    words = list(verdicts)
    bad = worst(words)
    if bad in ("match", "unsupported", "compiled"):
        return f"{words.count(bad)} {bad}" if len(set(words)) == 1 else f"{words.count('match')} of {len(words)} match"
    return f"{words.count(bad)} {bad} of {len(words)}"
