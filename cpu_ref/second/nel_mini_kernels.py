"""The kernels `nel_*`, second implementation: what is asked for, and the operation's tensors as NumPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cpu_ref.second import nel_mini_w8a8 as nel
from cpu_ref.second.errors import RequestRefused, TableRefused

Int64 = nel.Int64
Inputs = dict[str, tuple[str, tuple[str | int, ...]]]
Compute = Callable[..., Int64]


def _needs(table: str, given: Int64) -> None:
    if not np.array_equal(nel.table(table), given):
        raise TableRefused(f"the input is not the profile's table {table}")


def _positions(m: int, p: int) -> int:
    if p < m:
        raise RequestRefused(f"{p} positions cannot hold {m} rows")
    return p - m


def embedding(sizes: dict[str, int], ids: Int64, embed: Int64) -> Int64:
    if len(ids) and (ids.min() < 0 or ids.max() >= len(embed)):
        raise RequestRefused(f"an id outside 0 to {len(embed) - 1}")
    return nel.embedding(ids.tolist(), embed)


def matmul(sizes: dict[str, int], a: Int64, b: Int64) -> Int64:
    return nel.matmul(a, b)


def requant(sizes: dict[str, int], acc: Int64) -> Int64:
    return nel.requant(acc, sizes["shift"])


def rmsnorm(sizes: dict[str, int], x: Int64, gain: Int64) -> Int64:
    if len(gain) != nel.WIDTH:
        raise RequestRefused(f"rows of {len(gain)}: RMSNorm is over {nel.WIDTH}")
    return nel.rmsnorm(x, gain)


def rope(sizes: dict[str, int], x: Int64, cosines: Int64, sines: Int64) -> Int64:
    _needs("COS", cosines)
    _needs("SIN", sines)
    if x.shape[1] % 8:
        raise RequestRefused(f"{x.shape[1]} columns are no whole heads")
    return nel.rope(x, _positions(len(x), sizes["p"]))


def scores(sizes: dict[str, int], q: Int64, k: Int64) -> Int64:
    if sizes["d"] != 8:
        raise RequestRefused(f"heads of {sizes['d']}: they are 8 wide")
    _positions(len(q), len(k))
    return nel.scores(q.reshape(len(q), -1), k.reshape(len(k), -1))


def softmax(sizes: dict[str, int], s: Int64, powers: Int64) -> Int64:
    _needs("EXP2", powers)
    _positions(*s.shape[1:])
    return nel.softmax(s)


def mix(sizes: dict[str, int], p: Int64, v: Int64) -> Int64:
    _positions(*p.shape[1:])
    return nel.mix(p, v)


def act(sizes: dict[str, int], gate: Int64, up: Int64, silu: Int64) -> Int64:
    _needs("SILU", silu)
    return nel.act(gate, up)


def residual(sizes: dict[str, int], a: Int64, b: Int64) -> Int64:
    return nel.residual(a, b)


def argmax(sizes: dict[str, int], logits: Int64) -> Int64:
    return nel.greedy(logits)


def _inputs(**elements: Any) -> Inputs:
    """`name="i8 m n"`: element type and extents."""
    found = {}
    for name, text in elements.items():
        element, *extents = text.split()
        found[name] = (element, tuple(int(e) if e.isdigit() else e for e in extents))
    return found


OPERATIONS: dict[str, tuple[tuple[str, ...], Inputs, Compute]] = {
    "nel_embedding": (("m", "v", "n"), _inputs(ids="i32 m", embed="i8 v n"), embedding),
    "nel_matmul": (("m", "n", "k"), _inputs(a="i8 m k", b="i8 k n"), matmul),
    "nel_requant": (("m", "n", "shift"), _inputs(acc="i32 m n"), requant),
    "nel_rmsnorm": (("m", "k"), _inputs(x="i8 m k", gain="i8 k"), rmsnorm),
    "nel_rope": (("m", "n", "p"), _inputs(x="i8 m n", cosines="i16 256", sines="i16 256"), rope),
    "nel_scores": (("m", "p", "d"), _inputs(q="i8 m 4 d", k="i8 p 2 d"), scores),
    "nel_softmax": (("m", "p"), _inputs(s="i32 4 m p", powers="u32 64"), softmax),
    "nel_mix": (("m", "p"), _inputs(p="i32 4 m p", v="i8 p 16"), mix),
    "nel_act": (("m", "n"), _inputs(gate="i8 m n", up="i8 m n", silu="i8 256"), act),
    "nel_residual": (("m", "n"), _inputs(a="i8 m n", b="i8 m n"), residual),
    "nel_argmax": (("m", "n"), _inputs(logits="i32 m n"), argmax),
}
"""By kernel: the names of its dimensions, its inputs, and what computes it."""
