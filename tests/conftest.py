"""Fixtures of several modules, and the order of the modules."""

from pathlib import Path

import mock_gates
import psutil
import pytest
from hypothesis import HealthCheck, settings
from whole_passes import tiny_model as tiny_model

LONG = (
    "test_dyadic_q16",
    "test_broken_drivers",
    "test_lanes",
    "test_kills",
    "test_invariance",
    "test_lab",
    "test_rogue_workers",
    "test_backends",
    "test_supervisor",
    "test_forward",
    "test_interruption",
    "test_gate_options",
    "test_device_forward",
    "test_cuda_host",
    "test_kernel_line",
    "test_rtc",
    "test_dyadic_passes",
    "test_isolation",
    "test_resuming",
    "test_whole_pass",
    "test_shards",
    "test_planted_faults",
    "test_ci",
    "test_ci_steps",
    "test_compile_rows",
)
"""Modules that take longest come first, so that no process works at one when the others are done."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, for some tests wait until a budget runs out."""
    return (psutil.cpu_count() or 1) + 1


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
