"""Presets: pinned lists of cases, by name and version, each case with the reason why it exists.

A preset is the same on every device. A changed list is a new version, so that years of records compare.
"""

from collections.abc import Iterator
from functools import cache

from harness.cases import Case
from harness.errors import UsageError
from harness.kernels import FAMILIES
from harness.text import near

VERSION = {"tiny": "4", "quick": "4", "full": "4", "soak": "4"}
"""Preset name -> version."""

PURPOSE = {
    "tiny": "a REDUCED run for simulators and sanitizers",
    "quick": "a REDUCED run: no large shapes, no model; it can never PASS",
    "full": "all shapes, all distributions, real weights, whole passes of a released model",
    "soak": "`full` under seeds 1, 2, 3, ... until 10^9 compared elements",
}

REDUCED = ("tiny", "quick")
"""Presets that cannot PASS."""

SOAK_ELEMENTS = 10**9

SELF_TEST: dict[str, Case] = {kernel: case for family in FAMILIES for kernel, case in family.SELF_TESTS.items()}
"""The known-answer self-test of each kernel but the control. Its known-bad twin (the last term left out) must mismatch on it."""


def pinned(text: str) -> str:
    """The preset that `NAME` or `NAME@VERSION` names; raises UsageError where this samebits has another version of it."""
    name, _, version = text.partition("@")
    if version and name in VERSION and version != VERSION[name]:
        raise UsageError(
            f"preset {text}: this samebits has {name}@{VERSION[name]}; pin that, or install one that has it"
        )
    return name


def cases(preset: str) -> list[Case]:
    """The cases of `preset`; of `soak`, the first round. Raises UsageError for an unknown name."""
    if preset not in VERSION:
        raise UsageError(f"unknown preset {preset!r}; there are {', '.join(VERSION)}{near(preset, VERSION)}")
    return _collect(preset, 1 if preset == "soak" else 0)


def _collect(preset: str, seed: int) -> list[Case]:
    return [case for family in FAMILIES for case in family.cases(preset, seed)]


def soak_round(seed: int) -> list[Case]:
    """The cases of one round of `soak`, 1, 2, 3, ...: those of `full` with that seed, and one of many outputs."""
    return _collect("soak", seed)


def soak_rounds() -> Iterator[list[Case]]:
    """Round after round; the supervisor stops."""
    seed = 1
    while True:
        yield soak_round(seed)
        seed += 1


def all_cases() -> list[Case]:
    """Every case of every preset once (the first round of `soak`), then the self-tests."""
    found = [c for preset in VERSION for c in cases(preset)]
    return list({c.id: c for c in [*found, *SELF_TEST.values()]}.values())


def holding(case: Case) -> list[str]:
    """The presets that hold the case."""
    return [preset for preset in VERSION if case.id in _ids(preset)]


@cache
def _ids(preset: str) -> frozenset[str]:
    return frozenset(case.id for case in cases(preset))
