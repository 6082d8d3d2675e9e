"""Imitations of known faults, planted into the CUDA sources: seen where the coverage page says, and only there."""

import ast
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_ref import probe as reference
from cpu_ref.second import worker as second
from harness import kernels, schedules
from harness.backends.cuda_host import CudaHost, _compilers
from harness.cases import Case, parse_case
from harness.errors import CompileError
from harness.families import probe, probe_rows
from harness.verdicts import SENTINELS, Judgement, judge
from harness.worker import constants_of, fill_of, words_of

OF_ROWS = [fault for fault in probe_rows.faults() if "rows" in fault]
OF_CASES = [fault for fault in probe_rows.faults() if "case" in fault]
ELSEWHERE = [fault for fault in probe_rows.faults() if "planted_by" in fault]


@pytest.fixture(scope="module")
def host() -> Iterator[CudaHost]:
    """g++ without its optimiser, for speed."""
    device = CudaHost(next(c for c in _compilers() if c.label == "g++"), ["-O0"])
    yield device
    device.close()


def wrong_operations(
    host: CudaHost, kernel: kernels.Kernel, text: str, undefined: bool = False
) -> set[tuple[str, str]]:
    """Distribution and operation of every row on which the program `text` errs, over the kernel's tables.

    `undefined`: also over those that C++ leaves undefined.
    """
    program = host.compile(kernel, text, constants_of("forward", 1, False))
    _, operations = reference.PROBES[kernel.name]
    found = set()
    for case in (c for c in probe.cases("quick", 0) if c.kernel == kernel.name):
        if not (undefined or kernel.takes(case, "cuda")):
            continue
        data = {name: array.tobytes() for name, array in kernel.generate(case).items()}
        plan = kernel.plan(case, "forward")
        bound = host.bind(plan.buffers, words_of(plan.buffers, data))
        out = host.run(program, bound, plan.passes, fill_of(plan.buffers, SENTINELS[0]))["results"]
        right = right_results(kernel.name, case)
        rows = case.dims["rows"]
        differ = np.frombuffer(out, "<i4", 4 * rows) != np.frombuffer(right, "<i4")
        ops = np.frombuffer(data["ops"], "<i4")[differ.reshape(rows, 4).any(axis=1)]
        found |= {(case.dist, list(operations)[op]) for op in set(ops.tolist())}
    return found


RIGHT: dict[str, bytes] = {}
"""What the reference gave for a case: once for all faults of its kernel."""


def right_results(name: str, case: Case) -> bytes:
    if case.id not in RIGHT:
        width, operations = reference.PROBES[name]
        data = {n: array.tobytes() for n, array in kernels.base(name).generate(case).items()}
        RIGHT[case.id] = reference.compute(list(operations.values()), data["ops"], data["operands"], width)
    return RIGHT[case.id]


def by_second(kernel: kernels.Kernel, case: Case) -> bytes:
    """The right output by the second implementation, which is the faster one on large cases."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}" for name in kernel.generate(case)}
        for name, array in kernel.generate(case).items():
            Path(paths[name]).write_bytes(array.tobytes())
        request = {"op": "compute", "kernel": case.kernel, "dims": case.dims, "inputs": paths, "out": f"{folder}/out"}
        answer = second.answer(json.dumps(request | {"options": kernel.chosen(case)}).encode())
        assert "digest" in answer, answer
        return Path(folder, "out").read_bytes()


def judged(host: CudaHost, kernel: kernels.Kernel, program: Any, case: Case) -> Judgement:
    """What two runs of the program on `case` are worth, by the second implementation."""
    data = {name: array.tobytes() for name, array in kernel.generate(case).items()}
    if kernel.reduces:
        data["order"] = schedules.order_bytes(kernel.terms(case), case.seed)
    plan = kernel.plan(case, "forward")
    bound = host.bind(plan.buffers, words_of(plan.buffers, data))
    dumps = [host.run(program, bound, plan.passes, fill_of(plan.buffers, s))[kernel.output.name] for s in SENTINELS]
    right = by_second(kernel, case)
    return judge((dumps[0], dumps[1]), right, kernel.output.element, kernels.dimensions(kernel.output, case))


@pytest.mark.parametrize("name", dict.fromkeys(f["kernel"] for f in OF_ROWS))
def test_nothing_is_found_where_nothing_is_planted(host: CudaHost, name: str) -> None:
    """The sources as they are."""
    kernel = kernels.base(name)
    assert wrong_operations(host, kernel, kernels.source(kernel, "cuda")) == set()
    assert host.sanitizer_reports() == []


@pytest.mark.parametrize("fault", OF_ROWS, ids=lambda f: f["id"])
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
    reports = host.sanitizer_reports()
    assert any(fault["reports"] in report for report in reports) if "reports" in fault else reports == []


@pytest.mark.parametrize("fault", OF_CASES, ids=lambda f: f["id"])
def test_a_fault_planted_into_a_kernel_is_seen_in_its_case_and_not_in_those_of_another_class(
    host: CudaHost, fault: dict[str, Any]
) -> None:
    """The case that the coverage page names gets its verdict; cases that the fault does not touch match."""
    kernel = kernels.find(fault["kernel"], fault.get("variant", "base"))
    text = kernels.source(kernel, "cuda")
    before, after = fault["imitation"]
    assert before in text
    verdict, constants = fault.get("verdict", "mismatch"), constants_of("forward", 1, False)
    if verdict == "compile-error":
        with pytest.raises(CompileError):
            host.compile(kernel, text.replace(before, after), constants)
        return
    program = host.compile(kernel, text.replace(before, after), constants)
    assert judged(host, kernel, program, parse_case(fault["case"])).verdict == verdict
    for case in fault.get("unharmed", []):
        assert judged(host, kernel, program, parse_case(case)).verdict == "match"


def test_workgroup_memory_that_nobody_zeroes_is_seen(host: CudaHost) -> None:
    """C++ promises no zeros: there the rows of `zeroed` err, and no others."""
    kernel = kernels.base("probe_group")
    found = wrong_operations(host, kernel, kernels.source(kernel, "cuda"), undefined=True)
    assert found == {("zeroed", "zeroed")}


@pytest.mark.parametrize("fault", ELSEWHERE, ids=lambda f: f["id"])
def test_the_test_that_plants_a_fault_by_other_means_exists(fault: dict[str, Any]) -> None:
    """`planted_by` names a function of a test module."""
    path, name = fault["planted_by"].split("::")
    tree = ast.parse((Path(__file__).parent.parent / path).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
