"""The probe child: asks the one driver that it can see for its devices, and tells them through the private pipe.

    python -m harness.probe API                 -> phase(phase) · device(report) ... · done, or fault(status, detail)
    python -m harness.probe --library NAME      -> library(path), or fault: does a shared library load, and from where

Whatever a driver does here (crash, hang, print, exit) happens to this process alone. By hand the events are printed.
"""

import ctypes
import os
import sys
from pathlib import Path

from harness import backends
from harness.channel import Channel
from harness.errors import DeviceFault, TooOld


def main() -> None:
    """Probe what the command line names, then leave without the driver's clean-up."""
    channel = Channel()
    if sys.argv[1:2] == ["--library"] and len(sys.argv) == 3:
        library(channel, sys.argv[2])
    elif len(sys.argv) == 2 and sys.argv[1] in backends.REGISTRY:
        probe(channel, sys.argv[1])
    else:
        sys.exit(f"usage: python -m harness.probe {'|'.join(backends.REGISTRY)} or --library NAME")
    channel.leave()


def probe(channel: Channel, api: str) -> None:
    """Send a report of each device of `api`, then `done`; or one `fault`."""
    try:
        channel.send({"event": "phase", "phase": "load"})
        module = backends.load(api)
        channel.send({"event": "phase", "phase": "probe"})
        for report in module.probe():
            channel.send({"event": "device", "report": report})
        channel.send({"event": "done"})
    except DeviceFault as fault:
        # "launch-error" is a word for kernels: a probe launches none.
        status = "failed" if fault.verdict == "launch-error" else fault.verdict
        status = "too-old" if isinstance(fault, TooOld) else status
        channel.send({"event": "fault", "status": status, "detail": str(fault)[:4000]})
    except Exception as error:
        missing = isinstance(error, ImportError) or (isinstance(error, OSError) and "shared object" in str(error))
        status = "missing-library" if missing else "failed"
        channel.send({"event": "fault", "status": status, "detail": f"{type(error).__name__}: {error}"[:4000]})


def library(channel: Channel, name: str) -> None:
    """Load a shared library and tell which file it was."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        channel.send({"event": "fault", "status": "missing-library", "detail": str(error)[:4000]})
        return
    channel.send({"event": "library", "path": _loaded_from(name)})


def _loaded_from(name: str) -> str:
    """The file behind a loaded library, as far as the system tells."""
    stem = Path(name).name.split(".so")[0] + ".so"
    maps = Path("/proc/self/maps")
    if maps.exists():
        for line in maps.read_text("utf-8", "replace").splitlines():
            path = line.partition("/")[2]
            if os.path.basename(path).startswith(stem):
                return "/" + path
    return name


if __name__ == "__main__":
    main()
