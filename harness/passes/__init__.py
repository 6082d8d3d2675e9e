"""Forward passes on a device: a module a profile, named as its modules in `cpu_ref`, that says which kernel makes which stage.

Each has `Cache(room)`, whose length is the positions so far, `load(source)`, which gives the model with `vocabulary`, `context`,
`layers` and `sha256`, and `OnDevice(session, model, resident)`, whose `run(tokens, cache, wanted)` yields the wanted stages of
the document in order, as `cpu_ref`'s do, and greedy last. Tokens and model are refused as the reference refuses them:
`check(model, tokens)` does so by itself. `memory(model, tokens, positions, schedule)` estimates what a pass over so many tokens
takes that ends with so many positions.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy.typing as npt

from harness.profiles import Profile

Compute = Callable[..., npt.NDArray[Any]]
"""Kernel, dimensions, options of its cases, constants and inputs to its output: `Session.compute`."""


def find(profile: Profile) -> ModuleType | None:
    """The module of a profile; None where no kernels compute all of it yet."""
    name = f"harness.passes.{profile.name.replace('-', '_')}"
    try:
        return import_module(name)
    except ModuleNotFoundError as e:
        if e.name != name:
            raise
        return None
