"""Profile nel-mini-w8a8, second implementation: whole tensors in NumPy's int64, masks where the reference has slices.

Bounds are checked before they could matter: i8 operands and the contracts keep every value below 2^42.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from cpu_ref.second.errors import RangeContract, RequestRefused, TableRefused, TokensRefused

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Stage = tuple[str, Int64]

NAME = "nel-mini-w8a8"
WIDTH, PAIRS, MLP, IDS, POSITIONS = 32, 4, 64, 64, 64
TABLE_DIGESTS = {
    "EXP2": "567920147890b2b589cae786c525838f6a1b9869b433b250915370c6acc83b9e",
    "SILU": "e093543c89c199b14e1fb33574e0292bc0b43d216da4d7df26f0b797efaab7b2",
    "COS": "8c14a524db65ab1cae016e35aec17dfa9461076e0d12d3445078ce2afb077067",
    "SIN": "a615538f1121995ec2692e4d83f792b86e96ea0c9e82aa624e52951b13b4aa3a",
}
KINDS = {"EXP2": "<u4", "SILU": "i1", "COS": "<i2", "SIN": "<i2"}


def tables() -> dict[str, tuple[str, list[int]]]:
    """Element type and entries of each table, from enclosures."""
    from flint import arb, ctx  # for tables alone: no operation of the second goes through FLINT

    from cpu_ref.second.tables import BITS, rounded

    with ctx.workprec(BITS):
        half = [arb(i - 128) / 32 for i in range(256)]
        angles = [arb(p) * arb(10) ** -i for p in range(POSITIONS) for i in range(PAIRS)]
        enclosures = {
            "EXP2": [(arb.log(arb(2)) * (960 - f) / 64).exp() for f in range(64)],
            "SILU": [16 * h * (1 + h.tanh()) for h in half],  # 1 / (1 + exp(-2h)) = (1 + tanh h) / 2
            "COS": [a.cos() * 32768 for a in angles],
            "SIN": [a.sin() * 32768 for a in angles],
        }
        made = {name: rounded(name, balls) for name, balls in enclosures.items()}
    limits = {"COS": np.iinfo("i2").max}
    kinds = {name: np.dtype(kind) for name, kind in KINDS.items()}
    return {
        name: (f"{kinds[name].kind}{8 * kinds[name].itemsize}", [min(v, limits.get(name, v)) for v in entries])
        for name, entries in made.items()
    }


_TABLES: dict[str, Int64] = {}


def table(name: str) -> Int64:
    """A table's entries, its digest checked."""
    if not _TABLES:
        for each, (_, entries) in tables().items():
            found = sha256(np.array(entries, KINDS[each]).tobytes()).hexdigest()
            if found != TABLE_DIGESTS[each]:
                raise TableRefused(f"{each}: SHA-256 {found}, the profile states {TABLE_DIGESTS[each]}")
            _TABLES[each] = np.array(entries, np.int64)
    return _TABLES[name]


