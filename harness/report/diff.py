"""What `samebits diff` prints."""

from collections import Counter
from itertools import groupby

from harness.diff import Diff
from harness.report import console
from harness.text import clean

SHOWN = 20
STYLES = {"REGRESSION": "bold red", "KNOWN": "magenta", "FIX": "green", "NOT-RUN": "yellow"}


def print_diff(found: Diff) -> None:
    """By device group and word, at most SHOWN run keys each; then notes and counts."""
    out = console()
    counts = Counter(c.group for c in found.changes)
    for group, members in groupby(found.changes, lambda c: c.group):
        out.print(group, style="bold")
        for word, changes in groupby(members, lambda c: c.word):
            listed = list(changes)
            if word in ("NEW", "GONE") and len(listed) == counts[group]:
                out.print(f"  {word}: all {len(listed)} run keys of the device")
                continue
            for c in listed[:SHOWN]:
                role = "" if c.role == "case" else f" [{c.role}]"
                verdicts = f"{c.before or 'not there'} -> {c.after or 'not there'}"
                out.print(f"  {word} {clean(c.run, 500)}{role}: {verdicts}", style=STYLES.get(word))
                if c.before and c.after:
                    out.print(f"      changed: {clean('; '.join(c.changed), 600) or 'nothing that records name'}")
                if c.detail and word in ("REGRESSION", "KNOWN"):
                    out.print(f"      {clean(c.detail, 600)}")
            if len(listed) > SHOWN:
                out.print(f"  ... and {len(listed) - SHOWN} more {word}")
    for note in found.notes:
        out.print(clean(note, 600), style="yellow")
    words = ", ".join(f"{n} {word}" for word, n in found.counts.items())
    void = f"VOID: {found.void} records count for nothing; of the others: " if found.void else ""
    out.print(f"{void}{words or 'no change'}, {found.unchanged} as before", style="bold red" if void else "bold")
