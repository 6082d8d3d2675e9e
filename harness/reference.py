"""What is right: asks the exact reference and the second implementation, each a process of its own, and keeps the answers.

Both read the case's input files. A case counts only where both give one digest, and where it equals the committed
golden digest if the case has one.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from harness.cases import Case
from harness.digest import digest_array, digest_bytes
from harness.errors import Incomplete, InternalError
from harness.folders import cache_folder, golden_root
from harness.kernels import base, dimensions
from harness.models import verified

if TYPE_CHECKING:
    from harness.runners import ReferenceRunner

MODULES = {"reference": "cpu_ref", "second": "cpu_ref.second"}

BUDGET_S = 900.0
"""Seconds that one case may take in a reference process."""


class Expected(msgspec.Struct, frozen=True):
    """The right output of a case: its digest by both implementations, its bytes, and what left the type.

    Of a whole pass the output is the digests of its stages (see `whole_pass`).

    `disagreement` is set where reference, second and golden digest are not one: then every run is void.
    """

    case: str
    version: str
    element: str
    dims: list[int]
    digest: str
    second: str
    leaves_type: int
    inputs: dict[str, str]
    seconds: float
    disagreement: str | None = None


class Inputs:
    """The input tensors of cases, made once, as raw little-endian files in a folder of this run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[dict[str, str], dict[str, str]]] = {}

    def of(self, case: Case) -> tuple[dict[str, str], dict[str, str]]:
        """Paths and digests by tensor name."""
        with self._lock:
            if case.id not in self._known:
                place = self.folder / case.version
                place.mkdir(parents=True, exist_ok=True)
                paths, digests = {}, {}
                for name, array in base(case.kernel).generate(case).items():
                    paths[name] = str(place / f"{name}.bin")
                    np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tofile(paths[name])
                    digests[name] = digest_array(array)
                self._known[case.id] = paths, digests
            return self._known[case.id]

    def forget(self, case: Case) -> None:
        """Remove the files of one case."""
        with self._lock:
            self._known.pop(case.id, None)
            shutil.rmtree(self.folder / case.version, ignore_errors=True)


