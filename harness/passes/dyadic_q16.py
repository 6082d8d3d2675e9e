"""The forward pass of dyadic-q16 on a device: each stage is one kernel's output, and the next kernels' input.

The device gets a matrix as the file's own bytes, cut by rows where it, or what it makes, would pass BINDING_BYTES.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref import dyadic_q16 as reference
from cpu_ref.contracts import Place
from cpu_ref.gguf_model import GgufModel
from cpu_ref.linear import SUM_BITS
from cpu_ref.rounding import rne
from harness import schedules
from harness.device_session import Constant
from harness.families.layers_inputs import table
from harness.gguf_read import Opened, opened
from harness.memory import Memory
from harness.passes import Compute
from harness.plans import GUARD_WORDS

Array = npt.NDArray[Any]

BINDING_BYTES = 1 << 27
"""What every API lets a kernel see of a buffer."""

PAIRINGS = {"llama": "interleaved", "qwen2": "half"}
ONE = 1 << 16
"""1 in Q16."""


@dataclass(frozen=True)
class Model:
    """A released model as kernels take it. The reference's reader refuses what the profile does not cover.

    Gains and biases are the reference's integers; blocks are the bytes that the gguf package finds.
    """

    exact: GgufModel
    file: Opened
    _vectors: dict[str, Array] = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """Of the file."""
        return self.exact.sha256

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self.exact.vocabulary

    @property
    def context(self) -> int:
        """Positions at most."""
        return self.exact.context

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.exact.layers

    def blocks(self, name: str) -> tuple[str, Array]:
        """The block type in lower case and the bytes of matrix `name`, [rows, bytes a row]."""
        tensor = f"{name}.weight"
        return self.file.sound.tensors[tensor].type.lower(), self.file.usable(tensor)

    def output(self) -> str:
        """The matrix that makes logits."""
        return "output" if "output.weight" in self.file.sound.tensors else "token_embd"

    def gain(self, stage: str, name: str) -> Array:
        """The gain `name`, Q24; RangeContract, as the reference's."""
        if name not in self._vectors:
            gain = self.exact.gain(name, reference.GAIN_Q)
            Place(stage).hold("gain", reference.GAIN_BITS, (len(gain),), gain)
            self._vectors[name] = np.array(gain, np.int64)
        return self._vectors[name]

    def bias(self, stage: str, name: str, rows: int) -> Array:
        """The bias of matrix `name`, Q40, zeros where it has none; RangeContract, as the reference's."""
        vector = f"{name}.bias"
        if vector not in self._vectors:
            bias = self.exact.bias(name, reference.BIAS_Q) or [0] * rows
            Place(stage).hold("bias", SUM_BITS, (rows,), bias)
            self._vectors[vector] = np.array(bias, np.int64)
        return self._vectors[vector]


def load(source: str) -> Model:
    """The model of a GGUF file; Refused and InputRefused."""
    return Model(reference.load(source), opened(Path(source)))


def check(model: Model, tokens: Sequence[int]) -> None:
    """TokensRefused, as the reference says it."""
    model.exact.check_tokens(tokens)


def memory(model: Model, tokens: int, positions: int) -> Memory:
    """What a pass over so many tokens takes that ends with so many positions; stages have 8 bytes an element."""
    n, placed = model.exact.numbers, model.file.sound.tensors.values()
    matrices = [t for t in placed if len(t.dims) > 1]
    q, kv, scores = n.heads * n.head_width, n.kv_heads * n.head_width, n.heads * positions
    stages = 6 * n.width + 3 * q + 3 * kv + 2 * scores + 4 * n.mlp
    cut = max(*(t.size for t in matrices), 8 * tokens * model.vocabulary)
    return Memory(
        weights=sum(t.size + 8 * t.rows for t in matrices) + sum(2 * t.size for t in placed if len(t.dims) == 1),
        activations=8 * tokens * (stages + model.vocabulary),
        cache=16 * n.layers * positions * kv,
        largest=max(min(cut, BINDING_BYTES), 8 * tokens * max(n.mlp, q, scores), 8 * positions * kv),
    )


