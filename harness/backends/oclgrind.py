"""Oclgrind, the simulator: where its library lies, what it is told to check, and what it reported.

Its packages install no `.icd`, and it writes what it finds into a log, not into an error code.
"""

import glob
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

PLATFORM = "Oclgrind"
LIBRARY = "liboclgrind-rt-icd.so"
FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/*-linux-gnu")
LOG = "OCLGRIND_LOG"
MOST = 10_000
"""Reports in the life of a worker, after which Oclgrind says no more."""

ENVIRONMENT: dict[str, str | None] = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_MAX_ERRORS": str(MOST),
    # Work left out, a prompt, options, a smaller device; and API errors, of which pyopencl's own queries make some.
    **dict.fromkeys(
        f"OCLGRIND_{name}"
        for name in (
            *("QUICK", "INTERACTIVE", "BUILD_OPTIONS", "PLUGINS", "DUMP_SPIR", "INST_COUNTS", "CHECK_API"),
            *("MAX_WGSIZE", "GLOBAL_MEM_SIZE", "LOCAL_MEM_SIZE", "CONSTANT_MEM_SIZE"),
        )
    ),
}
"""What it looks for beside bad accesses and divergent barriers, and the variables that would weaken it (removed)."""

LOG_BYTES = 1 << 20
"""Bytes of the log that are read for one run key."""

SHOWN = 20


def libraries() -> Iterator[Path]:
    """Its library beside its program on PATH, and where distributions put it."""
    program = shutil.which("oclgrind")
    beside = [str(Path(program).resolve().parents[1] / "lib")] if program else []
    for folder in (*beside, *FOLDERS):
        for name in (LIBRARY, f"oclgrind/{LIBRARY}"):
            yield from map(Path, sorted(glob.glob(f"{folder}/{name}")))


class Reports:
    """What stands in the log since it was last read."""

    def __init__(self) -> None:
        self._log = Path(os.environ.get(LOG, ""))
        self._read = self._size()
        self._exhausted = False

    def _size(self) -> int:
        return self._log.stat().st_size if self._log.is_file() else 0

    def new(self) -> list[str]:
        """One line a report, without addresses and repetitions.

        When Oclgrind has made MOST reports it says no more, so from then on there is always one that says this.
        """
        begin, self._read = self._read, self._size()
        found: list[str] = []
        if self._read != begin:
            with self._log.open("rb") as file:
                file.seek(begin if begin < self._read else 0)
                text = file.read(LOG_BYTES).decode("utf-8", "replace")
                file.seek(max(0, self._read - 4096))
                self._exhausted |= b"suppressing" in file.read().lower()
            found = list(dict.fromkeys(map(_line, filter(None, re.split(r"\n(?=\n\S)|\A", text)))))
        if self._exhausted:
            found.append(f"Oclgrind has made {MOST} reports and says no more")
        return found[:SHOWN]


def _line(report: str) -> str:
    """A report as one line: what, in which kernel, at which line of the source."""
    what = re.sub(r" \w+ (\w+ memory) address 0x[0-9a-f]+", r" in \1", report.strip())
    kernel = re.search(r"\bKernel:\s*(\w+)", report)
    place = re.search(r"\bAt line (\d+)", report)
    parts = [what.splitlines()[0].strip(), kernel and f"kernel {kernel[1]}", place and f"line {place[1]}"]
    return ", ".join(p for p in parts if p)
