"""Which of the devices found a gate runs on."""

from pathlib import Path
from typing import Any

import pytest

from harness.backends import SIMULATOR
from harness.devices import Device
from harness.gate import Options, choose

FAST = Device("opencl:pocl:0", "opencl", "pocl", kind="software")
SLOW = Device("opencl:oclgrind:0", "opencl", "oclgrind", kind="software", features=[SIMULATOR])


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"preset": "quick"}, [FAST]),
        ({"preset": "full"}, [FAST]),
        ({"preset": "tiny"}, [FAST, SLOW]),
        ({"preset": "quick", "devices": ("oclgrind",)}, [SLOW]),
        ({"preset": "quick", "devices": ("opencl",)}, [FAST, SLOW]),
    ],
)
def test_a_simulator_is_run_unnamed_only_where_its_speed_allows(options: dict[str, Any], chosen: list[Device]) -> None:
    assert choose([FAST, SLOW], Options(out=Path(), **options)) == chosen
