"""Probes: reference against second and known vectors, rows inside what languages define, literals, what a result names."""

import re

import numpy as np
import pytest

from cpu_ref import probe as reference
from cpu_ref.second import probe as second
from harness import kernels, presets
from harness.cases import parse_case
from harness.evidence import wrong_operations
from harness.families import probe, probe_rows
from harness.kernels import LANGUAGES, find, open_somewhere
from harness.literals import expressions
from harness.reference import Inputs
from harness.selections import Selection

NAMES = list(reference.PROBES)
CASES = [c for c in [*probe.SELF_TESTS.values(), *probe.cases("quick", 0), *probe.cases("soak", 3)]]

VECTORS = {
    "rem_s32": [((-7, 2), [-1]), ((-1, 768), [-1]), ((-769, 768), [-1]), ((-1000, 768), [-232]), ((7, -3), [1])],
    "div_u32": [((-1, 1), [-1]), ((110, 55), [2]), ((7, 0), [7])],
    "floored_s32": [((-7, 3), [-3, 2]), ((7, -3), [-3, -2])],
    "mul_hi_32": [((-(2**31), -(2**31)), [2**30, 2**30]), ((-(2**31), 2**31 - 1), [2**30 - 1, -(2**30)])],
    "rotate": [((0x12345678, 8), [0x34567812, 0x78123456])],
    "field": [((-1, 5, 0, 0), [0, 0, -1]), ((0x80, 0, 8, 0), [0x80, -128, 0])],
    "count": [((0,), [32, 32, 0, 0]), ((1,), [31, 0, 1, -(2**31)])],
    "first_bit": [((0,), [-1, -1, -1]), ((-1,), [31, -1, 0])],
    "mul_s32": [((46341, 46341), [-2147479015])],
    "by_constant_u64": [((-1, -1), [-1717986919, 429496729, 5, 0])],
    "mul_hi_64": [((-1, -1, 1, 0), [0, 0, -1, -1]), ((0, -(2**31), 0, -(2**31)), [0, 2**30, 0, 2**30])],
    "rotate_64": [((0x89ABCDEF - 2**32, 0x01234567, 8), [0xABCDEF01 - 2**32, 0x23456789])],
    "mul_sat_s64": [((1, 0, -1, -1), [-1, -1]), ((-1, 2**31 - 1, 2, 0), [-1, 2**31 - 1])],
    "half": [((1,), [1, 0, 0x33800000]), ((0x3FF,), [0x3FF, 0, 0x387FC000]), ((0x8001,), [-1, -1, 0xB3800000 - 2**32])],
    "unpack_s8": [((0x80FF017F - 2**32,), [127, 1, -1, -128])],
    "pack_clamp": [((-200, 200, 0, -1), [0xFF007F80 - 2**32])],
    "sum_of_bytes": [((0x2AD9F1A7,), [-101])],
    "sign_extend": [((0x93,), [-109, 0x93])],
}
"""Operation -> operands and the first result words, from issue trackers and by hand."""


