"""The kernels `nel_*`: single operations of nel-mini-w8a8 as a request asks for them, by flat tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from cpu_ref import nel_mini_w8a8 as nel
from cpu_ref.errors import RequestRefused, TableRefused
from cpu_ref.nel_mini_data import HEAD, HEADS, HIDDEN, KV_HEADS, KV_WIDTH, Row, Rows, checked_tables

Dims = dict[str, int]
Tensors = dict[str, Row]
Extent = str | int


@dataclass(frozen=True)
class Operation:
    """Names of the dimensions, element type and extents of each input, extents of the i32 output, and what computes it."""

    dims: tuple[str, ...]
    inputs: dict[str, tuple[str, tuple[Extent, ...]]]
    output: tuple[Extent, ...]
    compute: Callable[[Dims, Tensors], Row]


def _rows(values: Row, width: int) -> Rows:
    return [values[i : i + width] for i in range(0, len(values), width)]


def _flat(rows: Rows) -> Row:
    return list(chain.from_iterable(rows))


def _table(name: str, given: Row) -> None:
    if given != checked_tables()[name]:
        raise TableRefused(f"the input is not the profile's table {name}")


def _only(dims: Dims, name: str, value: int) -> None:
    if dims[name] != value:
        raise RequestRefused(f"{name} is {dims[name]}; in {nel.NAME} it is {value}")


def _past(dims: Dims) -> int:
    """Positions before the first row."""
    if dims["m"] > dims["p"]:
        raise RequestRefused(f"{dims['m']} rows and {dims['p']} positions: a row is a position")
    return dims["p"] - dims["m"]


def _seen(dims: Dims, values: Row) -> nel.Heads:
    """[head, row, key] as the reference has it: of each row the heads, of each head the keys that the row sees."""
    m, p, past = dims["m"], dims["p"], _past(dims)
    return [[values[(h * m + t) * p :][: past + t + 1] for h in range(HEADS)] for t in range(m)]


def _padded(dims: Dims, rows: nel.Heads) -> Row:
    """The way back, 0 where a key is not seen."""
    return _flat([row[h] + [0] * (dims["p"] - len(row[h])) for h in range(HEADS) for row in rows])


def _embedding(dims: Dims, t: Tensors) -> Row:
    for i, token in enumerate(t["ids"]):
        if not 0 <= token < dims["v"]:
            raise RequestRefused(f"ids[{i}] is {token}; there are {dims['v']} rows")
    return _flat(nel.embedding(t["ids"], _rows(t["embed"], dims["n"])))


def _matmul(dims: Dims, t: Tensors) -> Row:
    return _flat(nel.matmul(_rows(t["a"], dims["k"]), _rows(t["b"], dims["n"])))


def _requant(dims: Dims, t: Tensors) -> Row:
    return _flat(nel.requant([t["acc"]], dims["shift"]))


def _rmsnorm(dims: Dims, t: Tensors) -> Row:
    _only(dims, "k", HIDDEN)
    return _flat(nel.rmsnorm(_rows(t["x"], HIDDEN), t["gain"]))


def _rope(dims: Dims, t: Tensors) -> Row:
    _table("COS", t["cosines"])
    _table("SIN", t["sines"])
    if dims["n"] % HEAD:
        raise RequestRefused(f"n is {dims['n']}, no multiple of a head's {HEAD}")
    return _flat(nel.rope(_rows(t["x"], dims["n"]), _past(dims)))


def _scores(dims: Dims, t: Tensors) -> Row:
    _only(dims, "d", HEAD)
    _past(dims)
    return _padded(dims, nel.scores(_rows(t["q"], HEADS * HEAD), _rows(t["k"], KV_WIDTH)))


def _softmax(dims: Dims, t: Tensors) -> Row:
    _table("EXP2", t["powers"])
    return _padded(dims, nel.softmax(_seen(dims, t["s"])))


def _mix(dims: Dims, t: Tensors) -> Row:
    return _flat(nel.mix(_seen(dims, t["p"]), _rows(t["v"], KV_WIDTH)))


def _act(dims: Dims, t: Tensors) -> Row:
    _table("SILU", t["silu"])
    return _flat(nel.act([t["gate"]], [t["up"]]))


def _residual(dims: Dims, t: Tensors) -> Row:
    return _flat(nel.residual([t["a"]], [t["b"]]))


def _argmax(dims: Dims, t: Tensors) -> Row:
    return nel.greedy(_rows(t["logits"], dims["n"]))


MATRIX: tuple[Extent, ...] = ("m", "n")
ATTENTION: tuple[Extent, ...] = (HEADS, "m", "p")

OPERATIONS = {
    "nel_embedding": Operation(
        ("m", "v", "n"), {"ids": ("i32", ("m",)), "embed": ("i8", ("v", "n"))}, MATRIX, _embedding
    ),
    "nel_matmul": Operation(("m", "n", "k"), {"a": ("i8", ("m", "k")), "b": ("i8", ("k", "n"))}, MATRIX, _matmul),
    "nel_requant": Operation(("m", "n", "shift"), {"acc": ("i32", MATRIX)}, MATRIX, _requant),
    "nel_rmsnorm": Operation(("m", "k"), {"x": ("i8", ("m", "k")), "gain": ("i8", ("k",))}, ("m", "k"), _rmsnorm),
    "nel_rope": Operation(
        ("m", "n", "p"), {"x": ("i8", MATRIX), "cosines": ("i16", (256,)), "sines": ("i16", (256,))}, MATRIX, _rope
    ),
    "nel_scores": Operation(
        ("m", "p", "d"), {"q": ("i8", ("m", HEADS, "d")), "k": ("i8", ("p", KV_HEADS, "d"))}, ATTENTION, _scores
    ),
    "nel_softmax": Operation(("m", "p"), {"s": ("i32", ATTENTION), "powers": ("u32", (64,))}, ATTENTION, _softmax),
    "nel_mix": Operation(("m", "p"), {"p": ("i32", ATTENTION), "v": ("i8", ("p", KV_WIDTH))}, ("m", HIDDEN), _mix),
    "nel_act": Operation(
        ("m", "n"), {"gate": ("i8", MATRIX), "up": ("i8", MATRIX), "silu": ("i8", (256,))}, MATRIX, _act
    ),
    "nel_residual": Operation(("m", "n"), {"a": ("i8", MATRIX), "b": ("i8", MATRIX)}, MATRIX, _residual),
    "nel_argmax": Operation(("m", "n"), {"logits": ("i32", MATRIX)}, ("m",), _argmax),
}
"""By kernel."""
