"""Speed, as ratios within one run: machines are noisy, so what is compared takes turns and medians are quoted."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import backends, kernels
from harness.cases import Case, parse_case
from harness.devices import Device
from harness.process import Child, ChildFault, environment, python
from harness.reference import Inputs, Reference
from harness.tasks import language_of

SHAPE = "gemm_i32;m=1024;n=1024;k=1024;dist=full;seed=0"
ROUNDS = 9
BUDGET_S = 120.0
PAUSE_S = 0.3
"""Seconds after which the other's idle threads have stopped spinning and leave the cores alone."""

OWN_BLAS = {"OPENBLAS_CORETYPE": None, "OPENBLAS_L2_SIZE": None}
"""Variables that make OpenBLAS slower than it is; taken away, so that a ratio flatters nobody."""


@dataclass(frozen=True)
class Figure:
    """One line of `samebits bench`: medians over ROUNDS. `ratio`: speed as a part of float64 BLAS on the same cores."""

    device: str
    what: str
    seconds: float
    gmacs: float
    ratio: float


def int32_against_blas(devices: Sequence[Device], tell: Callable[[str], None], rounds: int = ROUNDS) -> list[Figure]:
    """Every variant of int32 1024^3 (`forward`) on each device, turn by turn with NumPy's float64 product."""
    case = parse_case(SHAPE)
    figures = []
    with tempfile.TemporaryDirectory(prefix="samebits-bench-") as folder:
        paths, _ = Inputs(Path(folder)).of(case)
        blas = Child(python("harness.stopwatch", "blas"), environment(OWN_BLAS))
        with blas:
            for device in (d for d in devices if d.kind != "compile-only"):
                for kernel in kernels.variants(case.kernel, language_of(device)):
                    try:
                        figures.append(_against(device, kernel.variant, case, paths, blas, Path(folder), rounds))
                    except ChildFault as e:
                        tell(f"{device.id}: {kernel.variant}: {e}")
    return figures


def _against(
    device: Device, variant: str, case: Case, paths: Mapping[str, str], blas: Child, folder: Path, rounds: int
) -> Figure:
    request = {"case": case.id, "schedule": "forward", "variant": variant, "inputs": paths}
    changes = {**device.environment, **backends.load(device.api).cache_environment(folder)}
    with Child(python("harness.stopwatch", device.api, str(device.index)), environment(changes)) as child:
        _seconds(child, request)
        pairs = []
        for _ in range(rounds):
            own = _seconds(child, request)
            time.sleep(PAUSE_S)
            pairs.append((own, _seconds(blas, {"n": case.dims["n"]})))
            time.sleep(PAUSE_S)
    seconds = statistics.median(own for own, _ in pairs)
    macs = case.dims["m"] * case.dims["n"] * case.dims["k"]
    return Figure(
        device=device.id,
        what=f"int32 1024^3, {variant}",
        seconds=seconds,
        gmacs=macs / seconds / 1e9,
        ratio=statistics.median(peer / own for own, peer in pairs),
    )


def _seconds(child: Child, request: Mapping[str, Any]) -> float:
    child.send(request)
    return float(child.receive(BUDGET_S)["seconds"])


def reference_seconds() -> float:
    """The exact reference of int32 1024^3 beside the second implementation, conversions included, nothing cached."""
    case = parse_case(SHAPE)
    with Reference(cached=False) as reference:
        return reference.expected(case).seconds
