"""Which of the devices found a gate runs on."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.backends import ONLY_TINY
from harness.devices import Device
from harness.gate import Options, choose

FAST = Device("opencl:pocl:0", "opencl", "pocl", kind="software")
SLOW = Device("opencl:oclgrind:0", "opencl", "oclgrind", kind="software")


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
@pytest.mark.parametrize("feature", ONLY_TINY)
def test_a_simulator_and_its_like_are_run_unnamed_only_where_their_speed_allows(
    options: dict[str, Any], chosen: list[Device], feature: str
) -> None:
    slow = msgspec.structs.replace(SLOW, features=[feature])
    found = choose([FAST, slow], Options(out=Path(), **options))
    assert [d.id for d in found] == [d.id for d in chosen]