def both(kernel: str, ops: np.ndarray, operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Results of reference and second."""
    width, operations = reference.PROBES[kernel]
    one = reference.compute(list(operations.values()), ops.tobytes(), operands.tobytes(), width)
    other = second.compute(list(second.PROBES[kernel][1].values()), ops, operands)
    return np.frombuffer(one, "<i4").reshape(len(ops), -1), other


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_reference_and_second_agree_on_every_row_of_the_presets(case) -> None:  # type: ignore[no-untyped-def]
    """Integers of Python against gates."""
    data = find(case.kernel, "base").generate(case)
    one, other = both(case.kernel, data["ops"], data["operands"])
    assert (one == other).all()


@pytest.mark.parametrize("operation", VECTORS)
def test_the_reference_gives_known_vectors(operation: str) -> None:
    """Values that were not computed by the code under test."""
    kernel = next(k for k in NAMES if operation in reference.PROBES[k][1])
    for operands, right in VECTORS[operation]:
        number, words = probe_rows.row(kernel, operation, operands)
        one, other = both(kernel, np.array([number], "<i4"), np.array([words], np.uint32).view(np.int32))
        assert one[0, : len(right)].tolist() == other[0, : len(right)].tolist() == right


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_operations_have_the_same_numbers_in_kernel_reference_and_second(name: str, language: kernels.Language) -> None:
    """The comment behind a `case` is the operation's name."""
    text = kernels.source(find(name, "base"), language)
    assert list(expressions(text)) == list(reference.PROBES[name][1]) == list(second.PROBES[name][1])
    assert [int(n) for n in re.findall(r"case (\d+)u: \{ return", text)] == list(range(len(expressions(text))))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in probe_rows.WITHOUT_LITERALS])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_literal_row_stands_in_the_text_with_its_operands(name: str, language: kernels.Language) -> None:
    """As many cases as rows, in blocks that stay below llvmpipe's 80 nested conditions, and no operand from memory."""
    kernel = find(name, "literal")
    text = kernels.source(kernel, language)
    assert kernel.probe is not None
    found = re.findall(r"        case \d+u: \{ return (?!literals)(.*); \}\n", text)
    assert len(found) == len(kernel.probe.literals) == sum(len(probe_rows.table(name, d)) for d in kernel.distributions)
    for (op, words), expression in zip(kernel.probe.literals, found, strict=True):
        letters = re.findall(r"\b[a-d]\b", list(expressions(kernels.source(find(name, "base"), language)).values())[op])
        assert all(f"{words['abcd'.index(letter)]:#x}u" in expression for letter in letters)
    assert not re.search(r"\b[a-d]\b", "".join(found))


@pytest.mark.parametrize("case", [c for c in CASES if c.kernel == "probe_div"], ids=lambda c: c.id)
def test_open_divisions_stand_in_distributions_of_their_own(case) -> None:  # type: ignore[no-untyped-def]
    """No divisor of 0 and no quotient that leaves the type elsewhere; no negative signed remainder but in rem_negative."""
    data = find(case.kernel, "base").generate(case)
    names = list(reference.DIV)
    for op, (a, b) in zip(data["ops"], data["operands"][:, :2].tolist(), strict=True):
        by_operand = not names[op].startswith("by_constant")
        assert (b == 0 and by_operand) <= (case.dist == "zero")
        assert ((a, b) == (-(2**31), -1) and names[op] in ("div_s32", "rem_s32")) <= (case.dist == "overflow")
        if names[op] in probe_rows.SIGNED_REMAINDERS and case.dist not in ("rem_negative", "zero", "overflow"):
            assert a >= 0 and (b > 0 or not by_operand)


def test_what_a_language_leaves_open_is_informational_there_and_what_it_forbids_is_not_run() -> None:
    """Division by zero: judged in WGSL, shown in OpenCL C, absent in CUDA C++; a PASS does not ask for it."""
    case = parse_case("probe_div;rows=20;dist=zero;seed=0")
    kernel = find("probe_div", "base")
    assert [kernel.open(case, language) for language in LANGUAGES] == [False, False, True]
    assert [len(Selection(case).runs(language)) for language in LANGUAGES] == [1, 0, 1]
    assert open_somewhere(case.id) and not open_somewhere("probe_div;rows=9;dist=unsigned;seed=0")


def test_a_wrong_result_names_each_operation_with_its_smallest_operands(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """-7 % 2, not the larger operands of the same operation."""
    case = next(c for c in presets.cases("quick") if c.id.startswith("probe_div;") and c.dist == "rem_negative")
    inputs = Inputs(tmp_path)
    data = find(case.kernel, "base").generate(case)
    right, _ = both(case.kernel, data["ops"], data["operands"])
    got = right.copy()
    rem = (data["ops"] == list(reference.DIV).index("rem_s32")) & (np.abs(data["operands"][:, 0]) >= 7)
    got[rem, 0] += 1
    assert wrong_operations(case, inputs, right.tobytes(), got.tobytes()) == (
        "rem_s32(-7, 2, 0, 0) gave [0, 0, 0, 0], right is [-1, 0, 0, 0]"
    )
    assert wrong_operations(case, inputs, right.tobytes(), right.tobytes()) is None
