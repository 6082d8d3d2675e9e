"""Single operations of nel-mini-w8a8 on full-range operands: reference, second, and the formula in fractions."""

import random
from fractions import Fraction
from math import floor, isqrt

import numpy as np
import pytest

from cpu_ref import nel_mini_w8a8 as first
from cpu_ref.errors import RangeContract, TokensRefused
from cpu_ref.nel_mini_data import checked_tables
from cpu_ref.second import errors as second_errors
from cpu_ref.second import nel_mini_w8a8 as second

I8 = range(-128, 128)
TIE = Fraction(1, 2)


def half_up(value):
    return floor(Fraction(value) + TIE)


def sat8(value):
    return max(-128, min(127, value))


def array(rows):
    return np.array(rows, np.int64)


def both(name, *operands):
    """The result of one operation on matrices (or a shift) by both implementations, which must be equal."""
    a = getattr(first, name)(*operands)
    b = getattr(second, name)(*(array(v) if isinstance(v, list) else v for v in operands))
    assert b.dtype == np.int64 and b.tolist() == a
    return a


def heads(rows):
    """Rows of [head][key] as the second's [head, row, key], padded with zeros."""
    keys = len(rows[-1][0])
    return array([[row[h] + [0] * (keys - len(row[h])) for row in rows] for h in range(4)])


def random_rows(seed, rows, columns):
    rng = random.Random(seed)
    return [[rng.choice((rng.choice(I8), -128, 127, 0, 1, -1)) for _ in range(columns)] for _ in range(rows)]


@pytest.mark.parametrize("k", [8, 11, 12, 15])
def test_requant_rounds_ties_up_and_clips_once(k):
    """Ties of both signs at every result, one step beside each, and sums beyond i8 up to the contract."""
    ties = [(2 * m + 1) << (k - 1) for m in range(-140, 140)]
    sums = [v + d for v in ties for d in (-1, 0, 1)] + [-(2**31) + 1, 2**31 - 1, 0]
    assert both("requant", [sums], k) == [[sat8(half_up(Fraction(v, 2**k))) for v in sums]]
    assert both("requant", [[-(1 << (k - 1)), -3 << (k - 1)]], k) == [[0, -1]]


def test_a_product_of_full_range_operands_is_exact():
    """All rails, and as many terms as the profile has."""
    for seed, (t, k, n) in enumerate([(1, 1, 1), (3, 32, 64), (2, 64, 32), (64, 64, 64)]):
        x, w = random_rows(seed, t, k), random_rows(seed + 9, k, n)
        expected = [[sum(row[i] * w[i][c] for i in range(k)) for c in range(n)] for row in x]
        assert both("matmul", x, w) == expected
    assert both("matmul", [[-128] * 64], [[-128]] * 64) == [[1 << 20]]


def norm(row, gain):
    """The formula with rationals: z is the largest integer whose square is at most ms + 1."""
    ms = floor(Fraction(sum(v * v for v in row), 32))
    z = max(z for z in range(1, 130) if z * z <= ms + 1)
    inv = floor(Fraction(2**30, z))
    return [sat8(half_up(Fraction(v * inv * g, 2**31))) for v, g in zip(row, gain, strict=True)]


def test_rmsnorm_over_full_range_rows_and_gains():
    """Random rows, rails, zero, and single values of every size."""
    rows = [*random_rows(1, 40, 32), [0] * 32, [-128] * 32, [127, -128] * 16]
    rows += [[v] + [0] * 31 for v in I8]
    for gain in (*random_rows(2, 4, 32), [-128] * 32, [127] * 32):
        assert both("rmsnorm", rows, gain) == [norm(row, gain) for row in rows]


def test_rmsnorm_rounds_its_one_product_and_its_ties_up():
    """Mean squares below 3 give z = 1, so that odd x * gain is an exact tie; of both signs, for every odd gain."""
    ties = 0
    for gain in range(-127, 128, 2):
        rows = [[x] + [0] * 31 for x in range(-9, 10, 2)]
        found = both("rmsnorm", rows, [gain] * 32)
        assert [row[0] for row in found] == [sat8(half_up(Fraction(x * gain, 2))) for x in range(-9, 10, 2)]
        ties += len(rows)
    assert ties == 1280


