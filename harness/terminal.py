"""The command line's own types, and where output goes: data to standard output, progress and errors to standard error."""

import os
from pathlib import Path
from typing import Any

import click
import msgspec


class _NamedPath(click.Path):
    """A path that is not empty: an unset variable of a script would name the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuses the empty string."""
        if value == "":
            self.fail("the name is empty; '.' is the working folder", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)
"""The type of every path on a command line."""


def say(text: str) -> None:
    """Progress, on standard error; where that takes nothing there is nobody to tell."""
    try:
        click.echo(text, err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def print_json(data: Any) -> None:
    """One JSON value, indented, on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
