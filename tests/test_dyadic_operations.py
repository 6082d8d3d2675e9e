"""Single operations of dyadic-q16: planted ties, edges of tables and branches, each contract broken; both implementations."""

import math
import random
import struct
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from both import array, refusal

from cpu_ref import dyadic_q16 as reference
from cpu_ref.contracts import Place
from cpu_ref.linear import Matrix, apply
from cpu_ref.rounding import rne
from cpu_ref.second import dyadic_q16 as second
from cpu_ref.second.blocks import Blocks
from cpu_ref.second.contracts import hold
from cpu_ref.weights import BLOCK_TYPES, Weights

AT = Place("op")
LIMIT = 1 << 62
ONE = 1 << 30


def half_up(x, k):
    """round_shift in exact fractions: floor(x / 2^k + 1/2)."""
    return (Fraction(x, 1 << k) + Fraction(1, 2)).__floor__()


def agreed(first, other):
    """What both say, as lists or as a refusal."""
    a, b = refusal(first), refusal(other)
    b = b if isinstance(b, tuple) else np.asarray(b).tolist()
    assert a == b
    return a


def contract(what, element, value, bits=62):
    place = ", ".join(map(str, element))
    return "RangeContract", f"op.{what}[{place}] = {value}: its magnitude must stay below 2^{bits}"


def embedding(w):
    return agreed(lambda: reference.embedding(w), lambda: second.shifted(array(w), 8))


def rms_norm(x, gain, eps32):
    return agreed(
        lambda: reference.rms_norm(x, gain, eps32), lambda: second.rms_norm(array([x]), array(gain), eps32)[0]
    )


def rope(x, c, s, architecture="llama"):
    return agreed(
        lambda: reference.rope(Place("op", (0, 0)), x, c, s, architecture == "llama"),
        lambda: second.rope("op", array([[x]]), array([c]), array([s]), architecture)[0, 0],
    )


def scores(q, keys, c=1 << 27):
    return agreed(lambda: reference.scores(AT, q, keys, c), lambda: second.scores("op", array(q), array(keys), c))


def softmax(z):
    return agreed(lambda: reference.softmax(z), lambda: second.softmax(array(z)))


def mix(p, values):
    return agreed(lambda: reference.mix(AT, p, values), lambda: second.mix("op", array(p), array(values)))


def silu(x):
    return agreed(lambda: reference.silu(AT, x), lambda: second.silu("op", array(x)))


def gate(activated, up):
    return agreed(lambda: reference.gate(AT, activated, up), lambda: second.gate("op", array(activated), array(up)))


TIES = [-5, -3, -1, 1, 3, 5]
"""Odd multiples of a half, of both signs."""


def test_embedding_rounds_ties_up():
    """Shift 8: ties and their neighbours."""
    w = [(tie << 7) + step for tie in TIES for step in (-1, 0, 1)]
    assert embedding(w) == [half_up(v, 8) for v in w]


def test_rms_norm_rounds_ties_of_both_signs_up():
    """x = 2^32 - 1 everywhere: r = 2^32 - 1, inv = 2^31, shift 71. A gain of 2^39 makes odd multiples of half a step."""
    x = [(1 << 32) - 1, 1 - (1 << 32)] * 2
    tied = [v * (1 << 39) * (1 << 31) for v in x]
    assert all(v % (1 << 71) == 1 << 70 for v in tied)
    assert rms_norm(x, [1 << 39] * 4, 1) == [half_up(v, 71) for v in tied]
    assert rms_norm(x, [-(1 << 39)] * 4, 1) == [half_up(-v, 71) for v in tied]


