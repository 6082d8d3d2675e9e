"""Profile nel-mini-w8a8, version 1: the exact reference, in the order of docs/profiles/nel-mini-w8a8.md.

Values are plain Python ints; nothing wraps. A matrix is a list of rows, one row a token. Every operation is defined for
all i8 operands, checks its contract and names the first broken element as `RangeContract`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import isqrt

from cpu_ref.errors import RangeContract, TokensRefused
from cpu_ref.nel_mini_data import (
    CONTEXT,
    HEAD,
    HEADS,
    HIDDEN,
    KV_HEADS,
    KV_WIDTH,
    LAYERS,
    NAME,
    Q_WIDTH,
    TABLE_DIGESTS,
    VOCABULARY,
    Model,
    Row,
    Rows,
    checked_tables,
    load,
    tables,
)
from cpu_ref.rounding import round_shift

__all__ = ["NAME", "TABLE_DIGESTS", "Cache", "Model", "Stage", "generate", "load", "run", "tables"]

REQUANT = {"qkv": 11, "out": 11, "gate": 11, "up": 11, "down": 12, "pv": 15}
"""k of operation 3, by the stage it makes."""
ROPE_SHIFT, RMSNORM_SHIFT, SCORE_SHIFT, SOFTMAX_SHIFT, ACT_SHIFT = 15, 31, 7, 15, 8

Stage = tuple[str, tuple[int, ...], Row]
"""Name, shape and row-major values of a stage of the document."""
Heads = list[list[Row]]
"""Of scores and softmax: for each row, for each head, one entry for each key that the row sees."""


# Operations


def embedding(ids: Sequence[int], embed: Rows) -> Rows:
    """1. Row `id` of `embed` i8[64,32] for each id, 0 to 63."""
    return [list(embed[token]) for token in ids]


def matmul(x: Rows, w: Rows, op: str = "matmul") -> Rows:
    """2. `acc = x W`, exact. x is i8[T,K], w i8[K,N]. Contract: abs(acc) < 2^31."""
    _hold_i8(x, f"{op}.x")
    _hold_i8(w, f"{op}.w")
    columns = list(zip(*w, strict=True))
    acc = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in x]
    _hold(acc, 31, op)
    return acc


def requant(acc: Rows, k: int) -> Rows:
    """3. `sat8(round_shift(acc, k))`: i8 of any exact sum."""
    return [[sat8(round_shift(v, k)) for v in row] for row in acc]


def sat8(v: int) -> int:
    """v where it is an i8, else the nearer end of i8."""
    return max(-128, min(127, v))


def rmsnorm(x: Rows, gain: Row, op: str = "rmsnorm") -> Rows:
    """4. RMSNorm of i8[T,32] with gain i8[32]. Contract: abs(x * inv * gain) < 2^41."""
    _hold_i8(x, f"{op}.x")
    _hold_i8([gain], f"{op}.gain")
    products = []
    for row in x:
        ms = sum(v * v for v in row) // HIDDEN
        inv = (1 << 30) // isqrt(ms + 1)
        products.append([v * inv * g for v, g in zip(row, gain, strict=True)])
    _hold(products, 41, f"{op}.product")
    return requant(products, RMSNORM_SHIFT)


def rope(x: Rows, start: int = 0, op: str = "rope") -> Rows:
    """5. Each head of 8 values in i8[T,8*heads], rotated; row t stands at position start + t."""
    _hold_i8(x, f"{op}.x")
    if start < 0 or start + len(x) > CONTEXT:
        raise TokensRefused(f"positions {start} to {start + len(x) - 1}; those of {NAME} are 0 to {CONTEXT - 1}")
    return [
        list(chain.from_iterable(_rotate(row[at : at + HEAD], start + t) for at in range(0, len(row), HEAD)))
        for t, row in enumerate(x)
    ]


def _rotate(head: Row, position: int) -> Row:
    half, cos, sin = HEAD // 2, checked_tables()["COS"], checked_tables()["SIN"]
    low, high = [], []
    for i in range(half):
        a, b = head[i], head[i + half]
        c, s = cos[half * position + i], sin[half * position + i]
        low.append(sat8(round_shift(a * c - b * s, ROPE_SHIFT)))
        high.append(sat8(round_shift(a * s + b * c, ROPE_SHIFT)))
    return low + high


def scores(q: Rows, keys: Rows, op: str = "scores") -> Heads:
    """6. `q . k` of each query head with its key head, for the keys that each row sees.

    q is i8[T,32], keys i8[P,16] of all positions so far; the last T of them are those of q's rows.
    """
    _hold_i8(q, f"{op}.q")
    _hold_i8(keys, f"{op}.k")
    return [
        [
            [sum(a * b for a, b in zip(_head(row, h), _head(key, _kv_head(h)), strict=True)) for key in seen]
            for h in range(HEADS)
        ]
        for row, seen in zip(q, _seen(keys, len(q)), strict=True)
    ]


def softmax(rows: Heads, op: str = "softmax") -> Heads:
    """7. p of each row of scores, 0 to 32767. Contract: abs(s) <= 2^17, which 8 products of i8 keep."""
    for t, heads in enumerate(rows):
        for h, row in enumerate(heads):
            for j, s in enumerate(row):
                if abs(s) > 1 << 17:
                    raise RangeContract(f"{op}.s", (h, t, j), s, "8 products of i8 stay within 2^17")
    return [[_softmax_row(row) for row in heads] for heads in rows]


def _softmax_row(s: Row) -> Row:
    exp2, largest = checked_tables()["EXP2"], max(s)
    e = []
    for v in s:
        d = (largest - v) >> SCORE_SHIFT
        n = d >> 6
        e.append(0 if n >= 16 else exp2[d & 63] >> n)
    r = (1 << 30) // sum(e)
    return [min(round_shift(v * r, SOFTMAX_SHIFT), 32767) for v in e]


def mix(p: Heads, values: Rows, op: str = "mix") -> Rows:
    """8. `sum_j p_j * v_j`, not yet requantised: head h fills columns 8h to 8h+7. Contract: abs(acc) < 2^28.

    p as softmax makes it, 0 to 32767; values i8[P,16] of all positions so far, as in `scores`.
    """
    _hold_i8(values, f"{op}.v")
    for t, heads in enumerate(p):
        for h, row in enumerate(heads):
            for j, v in enumerate(row):
                if not 0 <= v <= 32767:
                    raise RangeContract(f"{op}.p", (h, t, j), v, "softmax makes 0 to 32767")
    acc = [
        [
            sum(weight * _head(value, _kv_head(h))[d] for weight, value in zip(heads[h], seen, strict=True))
            for h in range(HEADS)
            for d in range(HEAD)
        ]
        for heads, seen in zip(p, _seen(values, len(p)), strict=True)
    ]
    _hold(acc, 28, op)
    return acc


def _head(row: Row, h: int) -> Row:
    return row[HEAD * h : HEAD * (h + 1)]


def _kv_head(h: int) -> int:
    return h * KV_HEADS // HEADS


def _seen(rows: Rows, queries: int) -> list[Rows]:
    """Of each of the last `queries` rows: itself and all before it."""
    return [rows[: len(rows) - queries + t + 1] for t in range(queries)]


def act(gate: Rows, up: Rows, op: str = "act") -> Rows:
    """9. `sat8(round_shift(SILU[gate & 255] * up, 8))`: the index is the two's-complement byte of gate."""
    _hold_i8(gate, f"{op}.gate")
    _hold_i8(up, f"{op}.up")
    silu = checked_tables()["SILU"]
    products = [[silu[g & 255] * u for g, u in zip(a, b, strict=True)] for a, b in zip(gate, up, strict=True)]
    return requant(products, ACT_SHIFT)


