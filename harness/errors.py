"""Every error that samebits raises on purpose, arranged by what the caller does next.

    SamebitsError
    ├── UsageError        exit 2   mend the command: option, case, device, preset, environment
    ├── InputRefused      exit 2   mend the file: model, record, expectation
    ├── DeviceFailed      exit 1   look at the device: it crashed, hung, or left no sure result (2: unsupported)
    ├── NoDevice          exit 3   install or name a device
    ├── Incomplete        exit 4   run again with --resume
    └── InternalError     exit 5   report it: the verdicts of this run are void

Inside a worker a backend raises a `DeviceFault`; the supervisor turns it into a verdict, never into an exit.

    DeviceFault
    ├── Unsupported       the device lacks a feature that the kernel needs
    │   └── TooOld        a driver or compiler is older than its backend needs: in discovery a row of its own kind
    ├── CompileError      the device's compiler refused the kernel
    ├── LaunchError       the driver refused buffers or dispatch
    └── DeviceLost        the device is gone; the worker must be replaced

Each message is one line: it names the thing and the mend.
"""


class SamebitsError(Exception):
    """Base of all errors shown to a user as one line. `exit_code` is the process's exit code."""

    exit_code = 5


class UsageError(SamebitsError):
    """The command line or the environment names something that does not exist."""

    exit_code = 2


class InputRefused(SamebitsError):
    """A file (model, record, expectation) is not what it must be."""

    exit_code = 2


class DeviceFailed(SamebitsError):
    """A device crashed, hung, refused a kernel, or left an output that two runs do not agree on.

    `verdict` is the word for it, `void` where the compiled nonce did not come back; `phase` is where it happened. A device that
    lacks a feature has not failed: `unsupported` exits with 2, as what another device or form would mend.
    """

    exit_code = 1

    def __init__(self, message: str, verdict: str = "crash", phase: str | None = None) -> None:
        super().__init__(message)
        self.exit_code = UsageError.exit_code if verdict == "unsupported" else type(self).exit_code
        self.verdict = verdict
        self.phase = phase


class NoDevice(SamebitsError):
    """No device at all, or a named or expected device is missing."""

    exit_code = 3


class Incomplete(SamebitsError):
    """The run was interrupted or its output could not be kept; finished cases are in the journal."""

    exit_code = 4


class InternalError(SamebitsError):
    """A fault of samebits itself, or a void run."""

    exit_code = 5


class DeviceFault(Exception):
    """Base of what a backend raises inside a worker. `verdict` is the word it becomes."""

    verdict = "launch-error"


class Unsupported(DeviceFault):
    """The device lacks `feature`: the kernel needs `needed`, the device has `there`."""

    verdict = "unsupported"

    def __init__(self, feature: str, needed: str = "yes", there: str = "no") -> None:
        super().__init__(f"{feature}: needs {needed}, device has {there}")
        self.feature = feature
        self.needed = needed
        self.there = there


class TooOld(Unsupported):
    """`what` (a driver, an API, a compiler) is of version `there`, the backend needs `needed`; `mend` says what to do."""

    def __init__(self, what: str, needed: str, there: str, mend: str) -> None:
        super().__init__(what, needed, there)
        self.args = (f"{what} {there} is older than the {needed} that is needed: {mend}",)


class CompileError(DeviceFault):
    """The device's compiler refused the kernel; the message starts with the first line of its log."""

    verdict = "compile-error"


class LaunchError(DeviceFault):
    """The driver refused an allocation, a binding or a dispatch."""

    verdict = "launch-error"


class DeviceLost(DeviceFault):
    """The device was lost or reset."""

    verdict = "device-lost"
