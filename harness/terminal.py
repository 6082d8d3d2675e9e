"""Where output goes: data to standard output, progress and errors to standard error."""

from typing import Any

import click
import msgspec


def say(text: str) -> None:
    """Progress, on standard error."""
    click.echo(text, err=True)


def print_json(data: Any) -> None:
    """One JSON value, indented, on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