class Model:
    """The weights of one set, `[input, output]`, by name."""

    sha256 = None
    vocabulary, context, layers = IDS, POSITIONS, 2

    def __init__(self, text: str, published: bool) -> None:
        shapes: dict[str, tuple[int, ...]] = {"embed": (IDS, WIDTH), "final_gamma": (WIDTH,), "lm_head": (WIDTH, IDS)}
        layer: dict[str, tuple[int, ...]] = {
            "gamma1": (WIDTH,),
            "gamma2": (WIDTH,),
            "wqkv": (WIDTH, 64),
            "wout": (WIDTH, WIDTH),
        }
        layer |= {"wgate": (WIDTH, MLP), "wup": (WIDTH, MLP), "wdown": (MLP, WIDTH)}
        shapes |= {f"layer{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
        self.tensors = {name: self._draw(text + name, shape, published) for name, shape in shapes.items()}

    @staticmethod
    def _draw(text: str, shape: tuple[int, ...], published: bool) -> Int64:
        count = int(np.prod(shape))
        drawn = np.frombuffer(blake3(text.encode()).digest(length=count), np.uint8).astype(np.int64)
        if published:
            values = drawn % 32 + 16 if "gamma" in text else drawn % 95 - 47
        elif "gamma" in text:
            values = np.full(count, 127)
        else:
            values = drawn - 128 if text.endswith("embed") else np.where(drawn & 1 == 1, 127, -128)
        return values.reshape(shape)


def load(source: str) -> Model:
    """The model `nel-mini:published` or `nel-mini:stress`."""
    texts = {"nel-mini:published": "NOOS/NEL/TESTMODEL/W8A8/V1", "nel-mini:stress": "nel-mini-w8a8/stress/v1/"}
    if source not in texts:
        raise RequestRefused(f"{NAME} has no model {source!r}; there are {', '.join(texts)}")
    return Model(texts[source], source == "nel-mini:published")


def _inside(values: Int64, low: int, high: int, op: str, bound: int | str) -> None:
    broken = np.argwhere((values < low) | (values > high))
    if len(broken):
        raise RangeContract(op, broken[0], int(values[tuple(broken[0])]), bound)


def _operands(op: str, **arrays: Int64) -> None:
    for name, values in arrays.items():
        _inside(values, -128, 127, f"{op}.{name}", "an i8 is -128 to 127")


def _small(values: Int64, bits: int, op: str) -> None:
    _inside(values, 1 - (1 << bits), (1 << bits) - 1, op, bits)


def embedding(ids: Sequence[int], embed: Int64) -> Int64:
    """Rows of `embed`, [T,32]."""
    return embed[np.array(ids, np.intp)]


def matmul(x: Int64, w: Int64, op: str = "matmul") -> Int64:
    """Exact sums, [T,N], as a sum of outer products."""
    _operands(op, x=x, w=w)
    acc = np.zeros((len(x), w.shape[1]), np.int64)
    for column, row in zip(x.T, w, strict=True):
        acc += np.outer(column, row)
    _small(acc, 31, op)
    return acc


def requant(acc: Int64, k: int) -> Int64:
    """Half up by a floor division of twice the value, then clipped to i8."""
    return np.clip((2 * acc + (1 << k)) // (2 << k), -128, 127)


def rmsnorm(x: Int64, gain: Int64, op: str = "rmsnorm") -> Int64:
    """Rows of 32, each divided by its root mean square. The root is the number of squares 1, 4, ... up to ms + 1."""
    _operands(op, x=x)
    _operands(op, gain=gain[None])
    squares = np.arange(1, 130, dtype=np.int64) ** 2
    ms = np.floor_divide(np.square(x).sum(axis=1), WIDTH)
    z = np.searchsorted(squares, ms + 1, side="right")
    product = x * (2**30 // z)[:, None] * gain
    _small(product, 41, f"{op}.product")
    return requant(product, 31)


def rope(x: Int64, start: int = 0, op: str = "rope") -> Int64:
    """[T,8*heads]: the halves of each head are the two parts of four complex numbers, turned."""
    _operands(op, x=x)
    if start < 0 or start + len(x) > POSITIONS:
        raise TokensRefused(f"positions {start} to {start + len(x) - 1}; those of {NAME} are 0 to {POSITIONS - 1}")
    halves = x.reshape(len(x), -1, 2, PAIRS)
    at = slice(start, start + len(x))
    cos, sin = (table(name).reshape(POSITIONS, 1, PAIRS)[at] for name in ("COS", "SIN"))
    real, imaginary = halves[:, :, 0], halves[:, :, 1]
    turned = np.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], axis=2)
    return requant(turned, 15).reshape(x.shape)


def seen(queries: int, keys: int) -> Mask:
    """[T,P]: which keys each query sees."""
    return np.tri(queries, keys, keys - queries, dtype=np.bool_)


def scores(q: Int64, keys: Int64, op: str = "scores") -> Int64:
    """[4,T,P], 0 where a key is not seen."""
    _operands(op, q=q, k=keys)
    by_head = q.reshape(len(q), 4, 8).swapaxes(0, 1)
    shared = np.repeat(keys.reshape(len(keys), 2, 8).transpose(1, 2, 0), 2, axis=0)
    return np.where(seen(len(q), len(keys)), by_head @ shared, 0)


def softmax(s: Int64, op: str = "softmax") -> Int64:
    """[4,T,P]: p of each row, 0 where a key is not seen."""
    mask = seen(*s.shape[1:])
    s = np.where(mask, s, 0)
    _inside(s, -(1 << 17), 1 << 17, f"{op}.s", "8 products of i8 stay within 2^17")
    largest = np.where(mask, s, -(1 << 17)).max(axis=2, keepdims=True)
    d = np.floor_divide(largest - s, 128)
    powers = np.concatenate([table("EXP2") // 2**n for n in range(16)] + [np.zeros(64, np.int64)])
    e = np.where(mask, powers[np.clip(d, 0, len(powers) - 1)], 0)
    r = 2**30 // e.sum(axis=2, keepdims=True)
    p: Int64 = np.minimum((2 * e * r + 2**15) // 2**16, 2**15 - 1)
    return p


def mix(p: Int64, values: Int64, op: str = "mix") -> Int64:
    """[T,32]: sums of values weighted by p, head beside head; one key after another."""
    _operands(op, v=values)
    mask = seen(*p.shape[1:])
    p = np.where(mask, p, 0)
    _inside(p, 0, 2**15 - 1, f"{op}.p", "softmax makes 0 to 32767")
    acc = np.zeros((p.shape[1], 4, 8), np.int64)
    for j, value in enumerate(np.repeat(values.reshape(-1, 2, 8), 2, axis=1)):
        acc += p[:, :, j].T[:, :, None] * value
    joined = acc.reshape(-1, WIDTH)
    _small(joined, 28, op)
    return joined


def act(gate: Int64, up: Int64, op: str = "act") -> Int64:
    """Gate's byte, read as unsigned, chooses the entry."""
    _operands(op, gate=gate, up=up)
    entries: Int64 = table("SILU")[gate.astype(np.int8).view(np.uint8)]
    return requant(entries * up, 8)


def residual(a: Int64, b: Int64, op: str = "residual") -> Int64:
    """The clipped sum."""
    _operands(op, a=a, b=b)
    total: Int64 = np.clip(a + b, -128, 127)
    return total


def greedy(logits: Int64) -> Int64:
    """[T]: the lowest of the places that hold the largest value."""
    places = np.arange(logits.shape[1])
    largest = logits.max(axis=1, keepdims=True)
    lowest: Int64 = np.where(logits == largest, places, logits.shape[1]).min(axis=1)
    return lowest


class Cache:
    """Rotated keys and values of both layers, i8 [2,64,16], filled up to `length`."""

    def __init__(self) -> None:
        self.length = 0
        self.keys, self.values = (np.zeros((2, POSITIONS, 16), np.int64) for _ in range(2))

    def __len__(self) -> int:
        return self.length


def run(model: Model, tokens: Sequence[int], cache: Cache | None = None) -> Iterator[Stage]:
    """Every stage, as soon as it is computed."""
    cache = Cache() if cache is None else cache
    past, end = len(cache), len(cache) + len(tokens)
    _refuse(tokens, end)
    w: dict[str, Any] = model.tensors
    x = embedding(tokens, w["embed"])
    yield "embed", x
    for layer in range(2):
        at, of = f"l{layer}.", f"layer{layer}."
        rms1 = rmsnorm(x, w[of + "gamma1"], at + "rms1")
        yield at + "rms1", rms1
        qkv_acc = matmul(rms1, w[of + "wqkv"], at + "qkv.acc")
        yield at + "qkv.acc", qkv_acc
        qkv = requant(qkv_acc, 11)
        yield at + "qkv", qkv
        turned = rope(qkv[:, :48], past, at + "rope")
        yield at + "rope", turned
        cache.keys[layer, past:end], cache.values[layer, past:end] = turned[:, 32:], qkv[:, 48:]
        s = scores(turned[:, :32], cache.keys[layer, :end], at + "scores")
        yield at + "scores", s
        p = softmax(s, at + "softmax")
        yield at + "softmax", p
        pv = mix(p, cache.values[layer, :end], at + "pv.acc")
        yield at + "pv.acc", pv
        yield at + "pv", requant(pv, 15)
        out = matmul(requant(pv, 15), w[of + "wout"], at + "out.acc")
        yield at + "out.acc", out
        yield at + "out", requant(out, 11)
        x = residual(x, requant(out, 11), at + "res1")
        yield at + "res1", x
        rms2 = rmsnorm(x, w[of + "gamma2"], at + "rms2")
        yield at + "rms2", rms2
        both = []
        for name in ("gate", "up"):
            acc = matmul(rms2, w[f"{of}w{name}"], f"{at}{name}.acc")
            yield f"{at}{name}.acc", acc
            both.append(requant(acc, 11))
            yield at + name, both[-1]
        acted = act(both[0], both[1], at + "act")
        yield at + "act", acted
        down = matmul(acted, w[of + "wdown"], at + "down.acc")
        yield at + "down.acc", down
        yield at + "down", requant(down, 12)
        x = residual(x, requant(down, 12), at + "res2")
        yield at + "res2", x
    cache.length = end
    hidden = rmsnorm(x, w["final_gamma"], "hidden")
    yield "hidden", hidden
    logits = matmul(hidden, w["lm_head"], "logits")
    yield "logits", logits
    yield "greedy", greedy(logits)


def _refuse(tokens: Sequence[int], end: int) -> None:
    if not tokens:
        raise TokensRefused("no tokens; give at least one")
    for i, token in enumerate(tokens):
        if token not in range(IDS):
            raise TokensRefused(f"token {i} is {token}; the vocabulary of {NAME} is 0 to {IDS - 1}")
    if end > POSITIONS:
        raise TokensRefused(f"{end} tokens; the context of {NAME} is {POSITIONS}")
