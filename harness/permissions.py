"""Device nodes of GPUs that exist and that this user may not open: drivers hide such a GPU without a word."""

import grp
import os
import stat
from pathlib import Path

import msgspec

NODES = ("dri/renderD*", "kfd", "nvidiactl", "nvidia[0-9]*", "dxg")
"""Below /dev: the render nodes of Mesa's and Intel's drivers, ROCm's, NVIDIA's, and the one of WSL."""


class Node(msgspec.Struct, frozen=True):
    """A device node. `problem` and `mend` are empty where this user may read and write it."""

    path: str
    problem: str = ""
    mend: str = ""


def nodes(dev: Path = Path("/dev")) -> list[Node]:
    """The GPU device nodes of this machine."""
    return [_look(path) for pattern in NODES for path in sorted(dev.glob(pattern))]


def _look(path: Path) -> Node:
    if os.access(path, os.R_OK | os.W_OK):
        return Node(str(path))
    try:
        status = path.stat()
    except OSError as error:
        return Node(str(path), f"no access to {path}: {error.strerror}", "check the permissions of /dev")
    return refused(str(path), stat.S_IMODE(status.st_mode), status.st_gid)


def refused(path: str, mode: int, gid: int) -> Node:
    """A node of that mode and group, which this user may not open."""
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:  # a container does not know the host's groups
        group = None
    problem = f"no access to {path}: mode {mode:04o}, group {group or gid}"
    if mode & 0o060 != 0o060 or gid == 0:
        mend = f"let your administrator open {path}; in a container, pass the device in"
    elif group is None:
        mend = f"start the container with --device {path} --group-add {gid}"
    else:
        mend = f"sudo usermod -aG {group} $USER, then log in again"
    return Node(path, problem, mend)
