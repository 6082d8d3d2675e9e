"""Strings of strangers (drivers, compilers, records) made fit for one line of a terminal, a table or an error."""

from collections.abc import Iterable
from difflib import get_close_matches


def clean(text: str, limit: int = 300) -> str:
    """`text` on one line: control, bidirectional and other unprintable characters stripped, cut to `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def near(word: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` where one of `names` is nearly `word`, else nothing: the end of an error's line."""
    known = {name.lower(): name for name in names}
    found = get_close_matches(word.lower(), known, n=1)
    return f"; did you mean {known[found[0]]}?" if found else ""
