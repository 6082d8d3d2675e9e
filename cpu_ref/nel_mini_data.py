"""Shape, tables and weights of profile nel-mini-w8a8, each made and checked as docs/profiles/nel-mini-w8a8.md states."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import prod

import mpmath
from blake3 import blake3

from cpu_ref.errors import RequestRefused, TableRefused
from cpu_ref.integers import write_signed
from cpu_ref.tables import Table, precision, rounded, table_bytes

NAME = "nel-mini-w8a8"
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP, VOCABULARY, CONTEXT = 32, 2, 4, 2, 8, 64, 64, 64
SHAPE = (HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP, VOCABULARY, CONTEXT)
Q_WIDTH, KV_WIDTH = HEADS * HEAD, KV_HEADS * HEAD

Row = list[int]
Rows = list[Row]


# Tables

TABLE_DIGESTS = {
    "EXP2": "567920147890b2b589cae786c525838f6a1b9869b433b250915370c6acc83b9e",
    "SILU": "e093543c89c199b14e1fb33574e0292bc0b43d216da4d7df26f0b797efaab7b2",
    "COS": "8c14a524db65ab1cae016e35aec17dfa9461076e0d12d3445078ce2afb077067",
    "SIN": "a615538f1121995ec2692e4d83f792b86e96ea0c9e82aa624e52951b13b4aa3a",
}
"""SHA-256 of each table's little-endian bytes, without a header."""
ELEMENTS = {"EXP2": "u32", "SILU": "i8", "COS": "i16", "SIN": "i16"}


def exact_tables() -> dict[str, list[mpmath.mpf]]:
    """Every entry before it is rounded."""
    with precision():
        one, angles = mpmath.mpf(1), [mpmath.mpf(p) / 10**i for p in range(CONTEXT) for i in range(HEAD // 2)]
        steps = [one * (i - 128) / 16 for i in range(256)]
        return {
            "EXP2": [2 ** (15 - one * f / 64) for f in range(64)],
            "SILU": [16 * u / (1 + mpmath.exp(-u)) for u in steps],
            "COS": [2**15 * mpmath.cos(a) for a in angles],
            "SIN": [2**15 * mpmath.sin(a) for a in angles],
        }


def tables() -> dict[str, Table]:
    """Element type and entries of each table, made anew: rounded once, and cos = 1 brought into i16."""
    made = {name: rounded(name, exact) for name, exact in exact_tables().items()}
    made["COS"] = [min(v, 32767) for v in made["COS"]]
    return {name: (ELEMENTS[name], entries) for name, entries in made.items()}


@cache
def checked_tables() -> dict[str, Row]:
    """The entries of each table; TableRefused where a digest is not the stated one."""
    made = tables()
    for name, table in made.items():
        found = sha256(table_bytes(table)).hexdigest()
        if found != TABLE_DIGESTS[name]:
            raise TableRefused(f"{name}: SHA-256 {found}, the profile states {TABLE_DIGESTS[name]}")
    return {name: entries for name, (_, entries) in made.items()}


# Weights

LAYER_SHAPES = {
    "gamma1": (HIDDEN,),
    "wqkv": (HIDDEN, Q_WIDTH + 2 * KV_WIDTH),
    "wout": (Q_WIDTH, HIDDEN),
    "gamma2": (HIDDEN,),
    "wgate": (HIDDEN, MLP),
    "wup": (HIDDEN, MLP),
    "wdown": (MLP, HIDDEN),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "embed": (VOCABULARY, HIDDEN),
    **{f"layer{layer}.{name}": shape for layer in range(LAYERS) for name, shape in LAYER_SHAPES.items()},
    "final_gamma": (HIDDEN,),
    "lm_head": (HIDDEN, VOCABULARY),
}
"""The weight tensors in order, `[input][output]`; a gain has one dimension."""

SETS = {"nel-mini:published": "NOOS/NEL/TESTMODEL/W8A8/V1", "nel-mini:stress": "nel-mini-w8a8/stress/v1/"}
"""Weight sets, and the text before each tensor's name."""


@dataclass(frozen=True)
class Model:
    """One weight set: the values of each tensor, row-major. No file holds it, so it has no SHA-256."""

    source: str
    weights: dict[str, Row]
    sha256: None = None
    vocabulary: int = VOCABULARY
    context: int = CONTEXT
    layers: int = LAYERS

    def matrix(self, name: str) -> Rows:
        """A tensor as rows of inputs."""
        values, width = self.weights[name], SHAPES[name][-1]
        return [values[i : i + width] for i in range(0, len(values), width)]

    def data(self, name: str) -> bytes:
        """The tensor as i8 bytes."""
        return write_signed(self.weights[name], 1)


def load(source: str) -> Model:
    """`nel-mini:published` or `nel-mini:stress`, drawn from BLAKE3's extendable output; RequestRefused for others."""
    if source not in SETS:
        raise RequestRefused(f"{NAME} has no model {source!r}; there are {', '.join(SETS)}")
    draw = _published if source == "nel-mini:published" else _stress
    weights = {}
    for name, shape in SHAPES.items():
        drawn = blake3((SETS[source] + name).encode("ascii")).digest(length=prod(shape))
        weights[name] = [draw(name, b) for b in drawn]
    return Model(source, weights)


def _published(name: str, b: int) -> int:
    return b % 32 + 16 if "gamma" in name else b % 95 - 47


def _stress(name: str, b: int) -> int:
    if "gamma" in name:
        return 127
    if name == "embed":
        return b - 128
    return 127 if b % 2 else -128
