"""The operations of dyadic-q16 as kernels: whole tensors in, one whole tensor out, row by row through `dyadic_q16`.

Inputs are held to the profile's contracts too: activations below 2^47, gains below 2^40, scores below 2^62 in magnitude.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from cpu_ref import dyadic_q16 as ops
from cpu_ref.contracts import Place
from cpu_ref.errors import RequestRefused, TokensRefused
from cpu_ref.linear import ACTIVATION_BITS, SUM_BITS
from cpu_ref.weights import BLOCK_TYPES, Q4_0, Q4_1, Q8_0, BlockType, Weights

Dims = dict[str, int]
Values = dict[str, Any]
"""By input, its integers in row-major order."""

Row = list[int]


@dataclass(frozen=True)
class Layer:
    """The names of its dimensions, of each input the element type and dimensions, the dimensions of its i64 output.

    `compute` takes the sizes and the inputs, options by keyword; `options` names these with their values.
    """

    dims: tuple[str, ...]
    inputs: Mapping[str, tuple[str, tuple[str | int, ...]]]
    output: tuple[str, ...]
    compute: Callable[..., Row]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def tensors(self, dims: Dims) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of each input; `pairs` is half of hd. Refused where sizes do not fit together."""
        sizes = dims | {"pairs": dims.get("hd", 0) // 2}
        if "k" in dims:
            sizes |= {f"{name.lower()}_row": kind.row_bytes(dims["k"]) for name, kind in BLOCK_TYPES.items()}
        if "pairs" in chain.from_iterable(shape for _, shape in self.inputs.values()) and dims["hd"] % 2:
            raise RequestRefused(f"hd = {dims['hd']}: a head has whole pairs")
        if dims.get("h", 0) % dims.get("kv", 1):
            raise RequestRefused(f"h = {dims['h']}: no multiple of kv = {dims['kv']}")
        if {"t", "s"} <= dims.keys() and dims["s"] < dims["t"]:
            raise RequestRefused(f"s = {dims['s']}: there are at least as many keys as queries, {dims['t']}")
        return {
            name: (element, tuple(d if isinstance(d, int) else sizes[d] for d in shape))
            for name, (element, shape) in self.inputs.items()
        }


def _rows(values: Row, width: int) -> list[Row]:
    return [values[i : i + width] for i in range(0, len(values), width)]


def _flat(rows: Sequence[Row]) -> Row:
    return list(chain.from_iterable(rows))


def _activation(op: str, name: str, values: Values, width: int, bits: int = ACTIVATION_BITS) -> list[Row]:
    """The rows of an input, held to its contract."""
    Place(op).hold(name, bits, (len(values[name]) // width, width), values[name])
    return _rows(values[name], width)


def _table(name: str, values: Row) -> None:
    if values != ops.checked_tables()[name]:
        raise RequestRefused(f"input {name.lower()!r} is not the profile's table {name}")


def _embedding(kind: BlockType) -> Layer:
    def compute(dims: Dims, values: Values) -> Row:
        weights = Weights(kind, values["w"], dims["k"], "w")
        for token in values["ids"]:
            if not 0 <= token < dims["v"]:
                raise TokensRefused(f"token id {token} is outside 0..{dims['v'] - 1}")
        return _flat([ops.embedding(weights.band(token, 1)) for token in values["ids"]])

    row = f"{kind.name.lower()}_row"
    return Layer(("t", "v", "k"), {"ids": ("i32", ("t",)), "w": ("u8", ("v", row))}, ("t", "k"), compute)


def _rms_norm(dims: Dims, values: Values) -> Row:
    x = _activation("rmsnorm", "x", values, dims["n"])
    _activation("rmsnorm", "g", values, dims["n"], ops.GAIN_BITS)
    (eps32,) = values["eps32"]
    if eps32 < 1:
        raise RequestRefused(f"eps32 is {eps32}; it is at least 1")
    return _flat([ops.rms_norm(row, values["g"], eps32) for row in x])


def _rope(dims: Dims, values: Values, pairing: str) -> Row:
    x = _activation("rope", "x", values, dims["hd"])
    c, s = _rows(values["c"], dims["hd"] // 2), _rows(values["s"], dims["hd"] // 2)
    turned = []
    for i, head in enumerate(x):
        t, h = divmod(i, dims["h"])
        turned.append(ops.rope(Place("rope", (t, h)), head, c[t], s[t], pairing == "interleaved"))
    return _flat(turned)


def _scores(dims: Dims, values: Values) -> Row:
    t, s, h, kv, hd = (dims[d] for d in ("t", "s", "h", "kv", "hd"))
    q, k = (_activation("scores", name, values, hd) for name in "qk")
    c, z = ops.score_scale(hd), []
    for i in range(h):
        for row in range(t):
            seen = s - t + row + 1
            keys = [k[j * kv + i // (h // kv)] for j in range(seen)]
            z.append(ops.scores(Place("scores", (i, row)), q[row * h + i], keys, c) + [0] * (s - seen))
    return _flat(z)


def _softmax(dims: Dims, values: Values) -> Row:
    _table("E1", values["e1"])
    _table("E2", values["e2"])
    t, s = dims["t"], dims["s"]
    p = []
    for i, row in enumerate(_activation("softmax", "z", values, s, SUM_BITS)):
        seen = s - t + i % t + 1
        p.append(ops.softmax(row[:seen]) + [0] * (s - seen))
    return _flat(p)


def _mix(dims: Dims, values: Values) -> Row:
    t, s, h, kv, hd = (dims[d] for d in ("t", "s", "h", "kv", "hd"))
    p, v = _rows(values["p"], s), _activation("mix", "v", values, hd)
    mixed = []
    for row in range(t):
        for i in range(h):
            seen = s - t + row + 1
            heads = [v[j * kv + i // (h // kv)] for j in range(seen)]
            mixed.append(ops.mix(Place("mix", (row, i)), p[i * t + row][:seen], heads))
    return _flat(mixed)


def _gate(dims: Dims, values: Values) -> Row:
    _table("G", values["g"])
    gates, up = (_activation("gate", name, values, dims["n"]) for name in ("gate", "up"))
    rows = enumerate(zip(gates, up, strict=True))
    return _flat([ops.gate(Place("act", (m,)), ops.silu(Place("silu", (m,)), x), y) for m, (x, y) in rows])


def _residual(dims: Dims, values: Values) -> Row:
    x, y = (_activation("residual", name, values, dims["n"]) for name in "xy")
    return _flat([ops.residual(Place("residual", (m,)), *rows) for m, rows in enumerate(zip(x, y, strict=True))])


def _argmax(dims: Dims, values: Values) -> Row:
    return [ops.greedy(row) for row in _activation("argmax", "x", values, dims["n"])]


def _kv_append(dims: Dims, values: Values) -> Row:
    """Row r stands at position past + r; those past the end of the t positions begin again at position 0."""
    t, past = dims["t"], dims["past"]
    if past > t:
        raise RequestRefused(f"past = {past}: at most t = {t}")
    rows = _activation("kv_append", "rows", values, dims["w"])
    return _flat([rows[(position - past) % t] for position in range(t)])


_HEADS = ("t", "s", "h", "kv", "hd")

LAYERS: dict[str, Layer] = {
    "argmax": Layer(("m", "n"), {"x": ("i64", ("m", "n"))}, ("m",), _argmax),
    "embedding_q8_0": _embedding(Q8_0),
    "embedding_q4_1": _embedding(Q4_1),
    "embedding_q4_0": _embedding(Q4_0),
    "gate": Layer(
        ("m", "n"),
        {"gate": ("i64", ("m", "n")), "up": ("i64", ("m", "n")), "g": ("i32", (32769,))},
        ("m", "n"),
        _gate,
    ),
    "kv_append": Layer(("t", "past", "w"), {"rows": ("i64", ("t", "w"))}, ("t", "w"), _kv_append),
    "mix": Layer(_HEADS, {"p": ("i64", ("h", "t", "s")), "v": ("i64", ("s", "kv", "hd"))}, ("t", "h", "hd"), _mix),
    "residual": Layer(("m", "n"), {"x": ("i64", ("m", "n")), "y": ("i64", ("m", "n"))}, ("m", "n"), _residual),
    "rmsnorm": Layer(
        ("m", "n"), {"x": ("i64", ("m", "n")), "g": ("i64", ("n",)), "eps32": ("i64", (1,))}, ("m", "n"), _rms_norm
    ),
    "rope": Layer(
        ("t", "h", "hd"),
        {"x": ("i64", ("t", "h", "hd")), "c": ("i32", ("t", "pairs")), "s": ("i32", ("t", "pairs"))},
        ("t", "h", "hd"),
        _rope,
        {"pairing": ("interleaved", "half")},
    ),
    "scores": Layer(
        _HEADS, {"q": ("i64", ("t", "h", "hd")), "k": ("i64", ("s", "kv", "hd"))}, ("h", "t", "s"), _scores
    ),
    "softmax": Layer(
        ("t", "s", "h"),
        {"z": ("i64", ("h", "t", "s")), "e1": ("i32", (5632,)), "e2": ("i32", (256,))},
        ("h", "t", "s"),
        _softmax,
    ),
}
"""Kernel -> operation."""
