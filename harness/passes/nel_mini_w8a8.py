"""The forward pass of nel-mini-w8a8 on a device: each stage is one kernel's output, and the next kernels' input."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref.nel_mini_data import SHAPES, Model, load
from cpu_ref.nel_mini_w8a8 import REQUANT, check_tokens
from harness.device_session import Session
from harness.families.nel_inputs import tables
from harness.memory import Memory
from harness.passes import Compute

__all__ = ["Cache", "OnDevice", "check", "load", "memory", "run"]

Array = npt.NDArray[Any]


def check(model: Model, tokens: Sequence[int]) -> None:
    """TokensRefused, as the reference says it."""
    check_tokens(tokens)


def memory(model: Model, tokens: int, positions: int, schedule: str) -> Memory:
    """What a pass over so many tokens takes that ends with so many positions: everything at 4 bytes an element, as sent."""
    weights = [math.prod(dims) for dims in SHAPES.values()]
    widest = max(max(dims) for dims in SHAPES.values())
    rows = 4 * tokens * max(widest, 4 * positions)
    return Memory(
        weights=4 * sum(weights),
        activations=8 * rows,
        cache=4 * model.layers * positions * 32,
        largest=max(4 * max(weights), rows),
    )


class Cache:
    """Rotated keys and values of each layer, i8[P,16], as the device computed them; it needs no room beforehand."""

    def __init__(self, room: int = 0) -> None:
        self.keys = [np.zeros((0, 16), np.int8) for _ in range(2)]
        self.values = [np.zeros((0, 16), np.int8) for _ in range(2)]

    def __len__(self) -> int:
        return len(self.keys[0])

    def extend(self, layer: int, keys: Array, values: Array) -> None:
        """Append the rows of new positions."""
        self.keys[layer] = np.concatenate([self.keys[layer], keys.astype(np.int8)])
        self.values[layer] = np.concatenate([self.values[layer], values.astype(np.int8)])


@dataclass(frozen=True)
class _Operations:
    """The kernels of the profile, by the shapes of their operands."""

    compute: Compute
    model: Model

    def weights(self, name: str) -> Array:
        return np.array(self.model.weights[name], np.int8).reshape(SHAPES[name])

    def embedding(self, ids: Sequence[int]) -> Array:
        embed = self.weights("embed")
        dims = {"m": len(ids), "v": len(embed), "n": embed.shape[1]}
        return self.compute("nel_embedding", dims, ids=np.array(ids, np.int32), embed=embed)

    def matmul(self, x: Array, weight: str) -> Array:
        w = self.weights(weight)
        return self.compute("nel_matmul", {"m": len(x), "n": w.shape[1], "k": len(w)}, a=x, b=w)

    def requant(self, acc: Array, stage: str) -> Array:
        dims = {"m": len(acc), "n": acc.shape[1], "shift": REQUANT[stage]}
        return self.compute("nel_requant", dims, acc=acc)

    def rmsnorm(self, x: Array, gain: str) -> Array:
        return self.compute("nel_rmsnorm", {"m": len(x), "k": x.shape[1]}, x=x, gain=self.weights(gain))

    def rope(self, x: Array, positions: int) -> Array:
        dims = {"m": len(x), "n": x.shape[1], "p": positions}
        return self.compute("nel_rope", dims, x=x, cosines=tables()["COS"], sines=tables()["SIN"])

    def scores(self, q: Array, keys: Array) -> Array:
        return self.compute("nel_scores", {"m": len(q), "p": len(keys), "d": 8}, q=q, k=keys)

    def softmax(self, s: Array) -> Array:
        return self.compute("nel_softmax", {"m": s.shape[1], "p": s.shape[2]}, s=s, powers=tables()["EXP2"])

    def mix(self, p: Array, values: Array) -> Array:
        return self.compute("nel_mix", {"m": p.shape[1], "p": p.shape[2]}, p=p, v=values)

    def act(self, gate: Array, up: Array) -> Array:
        dims = {"m": len(gate), "n": gate.shape[1]}
        return self.compute("nel_act", dims, gate=gate, up=up, silu=tables()["SILU"])

    def residual(self, a: Array, b: Array) -> Array:
        return self.compute("nel_residual", {"m": len(a), "n": a.shape[1]}, a=a, b=b)

    def greedy(self, logits: Array) -> Array:
        return self.compute("nel_argmax", {"m": len(logits), "n": logits.shape[1]}, logits=logits)


class OnDevice:
    """Forward passes of a model on one device, stage by stage through the host; the weights are few and sent each time."""

    def __init__(self, device: Session, model: Model, resident: int) -> None:
        self.device, self.model = device, model

    def anew(self) -> None:
        """Between passes; nothing stays on the device."""

    def run(
        self, tokens: Sequence[int], cache: Cache | None = None, wanted: Callable[[str], bool] = bool
    ) -> Iterator[tuple[str, Array]]:
        """See `run`; then those stages that are wanted, and greedy."""
        for stage, values in run(self.device.compute, self.model, tokens, cache):
            if wanted(stage) or stage == "greedy":
                yield stage, values


def run(
    compute: Compute, model: Model, tokens: Sequence[int], cache: Cache | None = None
) -> Iterator[tuple[str, Array]]:
    """Every stage of the tokens that follow the positions in `cache`, which grows by them; refuses as the reference does."""
    cache = Cache() if cache is None else cache
    check_tokens(tokens, len(cache))
    ops, positions = _Operations(compute, model), len(cache) + len(tokens)
    x = ops.embedding(tokens)
    yield "embed", x
    for layer in range(model.layers):
        at, of = f"l{layer}.", f"layer{layer}."
        rms1 = ops.rmsnorm(x, of + "gamma1")
        yield at + "rms1", rms1
        qkv = yield from _projected(ops, at, "qkv", rms1, of + "wqkv")
        rope = ops.rope(qkv[:, :48], positions)
        yield at + "rope", rope
        cache.extend(layer, rope[:, 32:], qkv[:, 48:])
        s = ops.scores(rope[:, :32], cache.keys[layer])
        yield at + "scores", s
        p = ops.softmax(s)
        yield at + "softmax", p
        mixed = ops.mix(p, cache.values[layer])
        yield at + "pv.acc", mixed
        pv = ops.requant(mixed, "pv")
        yield at + "pv", pv
        out = yield from _projected(ops, at, "out", pv, of + "wout")
        res1 = ops.residual(x, out)
        yield at + "res1", res1
        rms2 = ops.rmsnorm(res1, of + "gamma2")
        yield at + "rms2", rms2
        gate = yield from _projected(ops, at, "gate", rms2, of + "wgate")
        up = yield from _projected(ops, at, "up", rms2, of + "wup")
        act = ops.act(gate, up)
        yield at + "act", act
        down = yield from _projected(ops, at, "down", act, of + "wdown")
        x = ops.residual(res1, down)
        yield at + "res2", x
    hidden = ops.rmsnorm(x, "final_gamma")
    yield "hidden", hidden
    logits = ops.matmul(hidden, "lm_head")
    yield "logits", logits
    yield "greedy", ops.greedy(logits)


def _projected(
    ops: _Operations, at: str, stage: str, x: Array, weight: str
) -> Generator[tuple[str, Array], None, Array]:
    """Matmul and Requant, both stages."""
    acc = ops.matmul(x, weight)
    yield f"{at}{stage}.acc", acc
    y = ops.requant(acc, stage)
    yield at + stage, y
    return y
