"""Profile `dyadic-q16`, version 1, exactly: docs/profiles/dyadic-q16.md in mathematical integers.

Operations come first, each on rows of Python ints, then the forward pass. Every contract that can break is checked and
named: layer and stage, what of it (a term, a product, a sum), element, value. The others follow from these. With rows
shorter than 2^30, RMSNorm's y stays below 2^47 since abs(x) <= rms * sqrt(n) and abs(g) < 2^40. A finished sum below
2^62 gives an output below 2^47 of Linear (shift 24), RoPE and Mix (30), and so below 2^39 of SiLU and 2^46 of Gate.
An embedding is at most 2^39, and no product of Softmax passes 2^62.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain
from math import isqrt
from operator import add, mul

import mpmath

from cpu_ref.contracts import Place
from cpu_ref.gguf_model import GgufModel
from cpu_ref.linear import ACTIVATION_BITS, SUM_BITS, apply
from cpu_ref.rounding import rne, round_shift
from cpu_ref.tables import Table, checked, powers, precision, rounded

NAME = "dyadic-q16"
ARCHITECTURES = ("llama", "qwen2")
TYPES = ("Q4_0", "Q4_1", "Q8_0")
GAIN_BITS = 40
GAIN_Q, BIAS_Q = 24, 40

TABLE_DIGESTS = {
    "E1": "763620a49d2c4008eda96a5babd50766907b65847ab7eba6009d5b8b11c39944",
    "E2": "3e5a2fe4428242fe746f579226f07daa09e8bb0466b01b7e4eaa9c88fe432e03",
    "G": "0747e95db975812fac2c5d4b9465f58253aff6183893ee4a53e1e9a12837a218",
}

ONE = 1 << 30
"""1 in Q30."""

SOFTMAX_END = 5632
"""Steps of 1/256 below the maximum from which on a key weighs nothing."""

SILU_END = 16 << 16
"""From this magnitude on (Q16) the sigmoid is 0 or 1."""

Row = list[int]
Stage = tuple[str, tuple[int, ...], list[int]]
"""Name, shape, row-major values."""


def exact_tables() -> dict[str, list[mpmath.mpf]]:
    """E1, E2 and G by their formulas, before they are rounded."""
    with precision():
        return {
            "E1": [ONE * v for v in powers(mpmath.exp(mpmath.mpf(-1) / 256), SOFTMAX_END)],
            "E2": [ONE * v for v in powers(mpmath.exp(mpmath.mpf(-1) / 65536), 256)],
            "G": [ONE / (1 + v) for v in powers(mpmath.exp(mpmath.mpf(-1) / 2048), 32769)],
        }


def tables() -> dict[str, Table]:
    """The rounded tables, made anew; TableRefused where an entry is too near to a tie."""
    return {name: ("i64", rounded(name, values)) for name, values in exact_tables().items()}


@cache
def checked_tables() -> dict[str, list[int]]:
    """The entries of E1, E2 and G; TableRefused where a digest is not the document's."""
    return checked(tables(), TABLE_DIGESTS)


