"""What a header says of tool and machine: version, commit, libraries, driver variables, system, device."""

import contextlib
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata

import msgspec

from harness import __version__
from harness.devices import Device
from harness.folders import data_root
from harness.privacy import Redactor
from harness.records import SCHEMA, Git, Header, Planned, System

LIBRARIES = (
    *(
        "numpy",
        "pandas",
        "msgspec",
        "python-flint",
        "mpmath",
        "gguf",
        "tokenizers",
        "wgpu",
        "pyopencl",
        "pocl-binary-distribution",
    ),
    *("intel-opencl-rt", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0", "cuda-bindings", "nvidia-cuda-nvrtc"),
)
"""Distributions whose version may matter to a result, where they are installed."""


def utc_now() -> str:
    """The time as records hold it: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_header(
    device: Device,
    preset: str,
    preset_version: str,
    planned: Sequence[Planned],
    redactor: Redactor,
    *,
    nonce: int,
    budgets: Mapping[str, float],
    options: Mapping[str, bool | int | str] | None = None,
    gate_run: str | None = None,
    parent: str | None = None,
    argv: Sequence[str] | None = None,
) -> Header:
    """The header of a run that begins now. `gate_run` comes from `new_id`; `parent` is the run id that is resumed."""
    run_id = new_id()
    return Header(
        schema=SCHEMA,
        run_id=run_id,
        gate_run=gate_run or run_id,
        parent=parent,
        version=__version__,
        git=git_state(),
        preset=preset,
        preset_version=preset_version,
        started=utc_now(),
        argv=redactor.arguments(sys.argv if argv is None else argv),
        libraries=libraries(),
        variables=redactor.variables(os.environ),
        system=System(platform.system(), platform.release(), platform.machine(), platform.python_version()),
        device=recorded_device(device, redactor),
        identified=redactor.identify,
        nonce=nonce,
        budgets=dict(budgets),
        options=dict(options or {}),
        planned=list(planned),
    )


def new_id() -> str:
    """An id that no other run has: 32 hex digits."""
    return secrets.token_hex(16)


def recorded_device(device: Device, redactor: Redactor) -> Device:
    """The device as a record may name it: no environment, no folders, units salted."""

    def text(value: str) -> str:
        return redactor.text(value, names=False)

    return msgspec.structs.replace(
        device,
        id=text(device.id),
        vendor=text(device.vendor),
        name=text(device.name),
        driver=text(device.driver),
        compiler=text(device.compiler),
        uuid=redactor.unit(device.uuid),
        pci=redactor.unit(device.pci),
        features=[text(feature) for feature in device.features],
        raw=redactor.data(device.raw),
        reason=redactor.text(device.reason),
        group=redactor.text(device.group),
        origin="",
        environment={},
    )


def libraries() -> dict[str, str]:
    """The installed ones of LIBRARIES, by version."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_state() -> Git | None:
    """The commit of the checkout that this code runs from; None when it is installed, or git cannot say."""
    root = data_root()
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        return Git(commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no").strip()))
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: os.PathLike[str], *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", os.fspath(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=10).stdout
