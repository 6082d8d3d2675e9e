"""The forward pass of dyadic-q16 on a device: each stage is one kernel's output, and the next kernels' input.

A layer is one submission. Weights go to the device as the file's own bytes and stay there as far as they are allowed to,
keys and values are appended to caches there, and only the stages that are wanted come back. A matrix over BINDING_BYTES is
cut by rows; a pass whose activations would be over it is cut into passes of fewer tokens, which changes no bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref import dyadic_q16 as reference
from cpu_ref.rounding import rne
from harness import schedules
from harness.device_session import RESIDENT_BYTES, Span
from harness.dyadic_model import Model, check, load
from harness.families import linear
from harness.families.layers_inputs import table
from harness.kernels import base
from harness.memory import Memory
from harness.model import Books, Constant, Device, Tape
from harness.plans import BLOCK_BYTES, GUARD_WORDS

__all__ = ["Cache", "Model", "OnDevice", "check", "load", "memory"]

Array = npt.NDArray[Any]
Wanted = Callable[[str], bool]
"""Whether a stage is to come back, by its name; `bool` wants them all."""

MOST_TOKENS = 512
"""Tokens in one pass at most: a longer input is cut, for the sake of the memory of its activations."""

PAIRINGS = {"llama": "interleaved", "qwen2": "half"}

_CACHES = count()


@dataclass
class Cache:
    """Rotated keys and plain values of one sequence on the device, i64[capacity, kv, hd] a layer; `len(cache)` positions.

    It lies on the device of the `OnDevice` that fills it first, for `room` positions or more: what is over is copied there.
    """

    room: int = 0
    capacity: int = 0
    positions: int = 0
    number: int = field(default_factory=lambda: next(_CACHES))

    def __len__(self) -> int:
        return self.positions

    def name(self, what: str, layer: int) -> str:
        """The tensor of a layer's keys or values."""
        return f"l{layer}.{what}.{self.number}.{self.capacity}"


@dataclass(frozen=True)
class _Slice:
    """Tokens of sequence `number` in one pass, as rows first .. first + len(tokens) - 1 of its activations."""

    number: int
    tokens: tuple[int, ...]
    cache: Cache
    first: int

    @property
    def past(self) -> int:
        """Positions before them."""
        return len(self.cache)

    @property
    def all(self) -> int:
        """Positions with them."""
        return len(self.cache) + len(self.tokens)


