"""A backend whose driver does what the variable FAKE says. `fake_probe.py` is its probe child."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import errors
from harness.backends import Driver

LANGUAGE = "cuda"


def driver(label: str, does: str = "", problem: str | None = None) -> Driver:
    """A driver that misbehaves as `does` says."""
    return Driver("fake", label, f"/etc/fake/{label}.icd", {"FAKE": does or label}, problem)


def drivers() -> list[Driver]:
    return []


def cache_environment(folder: Path) -> dict[str, str]:
    assert folder.is_dir()
    return {"FAKE_CACHE": str(folder)}


def report(**fields: Any) -> dict[str, Any]:
    return {"name": "Fake 3000", "vendor": "Fake", "driver": "1.2", "kind": "software"} | fields


def probe() -> list[dict[str, Any]]:
    does = os.environ["FAKE"]
    print("a driver that talks while it is probed")
    match does:
        case "segv" | "abort":
            print("the driver's last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), {"segv": signal.SIGSEGV, "abort": signal.SIGABRT}[does])
        case "hang":
            time.sleep(3600)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.run(["sleep", "3600"], check=False)
        case "exit":
            os._exit(0)
        case "import":
            import no_such_gpu_library  # type: ignore[import-not-found] # noqa: F401
        case "library":
            raise OSError("libfake.so.1: cannot open shared object file: No such file or directory")
        case "error":
            raise RuntimeError("no\nuse")
        case "compile":
            raise errors.CompileError("unknown target CPU 'generic'")
        case "fault":
            raise errors.DeviceFault("the loader found no platform")
        case "empty":
            return []
        case "twins":
            return [report(kind="hardware", uuid="ab" * 16) for _ in range(2)]
        case "nonsense":
            return [{"name": 3}]
        case "many":
            return [report() for _ in range(300)]
        case "flood":
            return [report(raw={"x": "y" * (2 << 20)})]
        case "escape":
            return [report(name="evil\x1b[2J\nsecond line", vendor="a" * 500)]
        case "chatty":
            for _ in range(100):
                os.write(1, b"x" * 65536)
        case "only":
            return [report(name=f"sees {sorted(n for n in os.environ if n.startswith('FAKE'))}")]
    return [report()]
