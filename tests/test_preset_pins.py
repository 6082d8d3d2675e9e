"""Presets are pinned by name and version: a list that changes under its version would spoil years of records."""

import hashlib
import json
from pathlib import Path

import pytest

from harness import presets

PINS = Path(__file__).with_name("presets.json")
"""`NAME@VERSION` -> number of cases and SHA-256 of their sorted ids. Lines are added, never changed."""


@pytest.mark.parametrize("preset", presets.VERSION)
def test_a_preset_is_the_list_that_its_version_was_pinned_to(preset: str) -> None:
    """Mend: raise the preset's VERSION and add a line for it, in what was never released change the line."""
    ids = sorted(case.id for case in presets.cases(preset))
    now = {"cases": len(ids), "sha256": hashlib.sha256("\n".join(ids).encode()).hexdigest()}
    name = f"{preset}@{presets.VERSION[preset]}"
    pinned = json.loads(PINS.read_text("utf-8"))
    assert pinned.get(name) == now, f'{name} is another list now; {PINS.name} would want "{name}": {json.dumps(now)}'
