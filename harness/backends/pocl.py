"""PoCL's work-group methods: how it makes one loop, or many copies, of a work-item. Each that a PoCL has is a row.

One that it does not know it replaces by another, and only prints that it did. So the probe looks at what is printed.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from harness.backends import Driver
from harness.backends.common import unique_label
from harness.errors import Unsupported

VARIABLE = "POCL_WORK_GROUP_METHOD"
METHODS = ("loops", "loopvec", "repl", "cbs")
"""All that any version has had, under the names that the variable takes."""

LIMITS: dict[str, dict[str, str | None]] = {"repl": {"POCL_MAX_WORK_GROUP_SIZE": "64"}}
"""What more a method needs: LLVM takes seconds for 64 copies of a work-item with loops, and over 8 minutes for 256."""

PLATFORM = "Portable Computing Language"
SOURCE = """
__kernel void turn(__global uint *a) {
    __local uint held[4];
    uint i = get_local_id(0);
    held[i] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    a[i] = held[3u - i];
}
"""


def rows(default: Driver, taken: list[Driver]) -> Iterator[Driver]:
    """A driver a method, beside the `default` one."""
    for method in METHODS if default.problem is None else ():
        label = unique_label([f"{default.label}-{method}"], (d.label for d in taken))
        yield Driver(
            default.api, label, default.origin, default.environment | {VARIABLE: method, **LIMITS.get(method, {})}
        )


def method_checked(device: Any) -> bool:
    """Whether a method is wanted, and a program was built by it; raises Unsupported where `device` builds by another."""
    import pyopencl as cl

    method = os.environ.get(VARIABLE)
    if method is None or device.platform.name != PLATFORM:
        return False
    context = cl.Context([device])
    with tempfile.TemporaryFile() as printed:
        with _standard_error_into(printed):
            program = cl.Program(context, SOURCE).build()
            buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 16)
            queue = cl.CommandQueue(context)
            cl.Kernel(program, "turn")(queue, (4,), (4,), buffer).wait()
        printed.seek(0)
        if b"unknown work group" in printed.read(1 << 16).lower():
            raise Unsupported(VARIABLE, method, "no such method")
    return True


@contextmanager
def _standard_error_into(file: IO[bytes]) -> Iterator[None]:
    """Whatever prints on standard error, a library too, prints into `file`."""
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
