"""Strings of strangers (drivers, compilers, records) made fit for one line of a terminal, a table or an error."""


def clean(text: str, limit: int = 300) -> str:
    """`text` on one line: control, bidirectional and other unprintable characters stripped, cut to `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
