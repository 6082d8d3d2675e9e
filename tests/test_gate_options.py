"""Options of `gate` that are refused before anything runs."""

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "nan"], "no time"),
        (["--preset", "soak", "--time", "inf"], "no time"),
        (["--preset", "tiny", "--time", "5"], "--preset soak"),
        (["--resume", ""], "names nothing"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(words: list[str], said: str) -> None:
    """One line and exit code 2."""
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(cli, ["gate", *words], catch_exceptions=False, standalone_mode=False)
