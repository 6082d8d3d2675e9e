"""Gates over mock devices without discovery and with a lock of their own; as a program, gates that can be killed.

`python mock_gates.py` takes one request a line, forks, and runs that gate in the fork: it needs no imports any more. It
answers with lines: `pid`, each result `kept` once it is in the journal, `outcome` or `error`, and `ended`.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import devices, gate, locks
from harness.backends import Driver, mock
from harness.devices import Device
from harness.errors import SamebitsError
from harness.lane import Budgets
from harness.records import Run
from harness.verdicts import Result

STRUCK = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0"
LINEAR = "linear_q8_0;m=1;n=1;k=32;dist=full;seed=0"
STRUCK_RUN = f"{STRUCK};schedule=reverse;variant=base"
SELF_TEST_RUN = "gemm_i32;m=17;n=19;k=33;dist=full;seed=0;schedule=reverse;variant=base"
BUDGETS = Budgets(probe=20, compile=1.5, run=1.5, shutdown=1.5)

WORKERS = 2
"""Of a device, unless a test says else; two lanes do whatever one does."""

Results = dict[tuple[str, str, str], tuple[str, str | None]]
"""Device, role, run key -> verdict, digest."""


def mock_device(item: str) -> Device:
    """The device of one item of SAMEBITS_MOCK, as discovery would find it."""
    spec = mock._parse(item)
    driver = Driver("mock", spec.label, mock.VARIABLE, {mock.VARIABLE: item})
    return devices._device(driver, 0, mock._report(spec, 0))


def options(folder: Path, cases: Sequence[str] = (STRUCK, LINEAR), **more: Any) -> gate.Options:
    """Of a gate whose records go to `folder`/out."""
    return gate.Options("tiny", folder / "out", cases=tuple(cases), **{"budgets": BUDGETS, "workers": WORKERS, **more})


def folders(folder: Path) -> dict[str, str]:
    """Variables that keep everything a gate writes inside `folder`."""
    places = {"SAMEBITS_STATE_DIR": folder / "state", "SAMEBITS_CACHE_DIR": folder / "cache", "TMPDIR": folder / "tmp"}
    (folder / "tmp").mkdir(exist_ok=True)
    return {name: str(place) for name, place in places.items()}


def own_lock(folder: Path) -> Callable[[Callable[[str], None]], Any]:
    """The device lock in `folder`, so that no other samebits on this host is waited for."""
    return functools.partial(locks.device_lock, shared=folder / "lock")


def results_of(runs: Sequence[Run]) -> Results:
    """What came out."""
    return {(run.header.device.id, r.role, r.run): (r.verdict, r.digest) for run in runs for r in run.results}


def bad(run: Run) -> dict[tuple[str, str], Result]:
    """The results that are not as a device that behaves makes them, by role and run key."""
    right = {"known-bad": "mismatch", "shutdown": ""}
    return {(r.role, r.run): r for r in run.results if r.verdict != right.get(r.role, "match")}


def _serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            _run(**request)
            os._exit(0)
        _tell(pid=child)
        _tell(ended=os.waitpid(child, 0)[1])


def _run(folder: str, shared: str, items: Sequence[str], cases: Sequence[str], resume: str | None) -> None:
    os.environ.update(folders(Path(folder)) | {"SAMEBITS_CACHE_DIR": folders(Path(shared))["SAMEBITS_CACHE_DIR"]})
    found = [mock_device(item) for item in items]
    devices.discover = lambda *_: found  # type: ignore[assignment]
    gate.device_lock = own_lock(Path(folder))  # type: ignore[attr-defined]
    gate._Progress.__call__ = lambda _, r: _tell(kept=[r.role, r.run])  # type: ignore[method-assign, misc, assignment]
    try:
        outcome = gate.execute(options(Path(folder), cases, resume=resume), lambda _: None)
        _tell(outcome=[str(path) for path in outcome.records], interrupted=outcome.interrupted)
    except SamebitsError as e:
        _tell(error=str(e), code=e.exit_code)


def _tell(**message: Any) -> None:
    os.write(1, msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    _serve()
