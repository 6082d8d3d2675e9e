"""What a worker hands over, taken with distrust: its claims as typed events, its dumps as files, and what is kept of a failure."""

import itertools
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from harness import kernels
from harness.cases import Case, RunKey
from harness.digest import numpy_type
from harness.kernels import GUARD_WORDS
from harness.process import ProtocolError
from harness.reference import Inputs
from harness.text import clean
from harness.verdicts import operands

KEPT_FAILURES = 8
"""Failures of one run whose tensors and compiled artefacts are kept, KEPT_BYTES a tensor at most."""

KEPT_BYTES = 1 << 26

OPERATIONS_TOLD = 4
"""Operations of a probe that the detail of a result names."""

DETAIL_LIMIT = 4000
"""Characters of a driver's words that a record keeps."""

Duration = Annotated[float, msgspec.Meta(ge=0, le=1e8)]
T = TypeVar("T")


class Building(msgspec.Struct, frozen=True):
    """What compiling took."""

    compile: Duration


class Compiled(msgspec.Struct, frozen=True):
    """The event of a run key on a compile-only device: it built, and nobody knows what it computes."""

    seconds: Building


class Seconds(Building, frozen=True):
    """What the phases of a run key took."""

    upload: Duration
    run: Duration


class Dumped(msgspec.Struct, frozen=True):
    """The event of a run key that was run twice."""

    files: tuple[str, str]
    receipts: tuple[list[str], list[str]]
    seconds: Seconds
    sanitizer: list[str] = []

    def nonce_fault(self, nonce: int) -> str | None:
        """What came back instead of the nonce that was compiled in."""
        wanted = nonce.to_bytes(4, "little").hex()
        wrong = [word for words in self.receipts for word in words or ["nothing"] if word != wanted]
        return f"the compiled nonce {wanted} did not come back, but {clean(wrong[0], 20)}" if wrong else None


class Submitted(msgspec.Struct, frozen=True):
    """The event of a submission that is done. Receipts: kernel, variant, schedule and the words in hexadecimal."""

    receipts: list[tuple[str, str, str, list[str]]]
    seconds: Seconds
    sanitizer: list[str] = []


class Fault(msgspec.Struct, frozen=True):
    """The event of a run key, or a device, that the driver refused or lost."""

    verdict: Literal["unsupported", "compile-error", "launch-error", "device-lost"]
    detail: str = ""
    feature: str | None = None
    needed: str | None = None
    there: str | None = None

    def said(self) -> dict[str, str]:
        """The fields of a result, cut to what a record may hold."""
        fields: dict[str, str | None] = msgspec.structs.asdict(self)
        return {name: text[:DETAIL_LIMIT] for name, text in fields.items() if text and name != "verdict"}


def understood(event: Any, kind: type[T]) -> T:
    """The event as a `kind`; raises ProtocolError."""
    try:
        return msgspec.convert(event, kind)
    except msgspec.ValidationError as e:
        raise ProtocolError(f"it claims what makes no sense: {e}") from None


def read_dumps(folder: Path, names: tuple[str, str], size: int) -> tuple[bytes, bytes]:
    """The dumps of an output of `size` bytes, cut a little after where they should end; raises ProtocolError."""
    limit = size + 4 * GUARD_WORDS + 5  # padding to a word, and one byte more, which shows that it is too long
    return _read(folder, names[0], limit), _read(folder, names[1], limit)


def read_fetched(path: Path, size: int) -> tuple[bytes, bytes]:
    """`size` bytes of a tensor that was fetched to `path`, and what stands behind it; raises ProtocolError."""
    content = _read(path.parent, str(path), size + 4 * GUARD_WORDS + 1)
    return content[:size], content[size:]


def _read(folder: Path, name: str, limit: int) -> bytes:
    path = Path(name)
    try:
        if path.parent != folder:
            raise OSError("it is not in the folder for dumps")
        # A link is not followed, a pipe does not block.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise OSError("it is no plain file")
            return f.read(limit)
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ProtocolError(f"dump {clean(path.name, 80)!r} cannot be read: {why}") from e


def operands_at(case: Case, inputs: Inputs, index: Sequence[int]) -> dict[str, list[int]]:
    """By input tensor, what the output element at `index` depends on."""
    if not index:
        return {}
    kernel = kernels.base(case.kernel)
    paths, _ = inputs.of(case)
    arrays: dict[str, tuple[tuple[str | int, ...], npt.NDArray[Any]]] = {}
    for tensor in kernel.inputs:
        shape = kernels.dimensions(tensor, case)
        array = np.memmap(paths[tensor.name], numpy_type(tensor.element), "r", shape=shape)
        arrays[tensor.name] = (tensor.dims, array)
    return operands(index, kernel.output.dims, arrays)


def wrong_operations(case: Case, inputs: Inputs, right: bytes, got: bytes) -> str | None:
    """Of a probe, each operation that went wrong with the smallest operands on which it did: `rem_s32(-7, 2, 0, 0) gave ...`."""
    kernel = kernels.base(case.kernel)
    if kernel.probe is None or not kernel.probe.operations:
        return None
    paths, _ = inputs.of(case)
    rows = case.dims["rows"]
    ops = np.fromfile(paths["ops"], "<i4")
    operands = np.fromfile(paths["operands"], "<i4").reshape(rows, -1)
    expected = np.frombuffer(right, "<i4").reshape(rows, -1)
    actual = np.frombuffer(got, "<i4", expected.size).reshape(rows, -1)
    wrong = np.flatnonzero((expected != actual).any(axis=1))
    told = []
    for op in np.unique(ops[wrong]):
        row = min(wrong[ops[wrong] == op], key=lambda r: sum(abs(int(v)) for v in operands[r]))
        words = ", ".join(map(str, operands[row].tolist()))
        told.append(
            f"{kernel.probe.operations[op]}({words}) gave {actual[row].tolist()}, right is {expected[row].tolist()}"
        )
    more = f"; and {len(told) - OPERATIONS_TOLD} operations more" if len(told) > OPERATIONS_TOLD else ""
    return "; ".join(told[:OPERATIONS_TOLD]) + more if told else None


class Failures:
    """The folder beside the records where failures of one run lie: a folder each, with both sides and the artefacts.

    `wanting`: where the compiled artefacts of those go whose worker has not been asked for them yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanting: dict[RunKey, Path] = {}
        self._kept = itertools.count()

    def keep(self, run: RunKey, dumps: Sequence[bytes], right: bytes) -> list[str]:
        """Write both sides of a failure; what the record says of it."""
        if len(right) > KEPT_BYTES or next(self._kept) >= KEPT_FAILURES:
            return []
        place = self.folder / str(run).replace(";", "_").replace("/", "_")
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, data in {"expected.bin": right, "actual-1.bin": dumps[0], "actual-2.bin": dumps[1]}.items():
                (place / name).write_bytes(data)
        except OSError as e:
            return [f"not kept: {e.strerror}"]
        self.wanting[run] = place
        return [f"{self.folder.name}/{place.name}"]
