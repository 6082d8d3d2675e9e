"""Fixtures of several modules, and the order of the modules."""

from pathlib import Path

import mock_gates
import pytest
from hypothesis import HealthCheck, settings

LONG = (
    "test_dyadic_q16",
    "test_broken_drivers",
    "test_rtc",
    "test_supervisor",
    "test_cuda_host",
    "test_rogue_workers",
)
"""Modules that take longest come first, so that no process works at one when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order of LONG, the others behind it as they were."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


settings.register_profile(
    "steady", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
"""The same examples each time, however busy the machine is. `--hypothesis-profile default` looks for others."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for gates of this process, with a device lock of its own."""
    mock_gates.use_folders(monkeypatch, tmp_path)
    return tmp_path
