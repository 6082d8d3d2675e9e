"""Whole passes of a tiny model as cases of a gate on one mock device, whose sessions compute with the reference's operations."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from exact_device import ExactDevice
from mock_gates import gate_on

from harness import kernels, matrix, models, runners
from harness.errors import DeviceFailed
from harness.families import whole
from harness.gate import Outcome
from harness.models import Model
from harness.plans import Whole
from harness.verdicts import Result

TINY = "pass_dyadic_q16;t=3;dist=licence;seed=2;model=tiny"
FORWARD, TREE = (f"{TINY};schedule={schedule};variant=base" for schedule in ("forward", "tree"))
IDS = [11, 39, 0]
ENTRY = kernels.base("pass_dyadic_q16")
assert ENTRY.whole
FEW = dataclasses.replace(ENTRY, whole=Whole("dyadic-q16", ("linear_q8_0",)))
"""With the checks of one kernel in the place of those of fifteen."""

NAMES_OF_KERNELS = set(ENTRY.whole.kernels)
Spoil = Callable[[str, dict[str, np.ndarray]], dict[str, np.ndarray]]


@pytest.fixture
def tiny_model(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A released model of 2 layers and 40 ids, and a licence in those; sessions on exact kernels."""
    path = tiny.write(here / "tiny.gguf")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(models.MODELS, "tiny", Model("tiny", path.name, path.stat().st_size, sha256, "x==1", path.name))
    monkeypatch.setenv("SAMEBITS_MODELS", str(here))
    models.verified.cache_clear()
    ids = [3, 5, *IDS, *(i % 40 for i in range(507))]
    (here / "ids.json").write_text(json.dumps({"ids": ids}))
    monkeypatch.setattr(whole, "data_file", lambda name: here / "ids.json")
    monkeypatch.setattr(runners, "Session", session())
    return path


def session(spoil: Spoil | None = None) -> Any:
    """In the place of `Session`."""

    @contextmanager
    def opened(*_: object) -> Iterator[ExactDevice]:
        yield ExactDevice(spoil)

    return opened


def broken(*faults: DeviceFailed) -> Any:
    """Sessions that end so, one after the other."""
    left = list(faults)

    def opened(*_: object) -> Any:
        raise left.pop(0)

    return opened


def passes(outcome: Outcome) -> dict[str, Result]:
    """The results of whole passes by schedule."""
    (run,) = matrix.latest(outcome.runs())
    return {r.schedule: r for r in run.results if r.role == "case"}


def gate_of(here: Path, patch: pytest.MonkeyPatch, *cases: str, **more: Any) -> Outcome:
    """On one mock, with few checks."""
    patch.setitem(kernels.WHOLE, ENTRY.name, FEW)
    return gate_on(["match"], here, patch, cases=cases or [FORWARD], **more)
