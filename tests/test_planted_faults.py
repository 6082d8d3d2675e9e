"""Imitations of known faults, planted into the CUDA sources of probes: seen where the coverage page says, and only there."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cpu_ref import probe as reference
from harness import kernels
from harness.backends.cuda_host import CudaHost, _compilers
from harness.families import probe, probe_rows
from harness.verdicts import SENTINELS
from harness.worker import constants_of, fill_of, words_of

PLANTED = [fault for fault in probe_rows.faults() if "imitation" in fault]


@pytest.fixture(scope="module")
def host() -> Iterator[CudaHost]:
    """g++ without its optimiser, for speed."""
    device = CudaHost(next(c for c in _compilers() if c.label == "g++"), ["-O0"])
    yield device
    device.close()


def wrong_operations(host: CudaHost, kernel: kernels.Kernel, text: str) -> set[tuple[str, str]]:
    """Distribution and operation of every row on which the program `text` errs, over the kernel's tables."""
    program = host.compile(kernel, text, constants_of("forward", 1, False))
    width, operations = reference.PROBES[kernel.name]
    found = set()
    for case in (c for c in probe.cases("quick", 0) if c.kernel == kernel.name and kernel.takes(c, "cuda")):
        data = {name: array.tobytes() for name, array in kernel.generate(case).items()}
        plan = kernel.plan(case, "forward")
        bound = host.bind(plan.buffers, words_of(plan.buffers, data))
        out = host.run(program, bound, plan.passes, fill_of(plan.buffers, SENTINELS[0]))["results"]
        right = reference.compute(list(operations.values()), data["ops"], data["operands"], width)
        rows = case.dims["rows"]
        differ = np.frombuffer(out, "<i4", 4 * rows) != np.frombuffer(right, "<i4")
        ops = np.frombuffer(data["ops"], "<i4")[differ.reshape(rows, 4).any(axis=1)]
        found |= {(case.dist, list(operations)[op]) for op in set(ops.tolist())}
    return found


@pytest.mark.parametrize("name", dict.fromkeys(f["kernel"] for f in PLANTED))
def test_nothing_is_found_where_nothing_is_planted(host: CudaHost, name: str) -> None:
    """The sources as they are."""
    kernel = kernels.base(name)
    assert wrong_operations(host, kernel, kernels.source(kernel, "cuda")) == set()


@pytest.mark.parametrize("fault", PLANTED, ids=lambda f: f["id"])
def test_a_planted_fault_is_seen_by_its_probe_and_on_no_other_operation(host: CudaHost, fault: dict[str, Any]) -> None:
    """The distribution that the coverage page names goes red; operations of another class stay right."""
    kernel = kernels.base(fault["kernel"])
    text = kernels.source(kernel, "cuda")
    before, after = fault["imitation"]
    assert before in text
    found = wrong_operations(host, kernel, text.replace(before, after))
    named = {row.split()[0] for row in fault["rows"]}
    assert fault["distribution"] in {distribution for distribution, _ in found}
    assert {operation for _, operation in found} <= named | set(fault.get("also", []))
    seen = {operation for distribution, operation in found if distribution == fault["distribution"]}
    assert seen & named