@pytest.mark.parametrize(
    ("total", "z"), [(95, 1), (96, 2), (255, 2), (256, 3), (31 * 16384 + 127 * 127, 127), (32 * 16384, 128)]
)
def test_rmsnorm_takes_the_root_of_one_more_than_the_mean(total, z):
    """Where isqrt(ms) and isqrt(ms + 1) differ, and at both ends."""
    row, left = [], total
    for _ in range(32):
        row.append(min(128, isqrt(left)))
        left -= row[-1] ** 2
    row = [-v for v in row]
    assert sum(v * v for v in row) // 32 == total // 32
    expected = [sat8(half_up(Fraction(v * ((1 << 30) // z) * 127, 2**31))) for v in row]
    assert both("rmsnorm", [row], [127] * 32) == [expected]


def test_rope_at_every_position_over_full_range_heads():
    """All 64 positions, several heads, and a start in the middle."""
    cos, sin = checked_tables()["COS"], checked_tables()["SIN"]
    x = random_rows(3, 64, 48)
    expected = []
    for p, row in enumerate(x):
        y = list(row)
        for h in range(0, 48, 8):
            for i in range(4):
                a, b, c, s = row[h + i], row[h + i + 4], cos[4 * p + i], sin[4 * p + i]
                y[h + i] = sat8(half_up(Fraction(a * c - b * s, 2**15)))
                y[h + i + 4] = sat8(half_up(Fraction(a * s + b * c, 2**15)))
        expected.append(y)
    assert both("rope", x, 0) == expected
    assert both("rope", x[60:], 60) == expected[60:]


def test_rope_rounds_every_tie_there_is_up_and_clips():
    """All operands and all table entries: 745 positive and 755 negative ties in each half, and operands that clip."""
    cos, sin = (np.array(checked_tables()[name], np.int64) for name in ("COS", "SIN"))
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    positive = negative = 0
    for entry in range(256):
        p, i = divmod(entry, 4)
        sums = a * cos[entry] - b * sin[entry]
        at = np.argwhere(sums % 32768 == 16384)
        clipped = np.argwhere(abs(sums) > 32768 * 129)[:5]
        for u, v in [*at.tolist(), *clipped.tolist()]:
            x, y = int(a[u, v]), int(b[u, v])
            head = [0] * 8
            head[i], head[i + 4] = x, y
            exact = int(sums[u, v])
            assert both("rope", [head], p)[0][i] == sat8(half_up(Fraction(exact, 32768)))
            turned = [0] * 8  # the second half of the head (-y, x) has the same sum
            turned[i], turned[i + 4] = sat8(-y), x
            if y != -128:
                assert both("rope", [turned], p)[0][i + 4] == sat8(half_up(Fraction(exact, 32768)))
            if exact % 32768 == 16384:
                positive, negative = positive + (exact > 0), negative + (exact < 0)
    assert positive > 300 and negative > 300


def test_scores_see_no_later_key_and_take_the_head_s_own_key_head():
    """Full-range queries and keys, with and without a past."""
    for queries, keys in ((1, 1), (5, 5), (3, 9), (64, 64)):
        q, k = random_rows(4, queries, 32), random_rows(5, keys, 16)
        found = first.scores(q, k)
        assert (second.scores(array(q), array(k)) == heads(found)).all()
        for t, row in enumerate(found):
            for h in range(4):
                g = h // 2
                assert row[h] == [
                    sum(q[t][8 * h + d] * k[j][8 * g + d] for d in range(8)) for j in range(keys - queries + t + 1)
                ]
    assert first.scores([[-128] * 32], [[-128] * 16])[0] == [[1 << 17]] * 4


def probabilities(s):
    e = []
    for v in s:
        n, f = divmod(floor(Fraction(max(s) - v, 128)), 64)
        e.append(floor(Fraction(checked_tables()["EXP2"][f], 2**n)) if n < 16 else 0)
    r = floor(Fraction(2**30, sum(e)))
    return [min(32767, half_up(Fraction(v * r, 2**15))) for v in e]


def soft(rows):
    """Rows of up to 64 scores, each given to all four heads, by both implementations."""
    found = []
    for s in rows:
        stacked = [[s] * 4]
        a = first.softmax(stacked)
        assert (second.softmax(array([[s]] * 4)) == heads(a)).all()
        assert a[0] == [a[0][0]] * 4
        found.append(a[0][0])
    return found


def test_softmax_over_full_range_scores():
    """Random rows of 1 to 64, the widest distance, and each entry of the table under each power."""
    rng = random.Random(6)
    rows = [[rng.randint(-(1 << 17), 1 << 17) for _ in range(length)] for length in range(1, 65)]
    rows += [[rng.randint(-4000, 4000) for _ in range(length)] for length in range(1, 65)]
    rows += [[60000, 60000 - 128 * d] for d in range(0, 64 * 17, 5)] + [
        [60000 - 128 * d + e for e in (128 * d, 1, 0, -1)] for d in (1, 64, 1023, 1024)
    ]
    rows += [[1 << 17, -(1 << 17)], [-(1 << 17), 1 << 17]]
    assert soft(rows) == [probabilities(s) for s in rows]


def test_softmax_of_one_entry_is_clamped_and_its_ties_go_up():
    """One entry gives 32767; a distance whose e * R is half of 2^15 too much gives a tie."""
    ties = [s for m in (1, 2, 3) for d in range(1024) for s in [[0] * m + [-128 * d]] if is_tie(s)]
    assert len(ties) >= 4
    assert soft([[5], *ties]) == [[32767], *map(probabilities, ties)]


def is_tie(s):
    e = [checked_tables()["EXP2"][(-v >> 7) & 63] >> ((-v >> 7) >> 6) for v in s]
    return any(v * (2**30 // sum(e)) % 2**15 == 2**14 for v in e)


def test_a_distance_of_sixteen_powers_or_more_weighs_nothing():
    """n = 15 leaves 1 of the largest entry, n = 16 and n = 32 nothing: the shift is guarded."""
    assert soft([[0, -128 * 64 * 15], [0, -128 * 64 * 16], [1 << 17, -(1 << 17)]]) == [
        [32767, 1],
        [32767, 0],
        [32767, 0],
    ]


def test_mix_over_full_range_values():
    """64 keys of the largest weight and value, random ones, and with a past."""
    rng = random.Random(7)
    for queries, keys in ((1, 1), (4, 4), (2, 7), (1, 64)):
        p = [
            [
                [rng.choice((0, 1, 32767, rng.randint(0, 32767))) for _ in range(keys - queries + t + 1)]
                for _ in range(4)
            ]
            for t in range(queries)
        ]
        v = random_rows(8, keys, 16)
        found = first.mix(p, v)
        assert second.mix(heads(p), array(v)).tolist() == found
        for t, row in enumerate(found):
            assert row == [
                sum(p[t][c // 8][j] * v[j][8 * (c // 16) + c % 8] for j in range(len(p[t][0]))) for c in range(32)
            ]
    assert first.mix([[[32767] * 64] * 4], [[-128] * 16] * 64) == [[-64 * 32767 * 128] * 32]


def test_act_reads_the_entry_of_gate_s_byte_for_all_operands():
    """All 65,536 pairs: gate 0 reads entry 0, gate -1 entry 255; 592 of them are ties."""
    silu = checked_tables()["SILU"]
    gate, up = [[g] * 256 for g in I8], [list(I8) for _ in I8]
    expected = [[sat8(half_up(Fraction(silu[g % 256] * u, 256))) for u in I8] for g in I8]
    assert both("act", gate, up) == expected
    assert sum(silu[g % 256] * u % 256 == 128 for g in I8 for u in I8) == 592
    assert both("act", [[0, -1]], [[127, 127]]) == [[half_up(Fraction(silu[0] * 127, 256)), 63]]


def test_residual_clips_for_all_operands():
    """All 65,536 pairs."""
    a, b = [[v] * 256 for v in I8], [list(I8) for _ in I8]
    assert both("residual", a, b) == [[sat8(v + w) for w in I8] for v in I8]


def test_the_greedy_choice_is_the_lowest_of_equals():
    """Rails, equal values everywhere, and the largest at both ends."""
    low, high = -(2**31) + 1, 2**31 - 1
    rows = [[0] * 64, [low] * 63 + [high], [high] + [low] * 62 + [high], [low, -1, 0, 0] + [-5] * 60, list(range(64))]
    assert both("greedy", rows) == [0, 63, 0, 2, 63]


def test_embedding_takes_each_row():
    """Ids in any order, some twice."""
    embed = random_rows(10, 64, 32)
    assert both("embedding", [63, 0, 5, 5], embed) == [embed[i] for i in (63, 0, 5, 5)]


BROKEN = [
    ("matmul", ([[1, 128]], [[1], [1]]), "matmul.x[0, 1] = 128: an i8 is -128 to 127"),
    ("matmul", ([[1]], [[-129]]), "matmul.w[0, 0] = -129: an i8 is -128 to 127"),
    ("rmsnorm", ([[0] * 31 + [200]], [1] * 32), "rmsnorm.x[0, 31] = 200: an i8 is -128 to 127"),
    ("rmsnorm", ([[0] * 32], [1, 128] * 16), "rmsnorm.gain[0, 1] = 128: an i8 is -128 to 127"),
    ("rope", ([[0] * 8, [0] * 7 + [-129]], 0), "rope.x[1, 7] = -129: an i8 is -128 to 127"),
    ("act", ([[-129]], [[0]]), "act.gate[0, 0] = -129: an i8 is -128 to 127"),
    ("act", ([[0]], [[128]]), "act.up[0, 0] = 128: an i8 is -128 to 127"),
    ("residual", ([[128]], [[0]]), "residual.a[0, 0] = 128: an i8 is -128 to 127"),
    ("residual", ([[0]], [[-129]]), "residual.b[0, 0] = -129: an i8 is -128 to 127"),
    ("scores", ([[0] * 31 + [128]], [[0] * 16]), "scores.q[0, 31] = 128: an i8 is -128 to 127"),
    ("scores", ([[0] * 32], [[0, 300] * 8]), "scores.k[0, 1] = 300: an i8 is -128 to 127"),
]


@pytest.mark.parametrize(("name", "operands", "said"), BROKEN, ids=[said.split(":")[0] for _, _, said in BROKEN])
def test_an_operand_that_is_no_i8_breaks_the_contract(name, operands, said):
    """Operation, operand, element and value, in the same words by both."""
    with pytest.raises(RangeContract) as a:
        getattr(first, name)(*operands)
    with pytest.raises(second_errors.RangeContract) as b:
        getattr(second, name)(*(array(v) if isinstance(v, list) else v for v in operands))
    assert str(a.value) == str(b.value) == said


def broken(name, one, other):
    with pytest.raises(RangeContract) as a:
        getattr(first, name)(*one)
    with pytest.raises(second_errors.RangeContract) as b:
        getattr(second, name)(*other)
    assert str(a.value) == str(b.value)
    return str(a.value)


def test_a_sum_of_2_31_breaks_the_contract_of_matmul():
    """131,072 products of -128 by -128; one fewer is inside."""
    x, w = [[-128] * 131_072], [[-128]] * 131_072
    assert (
        broken("matmul", (x, w), (array(x), array(w)))
        == f"matmul[0, 0] = {1 << 31}: its magnitude must stay below 2^31"
    )
    assert both("matmul", [[-128] * 131_071], [[-128]] * 131_071) == [[(1 << 31) - (1 << 14)]]


def test_the_product_of_rmsnorm_is_held_below_2_41(monkeypatch):
    """No i8 row of 32 can break it: the bound shows when the mean is taken over more values than there are."""
    row, gain = [127] + [0] * 31, [-128] * 32
    monkeypatch.setattr(first, "HIDDEN", 1 << 20)
    monkeypatch.setattr(second, "WIDTH", 1 << 20)
    said = f"rmsnorm.product[0, 0] = {-127 * 128 << 30}: its magnitude must stay below 2^41"
    assert broken("rmsnorm", ([row], gain), (array([row]), array(gain))) == said


def test_scores_beyond_eight_products_break_the_contract_of_softmax():
    """2^17 is possible, one more is not."""
    s = [[[0, (1 << 17) + 1]] * 4]
    said = broken("softmax", (s,), (heads(s),))
    assert said == "softmax.s[0, 0, 1] = 131073: 8 products of i8 stay within 2^17"


def test_weights_that_softmax_does_not_make_break_the_contract_of_mix():
    """32768 and -1; and values that are no i8; and a sum of 2^28, which takes more keys than the context has."""
    v = [[1] * 16]
    for p in (32768, -1):
        weights = [[[p]] * 4]
        assert (
            broken("mix", (weights, v), (heads(weights), array(v))) == f"mix.p[0, 0, 0] = {p}: softmax makes 0 to 32767"
        )
    assert "mix.v[0, 3] = 128" in broken(
        "mix", ([[[1]] * 4], [[0, 0, 0, 128] * 4]), (array([[[1]]] * 4), array([[0, 0, 0, 128] * 4]))
    )
    many, values = [[[32767] * 65] * 4], [[-128] * 16] * 65
    said = broken("mix", (many, values), (heads(many), array(values)))
    assert said == f"mix[0, 0] = {-65 * 32767 * 128}: its magnitude must stay below 2^28"


@pytest.mark.parametrize("start", [-1, 63])
def test_a_position_outside_the_context_is_refused_by_rope(start):
    """Positions are 0 to 63."""
    with pytest.raises(TokensRefused, match="those of nel-mini-w8a8 are 0 to 63"):
        first.rope([[0] * 8] * 2, start)
    with pytest.raises(second_errors.TokensRefused, match="those of nel-mini-w8a8 are 0 to 63"):
        second.rope(array([[0] * 8] * 2), start)