class _Process:
    """One reference process, started when first asked, asked one case at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; InternalError when the process dies, hangs or refuses, Incomplete when it cannot write."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULES[self.name]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self.process
        assert process.stdin and process.stdout
        timer = threading.Timer(BUDGET_S, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self.close()
            raise InternalError(f"the {self.name} process died (or took over {BUDGET_S:.0f} s) on {request['id']}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            if str(answer.get("detail")).startswith("'out'"):  # the disk's fault, and nobody's arithmetic
                folder = cache_folder("reference")
                raise Incomplete(f"{folder}: {answer['detail']}; SAMEBITS_CACHE_DIR or TMPDIR names one with room")
            raise InternalError(
                f"the {self.name} refused {request['id']}: {answer['error']}: {answer.get('detail', '')}"
            )
        return answer

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None  # another thread may be closing it too
        if process:
            assert process.stdin and process.stdout
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


class Reference:
    """Right outputs, computed ahead in the background while devices run, and cached by case version.

    Use as a context manager. `expected` and `tensor` wait for the answer.
    """

    def __init__(self, *, cached: bool = True) -> None:
        self.cached = cached
        self.goldens = load_goldens()
        self.root = cache_folder("reference")
        self._temporary = tempfile.TemporaryDirectory(prefix="samebits-inputs-", ignore_cleanup_errors=True)
        self.inputs = Inputs(Path(self._temporary.name))
        self._processes = {name: _Process(name) for name in MODULES}
        self._pools = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in (*MODULES, "whole passes")}
        self._whole_runners: dict[tuple[str, str, str | None], ReferenceRunner] = {}
        self._closing = threading.Event()
        self._answers: dict[str, Future[Expected]] = {}
        self._lock = threading.Lock()
        self.computing_s = 0.0

    def __enter__(self) -> "Reference":
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.touch()
        except OSError:  # a read-only home is no reason not to run
            self.cached = False
        if not self.cached:
            self.root = Path(self._temporary.name) / "expected"
            self.root.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._end_processes()
        for pool in self._pools.values():
            pool.shutdown(wait=True)
        self._end_processes()  # those that a thread had just started
        self._temporary.cleanup()

    def _end_processes(self) -> None:
        for process in self._processes.values():
            process.close()
        for runner in self._whole_runners.values():
            runner.close()

    def prefetch(self, cases: Iterable[Case]) -> None:
        """Compute these in the background, in this order; the control has no right answer."""
        for case in cases:
            with self._lock:
                if case.id not in self._answers and not base(case.kernel).control:
                    self._answers[case.id] = self._answer(case)

    def _answer(self, case: Case) -> Future[Expected]:
        known = self._read(case) if self.cached else None
        if known:
            future = Future[Expected]()
            future.set_result(known)
            return future
        if base(case.kernel).whole:  # minutes: no kernel waits for it
            return self._pools["whole passes"].submit(self._whole, case)
        second = self._pools["second"].submit(self._ask, "second", case)
        return self._pools["reference"].submit(self._compute, case, second)

    def expected(self, case: Case, timeout: float | None = None) -> Expected:
        """The right output of `case`; raises InternalError where the reference could not say it, TimeoutError after `timeout` s."""
        self.prefetch([case])
        return self._answers[case.id].result(timeout)

    def tensor(self, case: Case) -> bytes:
        """The canonical bytes of the right output."""
        return (self._folder(case) / "expected.bin").read_bytes()

    def forget(self, case: Case) -> None:
        """Drop what is held of a case that will not come again (`soak`)."""
        self._answers.pop(case.id, None)
        self.inputs.forget(case)
        if case.id not in self.goldens:
            shutil.rmtree(self._folder(case), ignore_errors=True)

    def _folder(self, case: Case) -> Path:
        return self.root / case.version

    def _ask(self, name: str, case: Case, out: Path | None = None) -> dict[str, Any]:
        paths, _ = self.inputs.of(case)
        given: dict[str, Any] = dict(paths)
        tensor = dict(case.extra).get("tensor", "")
        if name == "reference" and case.model and tensor.endswith(".weight"):  # it has a parser of its own for the file
            given["w"] = {"gguf": str(verified(case.model)), "tensor": tensor}
        scratch = out or self.inputs.folder / f"{case.version}-{name}.bin"
        request = {"op": "compute", "id": case.id, "kernel": case.kernel, "dims": case.dims}
        request["options"] = base(case.kernel).chosen(case)
        begin = time.perf_counter()
        answer = self._processes[name].ask(request | {"inputs": given, "out": str(scratch)})
        self.computing_s += time.perf_counter() - begin
        if out is None:
            scratch.unlink(missing_ok=True)
        return answer

    def _compute(self, case: Case, second: "Future[dict[str, Any]]") -> Expected:
        folder = self._folder(case)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as f:
            out = Path(f.name)
        try:
            first = self._ask("reference", case, out)
            other = second.result()
            output = base(case.kernel).output
            dims = list(dimensions(output, case))
            digest = digest_bytes(output.element, dims, out.read_bytes())
            expected = Expected(
                case=case.id,
                version=case.version,
                element=output.element,
                dims=dims,
                digest=digest,
                second=other["digest"],
                leaves_type=first.get("leaves_type", 0),
                inputs=self.inputs.of(case)[1],
                seconds=first["seconds"],
            )
            expected = msgspec.structs.replace(expected, disagreement=self._disagreement(case, expected, first, other))
            out.replace(folder / "expected.bin")
        finally:
            out.unlink(missing_ok=True)
        self._remember(folder, expected)
        return expected

    def _whole(self, case: Case) -> Expected:
        from harness import whole_pass  # its runners know of this module

        begin = time.perf_counter()
        runners = [self._whole_runner(name, case) for name in MODULES]
        with ThreadPoolExecutor(len(MODULES)) as both:
            first, other = both.map(lambda runner: whole_pass.stages_by(runner, case, self._closing), runners)
        self.computing_s += time.perf_counter() - begin
        (raw, dims), (raw_2, dims_2) = (whole_pass.canonical(found.values()) for found in (first, other))
        element = base(case.kernel).output.element
        expected = Expected(
            case=case.id,
            version=case.version,
            element=element,
            dims=dims,
            digest=digest_bytes(element, dims, raw),
            second=digest_bytes(element, dims_2, raw_2),
            leaves_type=0,
            inputs=self.inputs.of(case)[1],
            seconds=round(time.perf_counter() - begin, 3),
        )
        stages = [(f"reference's {name}", digest, "second's", other.get(name)) for name, digest in first.items()]
        fault = _first_difference(case, [*stages, *self._golden_claims(case, expected)])
        expected = msgspec.structs.replace(expected, disagreement=fault)
        folder = self._folder(case)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "expected.bin").write_bytes(raw)
        self._remember(folder, expected)
        return expected

    def _whole_runner(self, name: str, case: Case) -> "ReferenceRunner":
        """The process of an implementation that has a case's model loaded: most of a pass is to build its matrices."""
        from harness import whole_pass

        key = name, case.kernel, case.model
        if key not in self._whole_runners:
            self._whole_runners[key] = whole_pass.reference_runner(name, case)
        return self._whole_runners[key]

    def _remember(self, folder: Path, expected: Expected) -> None:
        """Leave it in the cache, but for a disagreement."""
        if not expected.disagreement:
            temporary = folder / "expected.json.part"
            temporary.write_bytes(msgspec.json.encode(expected))
            temporary.replace(folder / "expected.json")

    def _golden_claims(self, case: Case, e: Expected) -> list[tuple[str, object, str, object]]:
        golden = self.goldens.get(case.id, {})
        same = golden.get("version") == case.version
        return [("reference", e.digest, "committed golden digest", golden["digest"])] if same else []

    def _disagreement(self, case: Case, e: Expected, first: dict[str, Any], other: dict[str, Any]) -> str | None:
        claims: list[tuple[str, object, str, object]] = [
            ("reference", first["digest"], "its own output file", e.digest),
            ("reference", e.digest, "second", e.second),
            (
                "reference's count of outputs that leave the type",
                e.leaves_type,
                "second's",
                other.get("leaves_type", 0),
            ),
        ]
        for name, digest in e.inputs.items():
            claims.append((f"harness's input {name}", digest, "reference's", first["input_digests"][name]))
            claims.append((f"harness's input {name}", digest, "second's", other["input_digests"][name]))
        return _first_difference(case, [*claims, *self._golden_claims(case, e)])

    def _read(self, case: Case) -> Expected | None:
        """The cached answer, if it is whole: its bytes still have its digest, and the golden digest is the same."""
        folder = self._folder(case)
        try:
            known = msgspec.json.decode((folder / "expected.json").read_bytes(), type=Expected)
            digest = digest_bytes(known.element, known.dims, (folder / "expected.bin").read_bytes())
        except (OSError, ValueError, KeyError, msgspec.MsgspecError):
            return None
        golden = self.goldens.get(case.id, {})
        wrong_golden = golden.get("version") == case.version and golden["digest"] != digest
        if known.case != case.id or digest != known.digest or known.second != digest or wrong_golden:
            return None
        return known


def _first_difference(case: Case, claims: Iterable[tuple[str, object, str, object]]) -> str | None:
    for name, value, against, other in claims:
        if value != other:
            return f"{case.id}: {name} {value} != {against} {other}"
    return None


def load_goldens() -> dict[str, dict[str, str]]:
    """Committed digests: case id -> {"version", "digest"}; raises InternalError where a file is damaged."""
    goldens: dict[str, dict[str, str]] = {}
    for path in sorted(golden_root().glob("*.json")):
        try:
            goldens |= msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
        except (OSError, msgspec.MsgspecError) as e:
            raise InternalError(f"golden digests {path.name} cannot be read: {e}; install samebits again") from e
    return goldens


def golden_entry(expected: Expected) -> dict[str, str]:
    """What is committed of one case."""
    return {"version": expected.version, "digest": expected.digest}