def residual(a: Rows, b: Rows, op: str = "residual") -> Rows:
    """10. `sat8(a + b)`."""
    _hold_i8(a, f"{op}.a")
    _hold_i8(b, f"{op}.b")
    return [[sat8(v + w) for v, w in zip(x, y, strict=True)] for x, y in zip(a, b, strict=True)]


def greedy(logits: Rows) -> Row:
    """11. Of each row the place of its largest value, the lowest among equals."""
    return [row.index(max(row)) for row in logits]


def _hold_i8(rows: Rows, op: str) -> None:
    for t, row in enumerate(rows):
        for c, v in enumerate(row):
            if not -128 <= v <= 127:
                raise RangeContract(op, (t, c), v, "an i8 is -128 to 127")


def _hold(rows: Rows, bits: int, op: str) -> None:
    for t, row in enumerate(rows):
        for c, v in enumerate(row):
            if abs(v) >= 1 << bits:
                raise RangeContract(op, (t, c), v, bits)


# Forward pass


class Cache:
    """What decoding keeps of the positions so far: for each layer the rotated key rows and the value rows, i8[P,16]."""

    def __init__(self) -> None:
        self.keys: list[Rows] = [[] for _ in range(LAYERS)]
        self.values: list[Rows] = [[] for _ in range(LAYERS)]

    def __len__(self) -> int:
        return len(self.keys[0])