@dataclass
class Cache:
    """Rotated keys and plain values of each layer, i64[positions, kv, hd], as the device computed them."""

    keys: dict[int, Array] = field(default_factory=dict)
    values: dict[int, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys[0]) if self.keys else 0

    def extend(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """All keys and values of a layer, these added."""
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept[layer] = np.concatenate([kept.get(layer, new[:0]), new])
        return self.keys[layer], self.values[layer]


def run(
    compute: Compute, model: Model, tokens: Sequence[int], cache: Cache | None = None
) -> Iterator[tuple[str, Array]]:
    """Every stage of the tokens that follow the positions in `cache`, which grows by them; refuses as the reference does."""
    cache = Cache() if cache is None else cache
    model.exact.check_tokens(tokens, len(cache))
    ops = _Operations(compute, model, len(cache), len(tokens))
    x = ops.embedding(tokens)
    yield "embed", x
    for layer in range(model.layers):
        at, blk = f"l{layer}.", f"blk.{layer}."
        y = ops.rmsnorm(at + "attn_norm", blk + "attn_norm", x)
        yield at + "attn_norm", y
        q, k, v = (ops.heads(ops.linear(at + name, f"{blk}attn_{name}", y)) for name in "qkv")
        yield from ((at + "q", q), (at + "k", k), (at + "v", v))
        q, k = ops.rope(q), ops.rope(k)
        yield from ((at + "q_rope", q), (at + "k_rope", k))
        keys, values = cache.extend(layer, k, v)
        z = ops.scores(q, keys)
        yield at + "scores", z
        p = ops.softmax(z)
        yield at + "softmax", p
        mixed = ops.mix(p, values).reshape(len(tokens), -1)
        yield at + "mix", mixed
        out = ops.linear(at + "attn_out", blk + "attn_output", mixed)
        yield at + "attn_out", out
        x = ops.residual(x, out)
        y = ops.rmsnorm(at + "ffn_norm", blk + "ffn_norm", x)
        yield at + "ffn_norm", y
        gate, up = (ops.linear(at + name, f"{blk}ffn_{name}", y) for name in ("gate", "up"))
        yield from ((at + "gate", gate), (at + "up", up))
        yield at + "silu", ops.gate(gate, np.full_like(gate, ONE))
        act = ops.gate(gate, up)
        yield at + "act", act
        down = ops.linear(at + "down", blk + "ffn_down", act)
        yield at + "down", down
        x = ops.residual(x, down)
        yield at + "x", x
    hidden = ops.rmsnorm("hidden", "output_norm", x)
    yield "hidden", hidden
    logits = ops.linear("logits", model.output(), hidden)
    yield "logits", logits
    yield "greedy", ops.greedy(logits)


class _Operations:
    """The kernels of the profile, by the shapes of their operands, for `tokens` positions from `past` on."""

    def __init__(self, compute: Compute, model: Model, past: int, tokens: int) -> None:
        self.compute, self.model = compute, model
        n = self.numbers = model.exact.numbers
        rows = [reference.rope_row(n.rope_base, n.head_width, past + t) for t in range(tokens)]
        self.cosines, self.sines = (np.array(side, np.int32) for side in zip(*rows, strict=True))
        self.eps32 = np.array([rne(n.epsilon * (1 << 32))], np.int64)

    def heads(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.numbers.head_width)

    def embedding(self, ids: Sequence[int]) -> Array:
        """Of the table the device gets the rows of these tokens."""
        block, w = self.model.blocks("token_embd")
        there, places = np.unique(np.array(ids), return_inverse=True)
        dims = {"t": len(ids), "v": len(there), "k": self.numbers.width}
        return self.compute(f"embedding_{block}", dims, ids=places, w=w[there])

    def linear(self, stage: str, name: str, x: Array) -> Array:
        block, w = self.model.blocks(name)
        bias, (m, k) = self.model.bias(stage, name, len(w)), x.shape
        row_bytes = max(w.shape[1], schedules.PARTS * m * x.itemsize)
        step = max(1, (BINDING_BYTES - 4 * GUARD_WORDS) // row_bytes)
        made = []
        for i in range(0, len(w), step):
            dims = {"m": m, "n": len(w[i : i + step]), "k": k}
            constant = Constant(f"{name}@{i}", ("w", "bias"))
            part = {"w": w[i : i + step], "x": x, "bias": bias[i : i + step]}
            made.append(self.compute(f"linear_{block}", dims, None, constant, **part))
        return np.concatenate(made, axis=1)

    def rmsnorm(self, stage: str, name: str, x: Array) -> Array:
        return self.compute("rmsnorm", _rows(x), x=x, g=self.model.gain(stage, name), eps32=self.eps32)

    def rope(self, x: Array) -> Array:
        options = {"pairing": PAIRINGS[str(self.model.exact.architecture)]}
        return self.compute(
            "rope", dict(zip(("t", "h", "hd"), x.shape, strict=True)), options, x=x, c=self.cosines, s=self.sines
        )

    def scores(self, q: Array, keys: Array) -> Array:
        return self.compute("scores", self._attended(len(q), len(keys)), q=q, k=keys)

    def softmax(self, z: Array) -> Array:
        h, t, s = z.shape
        return self.compute("softmax", {"t": t, "s": s, "h": h}, z=z, e1=table("E1"), e2=table("E2"))

    def _attended(self, queries: int, keys: int) -> dict[str, int]:
        n = self.numbers
        return {"t": queries, "s": keys, "h": n.heads, "kv": n.kv_heads, "hd": n.head_width}

    def mix(self, p: Array, values: Array) -> Array:
        return self.compute("mix", self._attended(p.shape[1], len(values)), p=p, v=values)

    def gate(self, gate: Array, up: Array) -> Array:
        return self.compute("gate", _rows(gate), gate=gate, up=up, g=table("G"))

    def residual(self, x: Array, y: Array) -> Array:
        return self.compute("residual", _rows(x), x=x, y=y)

    def greedy(self, logits: Array) -> Array:
        return self.compute("argmax", _rows(logits), x=logits)


def _rows(x: Array) -> dict[str, int]:
    return {"m": x.shape[0], "n": x.shape[1]}
