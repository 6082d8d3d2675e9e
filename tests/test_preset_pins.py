"""Presets are pinned by name and version: a list that changes under its version would spoil years of records."""

import hashlib
import json
from pathlib import Path

import pytest

from harness import kernels, presets, selections

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


@pytest.mark.parametrize("language", kernels.LANGUAGES)
@pytest.mark.parametrize("preset", ["tiny", "quick"])
def test_every_kernel_is_run_in_each_variant_under_each_schedule(preset: str, language: kernels.Language) -> None:
    """What compile-only rows rest on too: they are run under `tiny` alone."""
    runs = [run for selection in selections.chosen(preset) for run in selection.runs(language)]
    there = {(run.case.partition(";")[0], run.variant, run.schedule) for run in runs}
    assert there == {(k.name, k.variant, s) for k in kernels.KERNELS if language in k.languages for s in k.schedules}


def test_full_reads_five_released_tensors_of_the_first_the_middle_and_the_last_layer() -> None:
    """Of SmolLM2, on generated activations."""
    cases = [c for c in presets.cases("full") if c.kernel == "linear_q4_1" and c.dist == "real"]
    names = ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_down")
    wanted = {f"blk.{layer}.{name}.weight" for layer in (0, 11, 29) for name in names}
    assert len(cases) == 15 and {dict(c.extra)["tensor"] for c in cases} == wanted
