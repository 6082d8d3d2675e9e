"""How long a test waits for what must come. No test holds a machine that has much else to do to a shorter time."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.process import Child

MINUTES = 300.0
"""Seconds. What is not to end meanwhile sleeps for longer."""


def until(came: Callable[[], object], what: str) -> None:
    """Return as soon as `came()` is true; the test fails after MINUTES."""
    deadline = time.monotonic() + MINUTES
    while not came():
        assert time.monotonic() < deadline, f"{what}: not within {MINUTES:g} s"
        time.sleep(0.02)


def patient(hangs: Callable[[Mapping[str, str]], bool]) -> type[Child]:
    """A `Child` that has MINUTES for each answer, but where its variables say that it is one that hangs."""

    class Patient(Child):
        def __init__(self, argv: Any, env: Mapping[str, str], **more: Any) -> None:
            super().__init__(argv, env, **more)
            self.hangs = hangs(env)

        def receive(self, timeout: float) -> dict[str, Any]:
            """See `Child.receive`."""
            return super().receive(timeout if self.hangs else MINUTES)

    return Patient
