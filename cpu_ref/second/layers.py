"""The operations of dyadic-q16 on whole arrays, with the contracts of their inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cpu_ref.second import dyadic_q16 as ops
from cpu_ref.second import tables as balls
from cpu_ref.second.blocks import BLOCK, Blocks
from cpu_ref.second.contracts import hold
from cpu_ref.second.errors import RequestRefused, TokensRefused, WeightsRefused
from cpu_ref.second.halves import Int64

Dims = dict[str, int]
Arrays = dict[str, Any]


class Layer(NamedTuple):
    """Dimensions, what inputs there are for given sizes (element type and shape), output dimensions, and the answer."""

    dims: tuple[str, ...]
    inputs: Callable[[Dims], dict[str, tuple[str, tuple[int, ...]]]]
    output: tuple[str, ...]
    answer: Callable[[Dims, Arrays, dict[str, str]], Int64]


def _held(op: str, arrays: Arrays, name: str, bits: int = 47) -> Int64:
    return hold(f"{op}.{name}", bits, arrays[name])


def _same_table(name: str, given: Any) -> None:
    if not np.array_equal(given, ops.checked_tables()[name]):
        raise RequestRefused(f"input {name.lower()!r} is another table than {name}")


def _turned(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    architecture = {"interleaved": "llama", "half": "qwen2"}.get(options.get("pairing", ""))
    if architecture is None or len(options) > 1:
        raise RequestRefused(f"options {options}: rope has pairing, interleaved or half")
    cos, sin = (arrays[name].astype(np.int64) for name in "cs")
    return ops.rope("rope", _held("rope", arrays, "x"), cos, sin, architecture)


def _normed(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    eps32 = int(arrays["eps32"][0])
    if eps32 < 1:
        raise RequestRefused(f"eps32 = {eps32} is below 1")
    return ops.rms_norm(_held("rmsnorm", arrays, "x"), _held("rmsnorm", arrays, "g", 40), eps32)


def _scored(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    q, k = _held("scores", arrays, "q"), _held("scores", arrays, "k")
    z = np.zeros((dims["h"], dims["t"], dims["s"]), np.int64)
    c = balls.inverse_root(dims["hd"], ops.Q30)
    for i, row in np.ndindex(z.shape[:2]):
        seen = dims["s"] - dims["t"] + row + 1
        z[i, row, :seen] = ops.scores("scores", q[row, i], k[:seen, i * dims["kv"] // dims["h"]], c, (i, row))
    return z


def _weighed(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    _same_table("E1", arrays["e1"])
    _same_table("E2", arrays["e2"])
    z = _held("softmax", arrays, "z", 62)
    p = np.zeros_like(z)
    for i, row in np.ndindex(z.shape[:2]):
        seen = dims["s"] - dims["t"] + row + 1
        p[i, row, :seen] = ops.softmax(z[i, row, :seen])
    return p


def _mixed(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    p, v = arrays["p"], _held("mix", arrays, "v")
    mixed = np.zeros((dims["t"], dims["h"], dims["hd"]), np.int64)
    for row, i in np.ndindex(mixed.shape[:2]):
        seen = dims["s"] - dims["t"] + row + 1
        mixed[row, i] = ops.mix("mix", p[i, row, :seen], v[:seen, i * dims["kv"] // dims["h"]], (row, i))
    return mixed


def _gated(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    _same_table("G", arrays["g"])
    gate, up = _held("gate", arrays, "gate"), _held("gate", arrays, "up")
    return ops.gate("act", ops.silu("silu", gate), up)


def _added(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    x, y = _held("residual", arrays, "x"), _held("residual", arrays, "y")
    return hold("residual.residual", 47, x + y)


def _chosen(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    x = _held("argmax", arrays, "x")
    places: Int64 = np.argmax(x, axis=1).astype(np.int64)  # the first of equals
    return places


def _kept(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
    if dims["past"] > dims["t"]:
        raise RequestRefused(f"past {dims['past']} is over {dims['t']}")
    cache: Int64 = np.roll(_held("kv_append", arrays, "rows"), dims["past"], axis=0)
    return cache


def _rows(dims: Dims, *names: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return dict.fromkeys(names, ("i64", (dims["m"], dims["n"])))


def _embedding(kind: str, block_bytes: int) -> Layer:
    def answer(dims: Dims, arrays: Arrays, options: dict[str, str]) -> Int64:
        blocks, ids = Blocks(kind, arrays["w"], "w"), arrays["ids"].tolist()
        outside = [token for token in ids if not 0 <= token < dims["v"]]
        if outside:
            raise TokensRefused(f"token id {outside[0]} is no row of {dims['v']}")
        return ops.shifted(np.concatenate([blocks.weights(token, token + 1) for token in ids]), 8)

    def inputs(dims: Dims) -> dict[str, tuple[str, tuple[int, ...]]]:
        if dims["k"] % BLOCK:
            raise WeightsRefused(f"a row of {dims['k']} weights: {kind} rows are multiples of {BLOCK}")
        return {"ids": ("i32", (dims["t"],)), "w": ("u8", (dims["v"], dims["k"] // BLOCK * block_bytes))}

    return Layer(("t", "v", "k"), inputs, ("t", "k"), answer)


def _turned_inputs(d: Dims) -> dict[str, tuple[str, tuple[int, ...]]]:
    if d["hd"] % 2:
        raise RequestRefused(f"hd {d['hd']} is odd")
    table = ("i32", (d["t"], d["hd"] // 2))
    return {"x": ("i64", (d["t"], d["h"], d["hd"])), "c": table, "s": table}


def _checked_heads(d: Dims) -> Dims:
    if d["s"] < d["t"] or d["h"] % d.get("kv", 1):
        raise RequestRefused(f"{d}: fewer keys than queries, or heads that do not share key heads evenly")
    return d


_HEADS = ("t", "s", "h", "kv", "hd")

LAYERS = {
    "argmax": Layer(("m", "n"), lambda d: _rows(d, "x"), ("m",), _chosen),
    "embedding_q8_0": _embedding("Q8_0", 34),
    "embedding_q4_1": _embedding("Q4_1", 20),
    "embedding_q4_0": _embedding("Q4_0", 18),
    "gate": Layer(("m", "n"), lambda d: {**_rows(d, "gate", "up"), "g": ("i32", (32769,))}, ("m", "n"), _gated),
    "kv_append": Layer(("t", "past", "w"), lambda d: {"rows": ("i64", (d["t"], d["w"]))}, ("t", "w"), _kept),
    "mix": Layer(
        _HEADS,
        lambda d: {
            "p": ("i64", (_checked_heads(d)["h"], d["t"], d["s"])),
            "v": ("i64", (d["s"], d["kv"], d["hd"])),
        },
        ("t", "h", "hd"),
        _mixed,
    ),
    "residual": Layer(("m", "n"), lambda d: _rows(d, "x", "y"), ("m", "n"), _added),
    "rmsnorm": Layer(
        ("m", "n"),
        lambda d: {**_rows(d, "x"), "g": ("i64", (d["n"],)), "eps32": ("i64", (1,))},
        ("m", "n"),
        _normed,
    ),
    "rope": Layer(("t", "h", "hd"), _turned_inputs, ("t", "h", "hd"), _turned),
    "scores": Layer(
        _HEADS,
        lambda d: {
            "q": ("i64", (d["t"], _checked_heads(d)["h"], d["hd"])),
            "k": ("i64", (d["s"], d["kv"], d["hd"])),
        },
        ("h", "t", "s"),
        _scored,
    ),
    "softmax": Layer(
        ("t", "s", "h"),
        lambda d: {
            "z": ("i64", (_checked_heads(d)["h"], d["t"], d["s"])),
            "e1": ("i32", (5632,)),
            "e2": ("i32", (256,)),
        },
        ("h", "t", "s"),
        _weighed,
    ),
}
"""Kernel -> operation."""
