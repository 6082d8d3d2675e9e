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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
from patience import MINUTES, until

from harness import devices, gate, locks, store
from harness.backends import Driver, mock
from harness.devices import Device
from harness.errors import InputRefused, SamebitsError
from harness.lane import Budgets
from harness.records import Run
from harness.verdicts import Result

if TYPE_CHECKING:
    import pytest

STRUCK = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0"
LINEAR = "linear_q8_0;m=1;n=1;k=32;dist=full;seed=0"
CASES = (STRUCK, LINEAR)
STRUCK_RUN = f"{STRUCK};schedule=reverse;variant=base"
SELF_TEST_RUN = "gemm_i32;m=17;n=19;k=33;dist=full;seed=0;schedule=reverse;variant=base"
BUDGETS = Budgets(*[MINUTES] * 4)
HURRIED = Budgets(probe=MINUTES, compile=4, run=4, shutdown=4)
"""Of gates over devices that hang: still long, for what others of their phases take."""

WORKERS = 2
"""Of a device, unless a test says else; two lanes do whatever one does."""

Results = dict[tuple[str, str, str], tuple[str, str | None]]
"""Device, role, run key -> verdict, digest."""


def mock_device(item: str) -> Device:
    """The device of one item of SAMEBITS_MOCK, as discovery would find it."""
    spec = mock._parse(item)
    driver = Driver("mock", spec.label, mock.VARIABLE, {mock.VARIABLE: item})
    return devices._device(driver, 0, mock._report(spec, 0))


def options(folder: Path, cases: Sequence[str] = CASES, **more: Any) -> gate.Options:
    """Of a gate whose records go to `folder`/out."""
    return gate.Options("tiny", folder / "out", cases=tuple(cases), **{"budgets": BUDGETS, "workers": WORKERS, **more})


def folders(folder: Path) -> dict[str, str]:
    """Variables that keep everything a gate writes inside `folder`."""
    places = {"SAMEBITS_STATE_DIR": folder / "state", "SAMEBITS_CACHE_DIR": folder / "cache", "TMPDIR": folder / "tmp"}
    (folder / "tmp").mkdir(exist_ok=True)
    return {name: str(place) for name, place in places.items()}


def use_folders(patch: "pytest.MonkeyPatch", folder: Path) -> None:
    """Everything that a gate of this process writes goes into `folder`; what the reference says is shared by all tests."""
    for name, place in folders(folder).items():
        patch.setenv(name, place)
    patch.setenv("SAMEBITS_CACHE_DIR", str(folder.parent / "cache"))
    patch.setattr("tempfile.tempdir", None)
    patch.setattr(gate, "device_lock", own_lock(folder))


def gate_on(items: Sequence[str], folder: Path, patch: "pytest.MonkeyPatch", **more: Any) -> gate.Outcome:
    """A gate over `items` in this process; where one of them hangs, with budgets of seconds."""
    hangs = any("hang" in item for item in items)
    more = {"budgets": HURRIED if hangs else BUDGETS, **more}
    patch.setattr(devices, "discover", lambda **_: [mock_device(item) for item in items])
    return gate.execute(options(folder, **more), lambda _: None)


def own_lock(folder: Path) -> Callable[[Callable[[str], None]], Any]:
    """The device lock in `folder`, so that no other samebits on this host is waited for."""
    return functools.partial(locks.device_lock, shared=folder / "lock")


def results_of(runs: Sequence[Run]) -> Results:
    """What came out."""
    return {(run.header.device.id, r.role, r.run): (r.verdict, r.digest) for run in runs for r in run.results}


def left(folder: Path) -> list[Run]:
    """Every run that can be read in `folder`; only one that was killed in its header cannot."""
    found = []
    for path in [*(folder / "out").rglob("*.jsonl.gz"), *(folder / "state" / "journals").glob("*.jsonl")]:
        try:
            found.append(store.load(path))
        except InputRefused as e:
            assert "holds no whole line" in str(e) and path.suffix == ".jsonl"
    return found


def done(runs: Sequence[Run]) -> set[tuple[str, str, str]]:
    """Device, role and run key of what is finished in any of them."""
    return {key for run in runs for key, (verdict, _) in results_of([run]).items() if verdict != "not-run"}


def journal_files(folder: Path) -> list[Path]:
    """Unsealed journals."""
    return list((folder / "state" / "journals").iterdir())


def living(folder: Path) -> list[str]:
    """Living processes whose temporary folder is `folder`'s."""
    found = []
    for process_ in psutil.process_iter():
        with suppress(psutil.Error):
            if process_.environ().get("TMPDIR") == str(folder / "tmp") and process_.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process_.cmdline()))
    return found


def left_behind(folder: Path) -> list[str]:
    """What lies in its temporary folder, and what lives there after minutes."""
    until(lambda: not living(folder), f"an end of {living(folder)}")
    return [str(path) for path in (folder / "tmp").iterdir()]


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
    devices.discover = lambda **_: found  # type: ignore[assignment]
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