def run(model: Model, tokens: Sequence[int], cache: Cache | None = None) -> Iterator[Stage]:
    """All stages of the tokens that follow the positions in `cache`, which grows by them.

    The whole input at once is prefill, token by token is decode. TokensRefused for an empty input, an id outside the
    vocabulary, or more than 64 positions.
    """
    cache = Cache() if cache is None else cache
    past = len(cache)
    check_tokens(tokens, past)
    stages: list[Stage] = []

    def keep(name: str, rows: Rows) -> Rows:
        stages.append((name, (len(rows), len(rows[0])), list(chain.from_iterable(rows))))
        return rows

    def keep_heads(name: str, rows: Heads) -> Heads:
        keys = past + len(tokens)
        padded = [row[h] + [0] * (keys - len(row[h])) for h in range(HEADS) for row in rows]
        stages.append((name, (HEADS, len(tokens), keys), list(chain.from_iterable(padded))))
        return rows

    def project(name: str, x: Rows, w: str) -> Rows:
        acc = keep(f"{name}.acc", matmul(x, model.matrix(w), f"{name}.acc"))
        return keep(name, requant(acc, REQUANT[name.split(".")[1]]))

    x = keep("embed", embedding(tokens, model.matrix("embed")))
    for layer in range(LAYERS):
        at, of = f"l{layer}.", f"layer{layer}."
        rms1 = keep(at + "rms1", rmsnorm(x, model.weights[of + "gamma1"], at + "rms1"))
        qkv = project(at + "qkv", rms1, of + "wqkv")
        rotated = keep(at + "rope", rope([row[: Q_WIDTH + KV_WIDTH] for row in qkv], past, at + "rope"))
        cache.keys[layer] += [row[Q_WIDTH:] for row in rotated]
        cache.values[layer] += [row[Q_WIDTH + KV_WIDTH :] for row in qkv]
        s = keep_heads(at + "scores", scores([row[:Q_WIDTH] for row in rotated], cache.keys[layer], at + "scores"))
        p = keep_heads(at + "softmax", softmax(s, at + "softmax"))
        pv = keep(at + "pv.acc", mix(p, cache.values[layer], at + "pv.acc"))
        pv = keep(at + "pv", requant(pv, REQUANT["pv"]))
        out = project(at + "out", pv, of + "wout")
        res1 = keep(at + "res1", residual(x, out, at + "res1"))
        rms2 = keep(at + "rms2", rmsnorm(res1, model.weights[of + "gamma2"], at + "rms2"))
        gate, up = project(at + "gate", rms2, of + "wgate"), project(at + "up", rms2, of + "wup")
        down = project(at + "down", keep(at + "act", act(gate, up, at + "act")), of + "wdown")
        x = keep(at + "res2", residual(res1, down, at + "res2"))
    hidden = keep("hidden", rmsnorm(x, model.weights["final_gamma"], "hidden"))
    logits = keep("logits", matmul(hidden, model.matrix("lm_head"), "logits"))
    stages.append(("greedy", (len(tokens),), greedy(logits)))
    return iter(stages)


def check_tokens(tokens: Sequence[int], others: int = 0) -> None:
    """TokensRefused where `tokens` are none, hold an id outside the vocabulary, or pass 64 together with `others`."""
    if not tokens:
        raise TokensRefused("no tokens; give at least one")
    for i, token in enumerate(tokens):
        if not 0 <= token < VOCABULARY:
            raise TokensRefused(f"token {i} is {token}; the vocabulary of {NAME} is 0 to {VOCABULARY - 1}")
    if others + len(tokens) > CONTEXT:
        raise TokensRefused(f"{others + len(tokens)} tokens; the context of {NAME} is {CONTEXT}")


def generate(model: Model, tokens: Sequence[int], count: int) -> list[int]:
    """`count` new tokens after `tokens`, each the greedy choice, over a cache; the last one is never fed.

    TokensRefused as in `run`, and where prompt and new tokens together pass 64.
    """
    check_tokens(tokens, count)
    cache, new, fed = Cache(), list[int](), list(tokens)
    while len(new) < count:
        *_, (_, _, choices) = run(model, fed, cache)
        new.append(choices[-1])
        fed = choices[-1:]
    return new