class OnDevice:
    """Forward passes of a model on one device; weights up to `resident` bytes stay there, the rest is sent each time."""

    def __init__(self, device: Device, model: Model, resident: int = RESIDENT_BYTES) -> None:
        self.model, self.tape = model, Tape(device)
        self.numbers = model.exact.numbers
        self.staying: set[Span] = set()
        for name in self._matrices():
            for span in model.matrix(name).parts.values():
                if resident >= span.size:
                    self.staying.add(span)
                    resident -= span.size

    def anew(self) -> None:
        """Give back all but the weights, so that a pass which writes nothing cannot show the values of an earlier one."""
        self.tape.clear()

    def _matrices(self) -> Iterator[str]:
        for layer in range(self.model.layers):
            for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
                yield f"blk.{layer}.{name}"
        yield self.model.output()

    def run(
        self, tokens: Sequence[int], cache: Cache | None = None, wanted: Wanted = bool
    ) -> Iterator[tuple[str, Array]]:
        """The wanted stages of the tokens that follow the positions in `cache`, which grows by them, and greedy; see `batch`."""
        for stage, (values,) in self.batch([(tokens, Cache() if cache is None else cache)], wanted):
            yield stage, values

    def batch(
        self, sequences: Sequence[tuple[Sequence[int], Cache]], wanted: Wanted = bool
    ) -> Iterator[tuple[str, list[Array]]]:
        """The same for several sequences in one pass, of any lengths: a value a sequence. Refuses as the reference does.

        Where logits are not wanted, they are made of the last row of each sequence alone, and greedy has that row alone.
        """
        for tokens, cache in sequences:
            self.model.exact.check_tokens(tokens, len(cache))
            self.grow(cache, len(cache) + len(tokens))
        passes = self._cut(sequences)
        if len(passes) == 1:
            for stage, made in self._pass(passes[0], wanted):
                yield stage, list(made.values())
            return
        found: dict[str, dict[int, list[Array]]] = {}
        for slices in passes:
            for stage, made in self._pass(slices, wanted):
                for number, values in made.items():
                    found.setdefault(stage, {}).setdefault(number, []).append(values)
        for stage, pieces in found.items():
            if stage == "greedy" and not wanted("logits"):
                yield stage, [pieces[number][-1] for number in sorted(pieces)]
            else:
                yield stage, [_joined(stage, pieces[number]) for number in sorted(pieces)]

    def _cut(self, sequences: Sequence[tuple[Sequence[int], Cache]]) -> list[list[_Slice]]:
        """Passes of so few tokens that no buffer is over the limit, the first sequence first."""
        room = self.most_tokens(max(len(cache) + len(tokens) for tokens, cache in sequences))
        passes: list[list[_Slice]] = [[]]
        left = room
        for number, (tokens, cache) in enumerate(sequences):
            rest = tuple(tokens)
            while rest:
                if left == 0:
                    passes.append([])
                    left = room
                now, rest = rest[:left], rest[left:]
                passes[-1].append(_Slice(number, now, cache, room - left))
                left -= len(now)
        return passes

    def most_tokens(self, positions: int) -> int:
        """Tokens of one pass at most that ends with so many positions: of several passes each but the last has as many."""
        n = self.numbers
        parts = schedules.PARTS if self.tape.device.order(base("scores")) == "split_k" else 1
        row = 8 * max(self.model.vocabulary, n.mlp, n.heads * max(n.head_width, positions)) * parts
        return max(1, min(MOST_TOKENS, (self.model.binding - 4 * GUARD_WORDS) // row))

    def grow(self, cache: Cache, positions: int) -> None:
        """See that the cache holds so many positions."""
        if cache.capacity >= positions:
            return
        n, old = self.numbers, replace(cache)
        cache.capacity = min(self.model.context, max(positions, cache.room, 2 * cache.capacity))
        width = n.kv_heads * n.head_width
        for layer in range(self.model.layers):
            for what in ("keys", "values"):
                self.tape.hold(cache.name(what, layer), 8 * width * cache.capacity, "cache")
                if len(cache):
                    self.tape.copy(
                        f"l{layer}.{what}", old.name(what, layer), cache.name(what, layer), width, (0, 0, len(cache))
                    )
        if len(cache):
            self.tape.submit()
            self.release(old)

    def release(self, cache: Cache) -> None:
        """Give the memory of a cache back."""
        for layer in range(self.model.layers):
            for what in ("keys", "values"):
                self.tape.drop(cache.name(what, layer))

    def _pass(self, slices: list[_Slice], wanted: Wanted) -> Iterator[tuple[str, dict[int, Array]]]:
        rows = _Rows(self, slices, wanted)
        yield from rows.embedding()
        for layer in range(self.model.layers):
            yield from rows.layer(layer)
        yield from rows.head()
        for s in slices:
            s.cache.positions += len(s.tokens)


class _Rows:
    """The kernels of one pass, by the shapes of their operands; its rows are the tokens of all slices, one after the other."""

    def __init__(self, whole: OnDevice, slices: list[_Slice], wanted: Wanted) -> None:
        self.model, self.tape, self.staying = whole.model, whole.tape, whole.staying
        self._stages = list[str]()
        self.slices, self.wanted = slices, wanted
        self.rows = sum(len(s.tokens) for s in slices)
        n = self.n = self.model.exact.numbers
        self.kv = n.kv_heads * n.head_width
        self.options = {"pairing": PAIRINGS[str(self.model.exact.architecture)]}

    def made(self, stage: str, tensor: str, *dims: int, per: Sequence[str] = ()) -> None:
        """Have a stage brought back where it is wanted: rows of a tensor, or a tensor [h, t, s] for each slice."""
        if self.wanted(stage):
            for s, name in zip(self.slices, per, strict=False):
                self.tape.fetch(f"{stage}/{s.number}", name, (self.n.heads, len(s.tokens), s.all))
            if not per:
                self.tape.fetch(stage, tensor, (self.rows, *dims))
            self._stages.append(stage)

    def submit(self, *, receipts: bool = False) -> Iterator[tuple[str, dict[int, Array]]]:
        """The wanted stages of what was gathered, by sequence."""
        found = self.tape.submit(receipts=receipts)
        for stage in self._stages:
            if stage in found:
                whole = found[stage]
                yield stage, {s.number: whole[s.first : s.first + len(s.tokens)] for s in self.slices}
            else:
                yield stage, {s.number: found[f"{stage}/{s.number}"] for s in self.slices}
        self._stages.clear()

    def embedding(self) -> Iterator[tuple[str, dict[int, Array]]]:
        """The device gets the table's rows of these tokens, and the cosines and sines of their positions."""
        n, table = self.n, self.model.matrix("token_embd")
        there, places = np.unique([token for s in self.slices for token in s.tokens], return_inverse=True)
        self._send("ids", 4 * self.rows, lambda: places.astype("<i4"))
        row = table.k // 32 * BLOCK_BYTES[table.block]
        self._send("embedding", len(there) * row, lambda: self.model.rows("token_embd", there))
        positions = [p for s in self.slices for p in range(s.past, s.all)]
        for side, name in enumerate(("cosines", "sines")):
            self._send(name, 2 * self.rows * n.head_width, partial(self._turns, positions, side))
        dims = {"t": self.rows, "v": len(there), "k": n.width}
        self.tape.step("embed", f"embedding_{table.block}", dims, {"ids": "ids", "w": "embedding", "x": "x"})
        self.made("embed", "x", n.width)
        yield from self.submit()

    def _turns(self, positions: Sequence[int], side: int) -> Array:
        return np.array([reference.rope_row(self.n.rope_base, self.n.head_width, p)[side] for p in positions], "<i4")

    def _send(self, name: str, size: int, content: Callable[[], Array]) -> None:
        self.tape.constant(name, Constant(size, content), "activations", stays=False)

    def layer(self, layer: int) -> Iterator[tuple[str, dict[int, Array]]]:
        """One submission."""
        n, at, blk = self.n, f"l{layer}.", f"blk.{layer}."
        self.norm(at + "attn_norm", blk + "attn_norm", "x", "attn_norm")
        for name, heads in (("q", n.heads), ("k", n.kv_heads), ("v", n.kv_heads)):
            self.linear(at + name, f"{blk}attn_{name}", "attn_norm", name)
            self.made(at + name, name, heads, n.head_width)
        for name, heads in (("q", n.heads), ("k", n.kv_heads)):
            self.rope(at + name, name, heads)
        self.attention(at, layer)
        self.linear(at + "attn_out", blk + "attn_output", "mix", "attn_out")
        self.made(at + "attn_out", "attn_out", n.width)
        self.add(at + "x", "x", "attn_out", "middle")
        self.norm(at + "ffn_norm", blk + "ffn_norm", "middle", "ffn_norm")
        for name in ("gate", "up"):
            self.linear(at + name, f"{blk}ffn_{name}", "ffn_norm", name)
            self.made(at + name, name, n.mlp)
        if self.wanted(at + "silu"):
            ones = Constant(8 * self.rows * n.mlp, lambda: np.full((self.rows, n.mlp), 1 << 16, "<i8"))  # 1 in Q16
            self.gate(at + "silu", self.tape.constant(f"ones.{self.rows}", ones, "activations"), "silu")
        self.gate(at + "act", "up", "act")
        self.linear(at + "down", blk + "ffn_down", "act", "down")
        self.made(at + "down", "down", n.width)
        self.add(at + "x", "middle", "down", "x")
        self.made(at + "x", "x", n.width)
        yield from self.submit()

    def head(self) -> Iterator[tuple[str, dict[int, Array]]]:
        """Norm, logits and choices, of the last row of each slice alone where logits are not wanted."""
        self.norm("hidden", "output_norm", "x", "hidden")
        width, rows, hidden = self.n.width, self.rows, "hidden"
        if not self.wanted("logits"):
            rows, hidden = len(self.slices), "last"
            self.tape.hold("last", 8 * width * rows, "activations")
            for i, s in enumerate(self.slices):
                self.tape.copy("logits", "hidden", "last", width, (s.first + len(s.tokens) - 1, i, 1))
        self.linear("logits", self.model.output(), hidden, "logits", rows)
        vocabulary = self.model.vocabulary
        self.made("logits", "logits", vocabulary)
        self.tape.step("greedy", "argmax", {"m": rows, "n": vocabulary}, {"x": "logits", "i": "greedy"})
        self.tape.fetch("greedy", "greedy", (rows,))
        if hidden == "hidden":
            self._stages.append("greedy")
            yield from self.submit(receipts=True)
            return
        found = self.tape.submit(receipts=True)
        for stage in self._stages:
            yield stage, {s.number: found[stage][s.first : s.first + len(s.tokens)] for s in self.slices}
        yield "greedy", {s.number: found["greedy"][i : i + 1] for i, s in enumerate(self.slices)}

    def norm(self, stage: str, name: str, x: str, y: str) -> None:
        """Op 3."""
        n = self.n
        gain = Constant(8 * n.width, lambda: self.model.gain(stage, name))
        eps32 = Constant(8, lambda: np.array([rne(n.epsilon * (1 << 32))], "<i8"))
        arguments = {
            "x": x,
            "g": self.tape.constant(name, gain),
            "eps32": self.tape.constant("eps32", eps32),
            "y": y,
        }
        self.tape.step(stage, "rmsnorm", {"m": self.rows, "n": n.width}, arguments)
        self.made(stage, y, n.width)

    def linear(self, stage: str, name: str, x: str, y: str, rows: int | None = None) -> None:
        """Op 2, a step for each part of the matrix."""
        matrix = self.model.matrix(name)
        biased = f"{name}.bias" in self.model.file.sound.tensors
        bias = Constant(8 * matrix.rows, lambda: self.model.bias(stage, name, matrix.rows))
        from_bias = self.tape.constant(f"{name}.bias" if biased else f"zeros.{matrix.rows}", bias)
        dims = {"m": self.rows if rows is None else rows, "n": matrix.rows, "k": matrix.k}
        kernel = self.tape.device.entry(f"linear_{matrix.block}")
        for (first, part), span in matrix.parts.items():
            stays = span in self.staying
            w = f"{name if stays else 'sent.' + name.rpartition('.')[2]}@{first}"
            self.tape.constant(w, Constant(-(-span.size // 4) * 4, span), stays=stays)
            arguments = {"w": w, "x": x, "bias": from_bias, "y": y}
            cut = partial(linear.part_passes, kernel, first=first, rows=part) if len(matrix.parts) > 1 else None
            self.tape.step(stage, kernel.name, dims, arguments, passes=cut)

    def rope(self, stage: str, name: str, heads: int) -> None:
        """Op 4."""
        dims = {"t": self.rows, "h": heads, "hd": self.n.head_width}
        arguments = {"x": name, "c": "cosines", "s": "sines", "y": f"{name}_rope"}
        self.tape.step(f"{stage}_rope", "rope", dims, arguments, self.options)
        self.made(f"{stage}_rope", f"{name}_rope", heads, self.n.head_width)

    def attention(self, at: str, layer: int) -> None:
        """Keys and values into the caches, then ops 5 to 7 of each slice; of several, its rows are copied out and back."""
        n, tape, alone = self.n, self.tape, len(self.slices) == 1
        width = n.heads * n.head_width
        tape.hold("mix", 8 * width * self.rows, "activations")
        per: dict[str, list[str]] = {"scores": [], "softmax": []}
        for s in self.slices:
            t = len(s.tokens)
            keys, values = (s.cache.name(what, layer) for what in ("keys", "values"))
            for stage, rows, cache in (("k_rope", "k_rope", keys), ("v", "v", values)):
                tape.copy(at + stage, rows, cache, self.kv, (s.first, s.past, t))
            q, mix = ("q_rope", "mix") if alone else ("q_part", "mix_part")
            if not alone:
                tape.hold(q, 8 * width * t, "activations")
                tape.copy(at + "q_rope", "q_rope", q, width, (s.first, 0, t))
            kept = "" if alone or not (self.wanted(at + "scores") or self.wanted(at + "softmax")) else f".{s.number}"
            z, p = "scores" + kept, "softmax" + kept
            dims = {"t": t, "s": s.all, "h": n.heads, "kv": n.kv_heads, "hd": n.head_width}
            tape.step(at + "scores", "scores", dims, {"q": q, "k": keys, "z": z})
            tables = {name: tape.constant(name, _table(name.upper())) for name in ("e1", "e2")}
            tape.step(at + "softmax", "softmax", {"t": t, "s": s.all, "h": n.heads}, {"z": z, "p": p, **tables})
            tape.step(at + "mix", "mix", dims, {"p": p, "v": values, "o": mix})
            if not alone:
                tape.copy(at + "mix", mix, "mix", width, (0, s.first, t))
            per["scores"].append(z)
            per["softmax"].append(p)
        for stage, names in per.items():
            self.made(at + stage, "", per=names)
        self.made(at + "mix", "mix", width)

    def gate(self, stage: str, up: str, h: str) -> None:
        """Ops 8 and 9."""
        dims, g = {"m": self.rows, "n": self.n.mlp}, self.tape.constant("g", _table("G"))
        self.tape.step(stage, "gate", dims, {"gate": "gate", "up": up, "g": g, "h": h})
        self.made(stage, h, self.n.mlp)

    def add(self, stage: str, x: str, y: str, z: str) -> None:
        """Op 10."""
        self.tape.step(stage, "residual", {"m": self.rows, "n": self.n.width}, {"x": x, "y": y, "z": z})


def _table(name: str) -> Constant:
    values = table(name)
    return Constant(values.nbytes, lambda: values)


def _joined(stage: str, pieces: list[Array]) -> Array:
    """The whole stage of a sequence from those of its parts: rows behind each other, 0 where a key is not seen yet."""
    if not stage.endswith((".scores", ".softmax")):
        return np.concatenate(pieces)
    keys = pieces[-1].shape[2]
    return np.concatenate([np.pad(p, ((0, 0), (0, 0), (0, keys - p.shape[2]))) for p in pieces], axis=1)


def memory(model: Model, tokens: int, positions: int, schedule: str = "forward") -> Memory:
    """What a pass over so many tokens takes that ends with so many positions, all weights there, by doing it in the books."""
    whole, cache = OnDevice(Books(schedule), model, 1 << 62), Cache()
    whole.grow(cache, positions)
    last = min(tokens, whole.most_tokens(positions))  # the largest pass, where there are several
    cache.positions = tokens - last
    for _ in whole.run([i % model.vocabulary for i in range(last)], cache, lambda stage: stage == "logits"):
        pass
    found = whole.tape.sizes()
    return Memory(
        weights=found["weights"],
        activations=found["activations"] + found["scratch"],
        cache=found["cache"],
        largest=max(size for size, _ in whole.tape.held.values()),
    )