@cache
def rope_row(base: Fraction, head_width: int, position: int) -> tuple[Row, Row]:
    """C[position] and S[position], Q30, head_width / 2 entries each."""
    with precision():
        ratio = mpmath.mpf(base.numerator) / base.denominator
        angles = [position * ratio ** (mpmath.mpf(-2 * i) / head_width) for i in range(head_width // 2)]
        c, s = [ONE * mpmath.cos(a) for a in angles], [ONE * mpmath.sin(a) for a in angles]
    return rounded(f"C[{position}]", c), rounded(f"S[{position}]", s)


@cache
def score_scale(head_width: int) -> int:
    """c = rne(2^30 / sqrt(head_width))."""
    with precision():
        return rounded("c", [ONE / mpmath.sqrt(head_width)])[0]


def embedding(w: Row) -> Row:
    """Op 1: the row of a token's Q24 weights in Q16."""
    return [round_shift(v, 8) for v in w]


def rms_norm(x: Row, gain: Row, eps32: int) -> Row:
    """Op 3: x Q16, gain Q24, eps32 Q32; one rounding of the full product, of up to 128 bits."""
    ms = sum(v * v for v in x) // len(x) + eps32
    e = 64 - ms.bit_length()
    e -= e % 2
    m = ms << e if e >= 0 else ms >> -e
    inv = ((1 << 63) - 1) // isqrt(m)
    return [round_shift(v * g * inv, 71 - e // 2) for v, g in zip(x, gain, strict=True)]


def rope(place: Place, x: Row, c: Row, s: Row, adjacent: bool) -> Row:
    """Op 4 on one head: pairs (2i, 2i+1) where `adjacent`, else (i, i + hd/2). Elements of its contract: pair, product."""
    half = len(x) // 2
    first, second = (x[::2], x[1::2]) if adjacent else (x[:half], x[half:])
    products = [v for a, b, p, q in zip(first, second, c, s, strict=True) for v in (a * p, b * q, a * q, b * p)]
    place.hold("term", SUM_BITS, (half, 4), products)
    a = [ac - bs for ac, bs in zip(products[::4], products[1::4], strict=True)]
    b = [as_ + bc for as_, bc in zip(products[2::4], products[3::4], strict=True)]
    pairs = list(zip(a, b, strict=True))
    sums = list(chain.from_iterable(pairs)) if adjacent else a + b
    place.hold("sum", SUM_BITS, (len(x),), sums)
    return [round_shift(v, 30) for v in sums]


def scores(place: Place, q: Row, keys: Sequence[Row], c: int) -> Row:
    """Op 5 of one query head: z (Q16) for each visible key; c as `score_scale`."""
    dots = _dots(place, q, keys)
    products = [round_shift(v, 16) * c for v in dots]
    place.hold("product", SUM_BITS, (len(products),), products)
    return [round_shift(v, 30) for v in products]


def softmax(z: Row) -> Row:
    """Op 6 of one row of scores (Q16): p in Q30."""
    e1, e2 = checked_tables()["E1"], checked_tables()["E2"]
    top = max(z)
    e = [round_shift(e1[d >> 8] * e2[d & 255], 30) if d >> 8 < SOFTMAX_END else 0 for d in (top - v for v in z)]
    v = ((1 << 62) - 1) // sum(e)
    return [round_shift(e_j * v, 32) for e_j in e]


def mix(place: Place, p: Row, values: Sequence[Row]) -> Row:
    """Op 7 of one query head: p (Q30) and v (Q16) of each visible key give the head's elements, Q16."""
    return [round_shift(v, 30) for v in _dots(place, p, list(zip(*values, strict=True)))]


def _dots(place: Place, x: Row, rows: Sequence[Sequence[int]]) -> Row:
    """The sum of products of x and each row; a term's element is (row, position in it)."""
    terms = [list(map(mul, x, row)) for row in rows]
    place.hold("term", SUM_BITS, (len(rows), len(x)), list(chain.from_iterable(terms)))
    sums = list(map(sum, terms))
    place.hold("sum", SUM_BITS, (len(sums),), sums)
    return sums


def sigmoid(x: int) -> int:
    """s of op 8, Q30: the table G, linear between its entries."""
    g, a = checked_tables()["G"], abs(x)
    if a >= SILU_END:
        s = ONE
    else:
        i, f = a >> 5, a & 31
        s = g[i] + round_shift((g[i + 1] - g[i]) * f, 5)
    return ONE - s if x < 0 else s


def silu(place: Place, x: Row) -> Row:
    """Op 8, Q16 to Q16."""
    products = [v * sigmoid(v) for v in x]
    place.hold("product", SUM_BITS, (len(x),), products)
    return [round_shift(v, 30) for v in products]


def gate(place: Place, activated: Row, up: Row) -> Row:
    """Op 9: silu(gate) times up, Q16."""
    products = list(map(mul, activated, up))
    place.hold("product", SUM_BITS, (len(up),), products)
    return [round_shift(v, 16) for v in products]


def residual(place: Place, x: Row, y: Row) -> Row:
    """Op 10."""
    sums = list(map(add, x, y))
    place.hold("residual", ACTIVATION_BITS, (len(x),), sums)
    return sums


def greedy(logits: Row) -> int:
    """The largest logit, the lowest id among equals."""
    return logits.index(max(logits))


class Cache:
    """The KV cache: by layer, rotated keys and plain values of every position, each split into its heads."""

    def __init__(self) -> None:
        self.keys: defaultdict[int, list[list[Row]]] = defaultdict(list)
        self.values: defaultdict[int, list[list[Row]]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self.keys[0])


def load(source: str) -> GgufModel:
    """The model of a GGUF file; GgufRefused, ModelRefused or WeightsRefused."""
    return GgufModel(source, ARCHITECTURES, TYPES)


def run(model: GgufModel, tokens: Sequence[int], cache: Cache | None = None) -> Iterator[Stage]:
    """The forward pass, stage by stage in order, then ("greedy", (T,), ids). Tokens follow those in `cache`, which grows.

    TokensRefused before the first stage; RangeContract and TableRefused where they arise.
    """
    cache = Cache() if cache is None else cache
    past = len(cache)
    model.check_tokens(tokens, past)
    x = [embedding(model.matrix("token_embd").weights.band(token, 1)) for token in tokens]
    yield _stage("embed", x)
    for layer in range(model.layers):
        x = yield from _Layer(model, layer).run(x, cache, past)
    hidden = _norm(model, Place("hidden"), "output_norm", x)
    yield _stage("hidden", hidden)
    logits = apply(Place("logits"), model.output(), hidden)
    yield _stage("logits", logits)
    yield "greedy", (len(tokens),), [greedy(row) for row in logits]


class _Layer:
    """One layer of the document's forward pass, on rows of T tokens."""

    def __init__(self, model: GgufModel, layer: int) -> None:
        self.model, self.layer = model, layer

    def run(self, x: list[Row], cache: Cache, past: int) -> Generator[Stage, None, list[Row]]:
        """Yields the layer's stages, returns the residual stream after it."""
        y = self.norm("attn_norm", x)
        yield self.stage("attn_norm", y)
        attended = yield from self.attention(y, cache, past)
        out = self.linear("attn_out", "attn_output", attended)
        yield self.stage("attn_out", out)
        x = [residual(self.place("attn_out", t), *rows) for t, rows in enumerate(zip(x, out, strict=True))]

        y = self.norm("ffn_norm", x)
        yield self.stage("ffn_norm", y)
        gates, up = self.linear("gate", "ffn_gate", y), self.linear("up", "ffn_up", y)
        yield self.stage("gate", gates)
        yield self.stage("up", up)
        activated = [silu(self.place("silu", t), row) for t, row in enumerate(gates)]
        yield self.stage("silu", activated)
        act = [gate(self.place("act", t), *rows) for t, rows in enumerate(zip(activated, up, strict=True))]
        yield self.stage("act", act)
        down = self.linear("down", "ffn_down", act)
        yield self.stage("down", down)
        x = [residual(self.place("x", t), *rows) for t, rows in enumerate(zip(x, down, strict=True))]
        yield self.stage("x", x)
        return x

    def attention(self, y: list[Row], cache: Cache, past: int) -> Generator[Stage, None, list[Row]]:
        """From the normed rows to the mixed heads, joined."""
        n, hd = self.model.numbers, self.model.numbers.head_width
        group, heads, tokens = n.heads // n.kv_heads, range(n.heads), range(len(y))
        q, k, v = (self.linear(name, f"attn_{name}", y) for name in "qkv")
        yield self.stage("q", q, n.heads, hd)
        yield self.stage("k", k, n.kv_heads, hd)
        yield self.stage("v", v, n.kv_heads, hd)
        q, k = (self.turned(name, rows, past) for name, rows in (("q_rope", q), ("k_rope", k)))
        yield self.stage("q_rope", q, n.heads, hd)
        yield self.stage("k_rope", k, n.kv_heads, hd)

        keys, values = cache.keys[self.layer], cache.values[self.layer]
        keys += [_heads(row, hd) for row in k]
        values += [_heads(row, hd) for row in v]
        queries, c = [_heads(row, hd) for row in q], score_scale(hd)

        def visible(rows: list[list[Row]], t: int, i: int) -> list[Row]:
            """Of the positions up to token t's, the head that query head i reads."""
            return [row[i // group] for row in rows[: past + t + 1]]

        z = [[scores(self.place("scores", i, t), queries[t][i], visible(keys, t, i), c) for t in tokens] for i in heads]
        yield self.triangle("scores", z, len(keys))
        p = [[softmax(row) for row in head] for head in z]
        yield self.triangle("softmax", p, len(keys))
        mixed = [
            [v for i in heads for v in mix(self.place("mix", t, i), p[i][t], visible(values, t, i))] for t in tokens
        ]
        yield self.stage("mix", mixed)
        return mixed

    def place(self, stage: str, *at: int) -> Place:
        return Place(f"l{self.layer}.{stage}", at)

    def stage(self, name: str, rows: list[Row], *shape: int) -> Stage:
        return _stage(f"l{self.layer}.{name}", rows, *shape)

    def triangle(self, name: str, heads: list[list[Row]], keys: int) -> Stage:
        """Rows of visible keys as [h,T,keys], 0 for the later ones."""
        flat = [v for head in heads for row in head for v in (*row, *[0] * (keys - len(row)))]
        return f"l{self.layer}.{name}", (len(heads), len(heads[0]), keys), flat

    def norm(self, name: str, x: list[Row]) -> list[Row]:
        return _norm(self.model, self.place(name), f"blk.{self.layer}.{name}", x)

    def linear(self, stage: str, name: str, x: list[Row]) -> list[Row]:
        tensor = f"blk.{self.layer}.{name}"
        return apply(self.place(stage), self.model.matrix(tensor), x, self.model.bias(tensor, BIAS_Q))

    def turned(self, stage: str, rows: list[Row], past: int) -> list[Row]:
        """RoPE on every head of every row."""
        n, adjacent = self.model.numbers, self.model.architecture == "llama"
        turned = []
        for t, row in enumerate(rows):
            c, s = rope_row(n.rope_base, n.head_width, past + t)
            heads = enumerate(_heads(row, n.head_width))
            turned.append([v for i, x in heads for v in rope(self.place(stage, t, i), x, c, s, adjacent)])
        return turned


def _norm(model: GgufModel, place: Place, tensor: str, x: list[Row]) -> list[Row]:
    gain = model.gain(tensor, GAIN_Q)
    place.hold("gain", GAIN_BITS, (len(gain),), gain)
    eps32 = rne(model.numbers.epsilon * (1 << 32))
    return [rms_norm(row, gain, eps32) for row in x]


def _heads(row: Row, head_width: int) -> list[Row]:
    return [row[i : i + head_width] for i in range(0, len(row), head_width)]


def _stage(name: str, rows: list[Row], *shape: int) -> Stage:
    return name, (len(rows), *(shape or (len(rows[0]),))), list(chain.from_iterable(rows))
