"""Records made by hand, without a device: a header, results, and a sealed file."""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import store
from harness.devices import Device
from harness.errors import InputRefused
from harness.journal import Journal
from harness.privacy import Redactor
from harness.provenance import new_header
from harness.records import Header, Planned
from harness.verdicts import Result

CASE = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0"
RUNS = [f"{CASE};schedule={schedule};variant=base" for schedule in ("forward", "reverse", "tree")]
RIGHT = "a" * 64
UUID = "GPU-0a1b2c3d-1111-2222-3333-444455556666"
PCI = "0000:17:00.0"
SALT = b"s" * 32

DEVICE = Device(
    "vulkan:lvp:0",
    "vulkan",
    "lvp",
    kind="hardware",
    vendor="NVIDIA",
    name="NVIDIA Test",
    driver="1.2",
    uuid=UUID,
    pci=PCI,
)


def redactor(**more: Any) -> Redactor:
    """With a fixed salt, and the names of one user and one host."""
    return Redactor(SALT, names=["alice", "secrethost"], **more)


def header(device: Device = DEVICE, **more: Any) -> Header:
    """A run of RUNS that begins now."""
    planned = [Planned(run, "v" * 64, "h" * 64) for run in RUNS]
    made = new_header(
        device, "tiny", "1", planned, redactor(), nonce=7, budgets={"run": 1.0}, argv=["samebits", "gate"]
    )
    return msgspec.structs.replace(made, **more)


def result(run: str = RUNS[0], verdict: str = "match", **more: Any) -> Result:
    """A judged run key."""
    given: dict[str, Any] = {"digest": RIGHT, "expected": RIGHT, "elements": 2, "seconds": {"run": 0.5}} | more
    schedule = run.rpartition(";schedule=")[2].partition(";")[0]
    return Result(
        run=run, case=CASE, schedule=schedule, variant="base", verdict=verdict, case_version="v" * 64, kernel_hash="h" * 64,
        **given,
    )  # fmt: skip


def sealed(out: Path, *, results: list[Result] | None = None, **more: Any) -> Path:
    """A record of a whole run; needs SAMEBITS_STATE_DIR."""
    with Journal(header(**more), redactor()) as journal:
        for r in [result(run) for run in RUNS] if results is None else results:
            journal.started(r.run)
            journal.result(r)
        journal.footer()
        return journal.seal(out)


def lines(record: Path) -> list[Any]:
    """The lines of a record as plain data."""
    return [msgspec.json.decode(line) for line in gzip.decompress(record.read_bytes()).splitlines()]


def forged(folder: Path, data: bytes, stamp: str = "20261130T000000Z", *, packed: bool = False) -> Path:
    """A file whose name fits its bytes, whatever these are: `data` are lines, or (`packed`) the file itself."""
    content = data if packed else gzip.compress(data, mtime=0)
    path = folder / f"{stamp}__{hashlib.sha256(content).hexdigest()}.jsonl.gz"
    path.write_bytes(content)
    return path


def encoded(content: list[Any]) -> bytes:
    """Lines of plain data."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in content)


def refused(path: Path) -> str:
    """The one line that refuses a record."""
    with pytest.raises(InputRefused) as error:
        store.load(path)
    message = str(error.value)
    assert path.name in message and "; " in message and message.isprintable() and len(message) < 1200
    return message
