"""The fast forms of gemm_i8: faults that packed dot products and matrix units have, planted, each caught by a case of `quick`."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from harness import kernels, presets, schedules, units
from harness.backends import cuda_host
from harness.backends.cuda_host import CudaHost
from harness.cases import Case, parse_case

DOT = "return (u32)__dp4a((int)x, (int)y, (int)sum);"
UNSIGNED = "return __dp4a(x, y, sum);"
MMA = "multiply_add(sums, from_a, from_b);"

ONE_WORD = "gemm_i8;m=17;n=19;k=4;dist=full;seed=0"
PAIRS = "gemm_i8;m=8;n=8;k=4;dist=packed_words;seed=0"
LEAST = "gemm_i8;m=18;n=20;k=4096;dist=rails_min;seed=0"
ODD_STEPS = "gemm_i8;m=18;n=20;k=4096;dist=odd_steps;seed=0"
OVER_INT32 = "gemm_i8;m=2;n=3;k=131073;dist=rails_min;seed=0"
WIDE = "gemm_i8;m=17;n=19;k=33;dist=full;seed=0"

FAULTS = {
    "the sum saturates at 32 bits": (
        "dot4",
        DOT,
        "const long long exact = (long long)(int)sum + __dp4a((int)x, (int)y, 0);"
        "return (u32)(int)(exact > 2147483647LL ? 2147483647LL : exact < -2147483648LL ? -2147483648LL : exact);",
        OVER_INT32,
        LEAST,
    ),
    "the dot product saturates at 16 bits": (
        "dot4",
        DOT,
        "const int exact = __dp4a((int)x, (int)y, 0);"
        "return sum + (u32)(exact > 32767 ? 32767 : exact < -32768 ? -32768 : exact);",
        PAIRS,
        None,
    ),
    "the dot product wraps at 16 bits": (
        "dot4",
        DOT,
        "return sum + (u32)(short)__dp4a((int)x, (int)y, 0);",
        PAIRS,
        None,
    ),
    "the sum is kept in a float": (
        "dot4",
        DOT,
        "return (u32)(int)((float)(int)sum + (float)__dp4a((int)x, (int)y, 0));",
        ODD_STEPS,
        PAIRS,
    ),
    "the sum is kept in 8 bits": (
        "dot4",
        DOT,
        "return (u32)(signed char)__dp4a((int)x, (int)y, (int)sum);",
        PAIRS,
        None,
    ),
    "the bytes of one operand are swapped": (
        "dot4",
        DOT,
        "return (u32)__dp4a((int)x, (int)__builtin_bswap32(y), (int)sum);",
        ONE_WORD,
        LEAST,
    ),
    "signed bytes are taken for unsigned": (
        "dot4",
        DOT,
        "return __dp4a(x, y, sum);",
        PAIRS,
        None,
    ),
    "one operand is taken for unsigned": (
        "dot4",
        DOT,
        "return (u32)__dp4a((int)x, (int)(y ^ 0x80808080u), (int)sum) + 128u * (u32)__dp4a((int)x, 0x01010101, 0);",
        PAIRS,
        None,
    ),
    "unsigned bytes are taken for signed": (
        "dot4u",
        UNSIGNED,
        "return (u32)__dp4a((int)x, (int)y, (int)sum);",
        PAIRS,
        None,
    ),
    "the unsigned dot product wraps at 16 bits": (
        "dot4u",
        UNSIGNED,
        "return sum + (unsigned short)__dp4a(x, y, 0u);",
        PAIRS,
        LEAST,
    ),
    "halves of a fragment of A are swapped": (
        "mma_m16n8k32",
        MMA,
        "const u32 kept = from_a[1]; from_a[1] = from_a[2]; from_a[2] = kept;" + MMA,
        WIDE,
        None,
    ),
    "the matrix unit saturates": (
        "mma_m16n8k32",
        MMA,
        "u32 step_sums[WORDS_D] = {}; multiply_add(step_sums, from_a, from_b); for (u32 w = 0u; w < WORDS_D; w++) {"
        "const long long exact = (long long)(int)sums[w] + (int)step_sums[w];"
        "sums[w] = (u32)(exact > 2147483647LL ? 2147483647LL : exact < -2147483648LL ? -2147483648LL : exact); }",
        OVER_INT32,
        LEAST,
    ),
    "the matrix unit drops its last step": (
        "mma_m8n8k16",
        MMA,
        "if (start + step + STEP < K) " + MMA,
        ONE_WORD,
        None,
    ),
    "the matrix unit loses the sign of A": (
        "mma_m16n8k32",
        MMA,
        "for (u32 w = 0u; w < WORDS_A; w++) from_a[w] &= 0x7f7f7f7fu;" + MMA,
        PAIRS,
        None,
    ),
}
"""What is wrong -> variant, a line of the kernel, what stands there instead, a case that catches it, one that does not."""


@pytest.fixture(scope="module")
def host() -> Iterator[CudaHost]:
    """The first compiler there is; CI names them all in SAMEBITS_EXPECT."""
    compiler = next(cuda_host._compilers(), None)
    if compiler is None:
        assert "cuda_host" not in os.environ.get("SAMEBITS_EXPECT", ""), "no host compiler"
        pytest.skip("no host compiler")
    opened = CudaHost(compiler)
    yield opened
    opened.close()


def product(host: CudaHost, case: Case, variant: str, schedule: str, text: str) -> np.ndarray:
    """What the program `text` makes of the case."""
    kernel = kernels.find("gemm_i8", variant)
    constants = {"SCHEDULE": schedules.NAMES.index(schedule), "KNOWN_BAD": 0, "NONCE": 1}
    plan, data = kernel.plan(case, schedule), kernel.generate(case)
    words = {name: array.tobytes() + bytes(-array.nbytes % 4) for name, array in data.items()}
    bound = host.bind(plan.buffers, words | {"order": schedules.order_bytes(case.dims["k"], case.seed)})
    result = host.run(host.compile(kernel, text, constants), bound, plan.passes, {})["c"]
    m, n = case.dims["m"], case.dims["n"]
    return np.frombuffer(result, "<i4", m * n).reshape(m, n)


def right(case: Case) -> np.ndarray:
    """The product modulo 2^32: int64 holds every sum of int8 here."""
    data = kernels.base("gemm_i8").generate(case)
    return (data["a"].astype(np.int64) @ data["b"].astype(np.int64)).astype(np.int32)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_by_its_case_and_looks_right_in_another(host: CudaHost, fault: str) -> None:
    variant, line, planted, catching, blind = FAULTS[fault]
    text = kernels.source(kernels.find("gemm_i8", variant), "cuda")
    assert text.count(line) == 1
    quick = {c.id for c in presets.cases("quick")}
    case = parse_case(catching)
    assert case.id in quick
    assert (product(host, case, variant, "forward", text) == right(case)).all()
    assert (product(host, case, variant, "forward", text.replace(line, planted)) != right(case)).any()
    if blind:
        case = parse_case(blind)
        assert case.id in quick
        assert (product(host, case, variant, "forward", text.replace(line, planted)) == right(case)).all()


def test_instructions_and_units_go_by_compute_capability() -> None:
    """6.1 has the dot product of bytes, 7.5 the integer matrix unit, 8.0 its wider shape."""
    found = {capability: units.cuda_instructions(capability) for capability in (60, 61, 70, 75, 80, 120)}
    assert found[60] == [] and found[61] == found[70] == ["dp4a"]
    assert found[75] == ["dp4a", "mma-s8-m8n8k16"] and found[80] == found[120] == list(units.CUDA)
    dots = [units.DOT_SIGNED, units.DOT_UNSIGNED]
    advertised = [units.cuda_units(capability) for capability in (60, 61, 75)]
    assert advertised == [[], dots, [*dots, units.MATRIX_SIGNED]]


@pytest.mark.parametrize("kernel", kernels.variants("gemm_i8", "cuda"), ids=lambda k: k.variant)
def test_every_form_agrees_on_the_pairs_of_words_under_every_schedule(host: CudaHost, kernel: kernels.Kernel) -> None:
    """Known products of faulty drivers among them: 65536, -65024, 0 and 128."""
    case = parse_case(PAIRS)
    text = kernels.source(kernel, "cuda")
    for schedule in kernel.schedules:
        found = product(host, case, kernel.variant, schedule, text)
        assert (found == right(case)).all()
        assert [found[0, 0], found[0, 1], found[2, 3], found[4, 5]] == [65536, -65024, 0, 128]