@pytest.mark.parametrize("b", range(1, 105))
def test_rms_norm_of_every_bit_length(b):
    """b = 1 .. 104, both parities, smallest and largest: e as the document writes it, and the full product rounded once."""
    rng = random.Random(b)
    e = 64 - b - ((64 - b) % 2 == 1)
    assert {13: 50, 64: 0, 65: -2}.get(b, e) == e
    for ms in (1 << (b - 1), (1 << b) - 1):
        root = min(isqrt(ms - 1), (1 << 46) - 1) if ms > 1 else 0
        x = [root, -root]  # mean of squares is root^2, eps32 makes up the rest
        eps32 = ms - root * root
        m = ms << e if e >= 0 else ms >> -e
        assert 1 << 62 <= m < 1 << 64
        inv = ((1 << 63) - 1) // isqrt(m)
        gain = [rng.randrange(-(1 << 40) + 1, 1 << 40) for _ in x]
        expected = [half_up(v * g * inv, 71 - e // 2) for v, g in zip(x, gain, strict=True)]
        assert rms_norm(x, gain, eps32) == expected


def test_rms_norm_takes_the_floor_of_the_mean_and_of_the_root():
    """Random rows of widths that are no power of two, against the document's words in fractions."""
    rng = random.Random(5)
    for n in (1, 3, 7, 64, 576):
        x = [rng.randint(-(1 << 40), 1 << 40) for _ in range(n)]
        gain = [rng.randint(-(1 << 39), 1 << 39) for _ in range(n)]
        ms = Fraction(sum(v * v for v in x), n).__floor__() + 43
        e = (64 - ms.bit_length()) & ~1
        inv = ((1 << 63) - 1) // isqrt(Fraction(ms * Fraction(2) ** e).__floor__())
        assert rms_norm(x, gain, 43) == [half_up(v * g * inv, 71 - e // 2) for v, g in zip(x, gain, strict=True)]


def test_rope_pairs_neighbours_for_llama_and_halves_for_qwen2():
    """A quarter turn of the first pair only: (a, b) becomes (-b, a)."""
    c, s = [0, ONE], [ONE, 0]
    assert rope([1, 2, 3, 4], c, s, "llama") == [-2, 1, 3, 4]
    assert rope([1, 2, 3, 4], c, s, "qwen2") == [-3, 2, 1, 4]


def test_rope_rounds_ties_of_both_signs_up():
    """Shift 30, a factor of one half: odd numbers end in ties, in both outputs."""
    half = [ONE // 2]
    for tie in TIES:
        assert rope([tie, 0], half, [0]) == [half_up(tie, 1), 0]
        assert rope([0, tie], [0], half) == [half_up(-tie, 1), 0]
        assert rope([tie, 0], [0], half) == [0, half_up(tie, 1)]


def test_scores_round_twice_each_tie_up():
    """Shift 16 first, then shift 30 with c = 2^27 (3 bits): ties at both, of both signs."""
    for tie in TIES:
        once = tie << 15
        assert scores([once], [[1]], 1 << 30) == [half_up(once, 16)]
        twice = tie * 4 << 16
        assert scores([twice], [[1]]) == [half_up(tie, 1)]
        both_steps = (tie * 4 << 16) - (1 << 15)  # rounds up to the second tie
        assert scores([both_steps], [[1]]) == [half_up(half_up(both_steps, 16) << 27, 30)]


def test_the_score_scale_is_rounded_to_nearest():
    """c for head widths: 64 is exact, 16 and 80 and 128 against fractions of exact squares."""
    for hd in (2, 16, 64, 80, 96, 128, 256):
        c = reference.score_scale(hd)
        assert c == second.balls.inverse_root(hd, ONE)
        assert Fraction(2 * c - 1, 2) ** 2 * hd < ONE * ONE < Fraction(2 * c + 1, 2) ** 2 * hd
    assert reference.score_scale(64) == 1 << 27


def test_softmax_cuts_at_5632_steps_and_reads_both_tables():
    """Distances around each end of a step, around the cut, and far behind it."""
    tables = reference.tables()
    e1, e2 = tables["E1"][1], tables["E2"][1]
    d = [0, 1, 255, 256, 257, 5631 << 8, (5632 << 8) - 1, 5632 << 8, (5632 << 8) + 1, 1 << 40]
    top = -12345
    e = [half_up(e1[v >> 8] * e2[v & 255], 30) if v >> 8 < 5632 else 0 for v in d]
    assert e[6] == e[7] == 0 and e[0] == ONE
    v = (LIMIT - 1) // sum(e)
    assert softmax([top - x for x in d]) == [half_up(x * v, 32) for x in e]


def test_softmax_rounds_a_tie_up():
    """Rows of n equal scores, n such that v = 2 mod 4: e * v / 2^32 is half a step behind an integer."""
    counts = [n for n in range(1, 40) if (LIMIT - 1) // (n * ONE) % 4 == 2]
    assert counts
    for n in counts:
        v = (LIMIT - 1) // (n * ONE)
        assert softmax([7] * n) == [v // 4 + 1] * n
    assert softmax([-9]) == [ONE]


def test_softmax_divides_one_less_than_2_to_the_62():
    """Keys whose weights add up to the maximum's: 2^62 / Z would be whole, and make ties where there are none."""
    tables = reference.tables()
    e1, e2 = tables["E1"][1], tables["E2"][1]

    def weight(d):
        return half_up(e1[d >> 8] * e2[d & 255], 30)

    def distance(e):
        """The nearest distance whose weight is not above e."""
        d = int(65536 * math.log(ONE / e)) - 3
        while weight(d) > e:
            d += 1
        return d

    met = 0
    for a in range(30_000, 30_040):
        b = distance(ONE - weight(a))
        c = distance(ONE - weight(a) - weight(b))
        keys = [0, a, b, c]
        assert sum(map(weight, keys)) == 2 * ONE
        expected = [half_up(weight(d) * ((1 << 31) - 1), 32) for d in keys]
        assert softmax([-d for d in keys]) == expected
        met += expected != [half_up(weight(d) << 31, 32) for d in keys]
    assert met > 10


def test_mix_rounds_ties_of_both_signs_up():
    """Shift 30: a weight of one half on odd values."""
    for tie in TIES:
        assert mix([ONE // 2, ONE // 2], [[tie, 2], [0, 4]]) == [half_up(tie, 1), 3]


def test_silu_interpolates_and_ends_where_the_table_ends():
    """The last step, the end and beyond, of both signs; the inner rounding meets a tie."""
    g = reference.tables()["G"][1]
    end = 16 << 16
    assert silu([end, end + 1, -end, -end - 1, -end + 1])[:4] == [end, end + 1, 0, 0]
    tie = next(i for i in range(32768) if (g[i + 1] - g[i]) % 2)
    for x in (tie * 32 + 16, end - 1, 31, 32, 33, 1):
        i, f = divmod(x, 32)
        s = g[i] + half_up((g[i + 1] - g[i]) * f, 5)
        assert silu([x, -x]) == [half_up(x * s, 30), half_up(-x * (ONE - s), 30)]
    assert (g[tie + 1] - g[tie]) * 16 % 32 == 16
    assert silu([0]) == [0]
    last = g[32767] + half_up((g[32768] - g[32767]) * 31, 5)
    assert [reference.sigmoid(x) for x in (end - 1, end, 1 - end, -end)] == [last, ONE, ONE - last, 0]


def test_gate_rounds_ties_of_both_signs_up():
    """Shift 16."""
    assert gate(TIES, [1 << 15] * 6) == [half_up(tie, 1) for tie in TIES]


# Contracts: the last value inside passes, the first outside is named.


def linear(kind, w, x, bias=None):
    """One token, rows of one block."""
    size = BLOCK_TYPES[kind].size
    data = np.frombuffer(w, np.uint8).reshape(-1, size)
    first = Matrix(Weights(BLOCK_TYPES[kind], w, 32, "t"), keep=False)
    return agreed(
        lambda: apply(AT, first, [x], bias), lambda: second.linear("op", Blocks(kind, data, "t"), array([x]), bias)
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("kind", "block", "weight"),
    [
        ("Q4_0", struct.pack("<H16B", 0x3C00, *[0x88] * 3, 0x80, *[0x88] * 12), -(1 << 27)),  # 1 times 0 - 8
        ("Q4_1", struct.pack("<HH16B", 0, 0x4800, *[0] * 16), 1 << 27),  # no scale, a min of 8
        ("Q4_1", struct.pack("<HH16B", 0x3C00, 0x3C00, *[0] * 3, 7, *[0] * 12), 1 << 27),  # 7 and 1
        ("Q8_0", struct.pack("<H32b", 0x3C00, 0, 0, 0, 8, *[0] * 28), 1 << 27),
    ],
)
def test_contracts_of_a_linear_of_every_block_type(kind, block, weight, sign):
    """A term of 2^62 in row 1, column 3; one step of x less passes. Scale and min count alike."""
    zero = bytes(len(block)) if kind != "Q4_0" else struct.pack("<H16B", 0x3C00, *[0x88] * 16)
    x = [0] * 32
    x[3] = sign << 35
    assert linear(kind, zero + block, x) == contract("term", (0, 1, 3), weight * x[3])
    x[3] -= sign
    assert linear(kind, zero + block, x) == [[0, half_up(weight * x[3], 24)]]


@pytest.mark.parametrize("sign", [1, -1])
def test_scale_and_min_that_cancel_break_nothing(sign):
    """-8192 times 4 and a min of 32768 make 0: the bound of the block proves nothing, the weights themselves do."""
    block = struct.pack("<HH16B", 0xF000, 0x7800, *[0x44] * 16)
    assert linear("Q4_1", block, [sign << 46] * 32) == [[0]]


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_a_bias(sign):
    """A bias of 2^62; a bias inside that takes the sum out, and one that takes it back in."""
    block = struct.pack("<H32b", 0x3C00, 64, *[0] * 31)
    x = [sign << 31, *[0] * 31]
    assert linear("Q8_0", block, x, [sign * LIMIT]) == contract("bias", (0,), sign * LIMIT)
    assert linear("Q8_0", block, x, [sign << 61]) == contract("sum", (0, 0), sign * LIMIT)
    assert linear("Q8_0", block, x, [-(sign << 61)]) == [[0]]
    assert linear("Q8_0", block, x, [(sign << 61) - sign]) == [[half_up(sign * (LIMIT - 1), 24)]]


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_rope(sign):
    """A product of 2^62, then a sum of two products that reaches it; token and head stand first."""
    x = sign << 32
    assert rope([0, 0, 0, x], [ONE, ONE], [0, 0]) == contract("term", (0, 0, 1, 3), sign * LIMIT)
    assert rope([0, 0, 0, x - sign], [ONE, ONE], [0, 0]) == [0, 0, 0, x - sign]
    half = sign << 31
    assert rope([half, -half], [ONE], [ONE]) == contract("sum", (0, 0, 0), sign * LIMIT)
    assert rope([half, half], [ONE], [ONE], "qwen2") == contract("sum", (0, 0, 1), sign * LIMIT)
    assert rope([half, sign - half], [ONE], [ONE]) == [2 * half - sign, sign]


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_scores(sign):
    """A term, a sum of two, and the product with c."""
    q, zero = [1 << 31, 1 << 31], [0, 0]
    assert scores(q, [zero, [0, sign << 31]]) == contract("term", (1, 1), sign * LIMIT)
    assert scores(q, [zero, [sign << 30, sign << 30]]) == contract("sum", (1,), sign * LIMIT)
    dot = sign << 51  # (dot >> 16) * 2^27 = 2^62
    assert scores([dot], [[0], [1]]) == contract("product", (1,), sign * LIMIT)
    assert isinstance(scores([dot - (sign << 16)], [[1]]), list)


def test_a_sum_of_many_terms_is_true_beyond_64_bits():
    """Eight terms of 2^61 make 2^64, whose residue is a harmless 0."""
    assert scores([1 << 31] * 8, [[1 << 30] * 8]) == contract("sum", (0,), 1 << 64)
    assert mix([ONE] * 8, [[1 << 31]] * 8) == contract("sum", (0,), 1 << 64)


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_mix(sign):
    """A term, and a sum of two."""
    assert mix([ONE, ONE], [[0, 0], [0, sign << 32]]) == contract("term", (1, 1), sign * LIMIT)
    assert mix([ONE, ONE], [[0, sign << 31], [0, sign << 31]]) == contract("sum", (1,), sign * LIMIT)


def test_contracts_of_silu():
    """x times 1 in Q30; a large negative x is times 0 and breaks nothing."""
    assert silu([0, 1 << 32]) == contract("product", (1,), LIMIT)
    assert silu([(1 << 32) - 1, -(1 << 46)]) == [(1 << 32) - 1, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_gate(sign):
    """The product before its shift."""
    assert gate([0, 1 << 31], [0, sign << 31]) == contract("product", (1,), sign * LIMIT)
    assert gate([(1 << 31) - 1], [sign << 31]) == [half_up(((1 << 31) - 1) * (sign << 31), 16)]


@pytest.mark.parametrize("sign", [1, -1])
def test_contracts_of_the_residual(sign):
    """A sum of 2^47."""

    def both(x, y):
        return agreed(lambda: reference.residual(AT, x, y), lambda: hold("op.residual", 47, array(x) + array(y)))

    x = [0, sign << 46]
    assert both(x, x) == contract("residual", (1,), sign << 47, 47)
    assert both(x, [0, x[1] - sign]) == [0, 2 * x[1] - sign]


def test_what_cannot_break_alone_stays_inside_at_the_extremes():
    """Activations that no contract of their own is checked for: the bounds that the reference's docstring gives."""
    assert half_up(LIMIT - 1, 24) < 1 << 47
    assert embedding([-(1 << 47), (1 << 47) - 1]) == [-(1 << 39), 1 << 39]
    n, most = 1 << 18, (1 << 40) - 1
    x = [(1 << 47) - 1, *[0] * (n - 1)]
    assert 1 << 40 < max(rms_norm(x, [most] * n, 1)) < 1 << 47


def test_tables_of_rope_agree_far_out():
    """Positions 0, 1, 1000 and 8191 at base 100000 and 10000, by mpmath and by ball arithmetic."""
    for base in (Fraction(100000), Fraction(10000)):
        for position in (0, 1, 1000, 8191):
            first = reference.rope_row(base, 64, position)
            other = second.balls.rotation(float(base), 64, position, ONE)
            assert [list(row) for row in first] == [row.tolist() for row in other]
    assert reference.rope_row(Fraction(10000), 64, 0) == ([ONE] * 32, [0] * 32)


def test_rne_takes_ties_to_even():
    """What gains, biases and epsilon are rounded by."""
    assert [rne(Fraction(v, 2)) for v in (-3, -1, 1, 3, 5)] == [-2, 0, 0, 2, 2]
