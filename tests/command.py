"""The `samebits` command in a process of its own, on mock devices, with folders of the test."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The drivers of the machine have tests of their own; here only mocks are looked for, and no other samebits is waited for.
MAIN = """
import functools
from pathlib import Path
from harness import cli, device_session, devices, gate, locks
devices.discover = functools.partial(devices.discover, ["mock"])
gate.device_lock = device_session.device_lock = functools.partial(locks.device_lock, shared=Path("lock").absolute())
cli.main()
"""

# The scripts that examine all drivers and run a whole preset are shown on mocks and a few of its cases.
FEW = """
from harness import doctor, presets
doctor._drivers = list
whole = presets.cases
presets.cases = lambda preset: [c for c in whole(preset) if c.kernel == "gemm_i32" or preset != "tiny"]
"""


def samebits(
    folder: Path, *arguments: object, mock: str = "match", groups: str = "", expect: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run it. `mock`, `groups`, `expect`: SAMEBITS_MOCK, _GROUPS, _EXPECT. `folder`: for its state and caches."""
    variables = {
        **os.environ,
        "SAMEBITS_MOCK": mock,
        "SAMEBITS_EXPECT": expect,
        "SAMEBITS_GROUPS": groups,
        "SAMEBITS_STATE_DIR": str(folder / "state"),
        "SAMEBITS_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=600)
