"""The `samebits` command in a process of its own, on mock devices, with folders of the test."""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The drivers of the machine have tests of their own; here only mocks are looked for, and no other samebits is waited for.
MAIN = """
import functools, os
from pathlib import Path
from harness import cli, device_session, devices, gate, locks
devices.discover = functools.partial(devices.discover, ["mock"], 600)
lock = Path(os.environ["SAMEBITS_CACHE_DIR"]).absolute() / "lock"
gate.device_lock = device_session.device_lock = functools.partial(locks.device_lock, shared=lock)
cli.main()
"""

# The scripts that examine all drivers and run a whole preset are shown on mocks and a few of its cases.
FEW = """
from harness import doctor, presets
doctor._drivers = list
whole = presets.cases
few = "gemm_i32;m=17;n=19;"
presets.cases = lambda preset: [c for c in whole(preset) if c.id.startswith(few) or preset != "tiny"]
"""


# Forks a process a command, which has all imports behind it: they take longer than what most tests ask for.
SERVER = """
import json, os, signal, sys
from harness import cli, device_session, devices, gate, locks, matrix, reference, report, runners, table
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(600)
        os.environ.clear()
        os.environ.update(asked["variables"])
        os.chdir(asked["folder"])
        for number, (name, how) in enumerate(asked["streams"]):
            os.dup2(os.open(name, how), number)
        sys.argv[1:] = asked["arguments"]
        exec(asked["code"])
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _server() -> "subprocess.Popen[str]":
    started = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(started.communicate)
    return started


def samebits(
    folder: Path, *arguments: object, mock: str = "match", groups: str = "", expect: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run it in a process of its own. `mock`, `groups`, `expect`: SAMEBITS_MOCK, _GROUPS, _EXPECT.

    `folder`: where it works, and for its state and caches.
    """
    variables = {
        **os.environ,
        "SAMEBITS_MOCK": mock,
        "SAMEBITS_EXPECT": expect,
        "SAMEBITS_GROUPS": groups,
        "SAMEBITS_STATE_DIR": str(folder / "state"),
        "SAMEBITS_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    words = list(map(str, arguments))
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        streams = [(os.devnull, os.O_RDONLY), *((file.name, os.O_WRONLY) for file in (out, err))]
        asked = {"variables": variables, "folder": str(folder), "streams": streams, "arguments": words, "code": MAIN}
        server = _server()
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, out.read(), err.read())
