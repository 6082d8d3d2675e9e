"""Profile `dyadic-q16`, second implementation: whole arrays of int64, every product and sum checked before it can overflow.

What RMSNorm needs beyond 64 bits is done in digits of 24 bits.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from cpu_ref.second import tables as balls
from cpu_ref.second.contracts import hold, product, total
from cpu_ref.second.errors import TableRefused
from cpu_ref.second.halves import Int64
from cpu_ref.second.linear import linear
from cpu_ref.second.model import Model

NAME = "dyadic-q16"
TABLE_DIGESTS = {
    "E1": "763620a49d2c4008eda96a5babd50766907b65847ab7eba6009d5b8b11c39944",
    "E2": "3e5a2fe4428242fe746f579226f07daa09e8bb0466b01b7e4eaa9c88fe432e03",
    "G": "0747e95db975812fac2c5d4b9465f58253aff6183893ee4a53e1e9a12837a218",
}
Q30 = 1 << 30
DIGIT = 24
"""Bits of a digit in RMSNorm."""

Stage = tuple[str, Int64]
"""Name, and the array in its shape."""


def tables() -> dict[str, balls.Table]:
    """E1, E2 and G."""
    return {
        "E1": balls.exponential("E1", 256, 5632, Q30),
        "E2": balls.exponential("E2", 65536, 256, Q30),
        "G": balls.logistic("G", 2048, 32769, Q30),
    }


@cache
def checked_tables() -> dict[str, Int64]:
    """E1, E2 and G with the document's digests."""
    made = tables()
    for name, table in made.items():
        if balls.digest(table) != TABLE_DIGESTS[name]:
            raise TableRefused(f"table {name} has digest {balls.digest(table)}, not {TABLE_DIGESTS[name]}")
    return {name: np.array(entries, np.int64) for name, (_, entries) in made.items()}


def shifted(x: Int64, k: int) -> Int64:
    """round_shift: half up. The magnitudes here stay below 2^62, so the half never overflows."""
    y: Int64 = (x + (1 << (k - 1))) >> k
    return y


def rms_norm(x: Int64, gain: Int64, eps32: int) -> Int64:
    """Op 3 on rows [T,n]."""
    return np.stack([_scaled(row, gain, *_inverse(row, eps32)) for row in x])


def _inverse(x: Int64, eps32: int) -> tuple[int, int]:
    """inv and the shift of one row: the sum of squares from two digits, the root bit by bit."""
    high, low = x >> DIGIT, x & ((1 << DIGIT) - 1)
    squares = (int((high * high).sum()) << 48) + (int((high * low).sum()) << 25) + int((low * low).sum())
    ms = squares // len(x) + eps32
    half_e = (64 - ms.bit_length()) // 2  # floor: e is even, and 1 less where the difference is odd
    m = ms * 4**half_e if half_e >= 0 else ms // 4**-half_e
    root = 0
    for bit in range(31, -1, -1):
        if (root + (1 << bit)) ** 2 <= m:
            root += 1 << bit
    return (2**63 - 1) // root, 71 - half_e


def _scaled(x: Int64, gain: Int64, inv: int, shift: int) -> Int64:
    """round_shift(x * gain * inv, shift) on magnitudes: half up of a negative number is half down of its magnitude."""
    mask = (1 << DIGIT) - 1
    digits = [np.zeros_like(x) for _ in range(6)]
    for i, a in enumerate(_digits(x)):
        for j, g in enumerate(_digits(gain)):
            for k, v in enumerate((inv & mask, inv >> DIGIT)):
                part = a * g  # 48 bits
                digits[i + j + k] += (part & mask) * v
                digits[i + j + k + 1] += (part >> DIGIT) * v
    negative = (x < 0) ^ (gain < 0)
    half = 1 << (shift - 1)
    for i in range(6):
        up, down = (h >> (DIGIT * i) & mask for h in (half, half - 1))
        digits[i] += np.where(negative, down, up)
    for i in range(5):
        digits[i + 1] += digits[i] >> DIGIT
        digits[i] &= mask
    first, rest = divmod(shift, DIGIT)
    digits += [np.zeros_like(x)] * 3
    magnitude = digits[first] >> rest
    for i in (1, 2):
        magnitude |= digits[first + i] << (DIGIT * i - rest)
    y: Int64 = np.where(negative, -magnitude, magnitude)
    return y


def _digits(x: Int64) -> tuple[Int64, Int64]:
    """The magnitude, below 2^47, in two digits, low first."""
    magnitude = np.abs(x)
    return magnitude & ((1 << DIGIT) - 1), magnitude >> DIGIT


def rope(op: str, x: Int64, cos: Int64, sin: Int64, architecture: str) -> Int64:
    """Op 4 on [T,heads,hd] with tables [T,hd/2]."""
    t, heads, hd = x.shape
    pairs = x.reshape(t, heads, hd // 2, 2) if architecture == "llama" else x.reshape(t, heads, 2, -1).swapaxes(2, 3)
    factors = np.stack([cos, sin, sin, cos], axis=-1)[:, None]
    ac, bs, as_, bc = np.moveaxis(product(f"{op}.term", pairs[..., [0, 1, 0, 1]], factors), -1, 0)
    turned = np.stack([ac - bs, as_ + bc], axis=-1)  # two terms below 2^62 each
    flat = turned.reshape(x.shape) if architecture == "llama" else turned.swapaxes(2, 3).reshape(x.shape)
    return shifted(hold(f"{op}.sum", 62, flat), 30)


def scores(op: str, q: Int64, keys: Int64, c: int, at: tuple[int, ...] = ()) -> Int64:
    """Op 5: z of one query [hd] and its visible keys [j,hd]."""
    dots = total(f"{op}.sum", product(f"{op}.term", keys, q, at), at)
    return shifted(product(f"{op}.product", shifted(dots, 16), np.array(c), at), 30)


def softmax(z: Int64) -> Int64:
    """Op 6: p of one row."""
    t, d = checked_tables(), z.max() - z
    k = np.minimum(d >> 8, len(t["E1"]) - 1)
    e = np.where(d >> 8 < len(t["E1"]), shifted(t["E1"][k] * t["E2"][d & 255], 30), 0)
    return shifted(e * ((2**62 - 1) // int(e.sum())), 32)


def mix(op: str, p: Int64, values: Int64, at: tuple[int, ...] = ()) -> Int64:
    """Op 7: [hd] of one row of weights [j] and the values [j,hd]."""
    return shifted(total(f"{op}.sum", product(f"{op}.term", values.T, p, at), at), 30)


def silu(op: str, x: Int64) -> Int64:
    """Op 8."""
    g, a = checked_tables()["G"], np.minimum(np.abs(x), 16 << 16)
    i = np.minimum(a >> 5, len(g) - 2)
    s = np.where(a == 16 << 16, Q30, g[i] + shifted((g[i + 1] - g[i]) * (a & 31), 5))
    return shifted(product(f"{op}.product", x, np.where(x < 0, Q30 - s, s)), 30)


def gate(op: str, activated: Int64, up: Int64) -> Int64:
    """Op 9."""
    return shifted(product(f"{op}.product", activated, up), 16)


class Cache:
    """Rotated keys and plain values by layer, i64[positions, kv, hd]."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Int64, Int64]] = {}

    def __len__(self) -> int:
        return len(self.layers[0][0]) if self.layers else 0

    def extend(self, layer: int, keys: Int64, values: Int64) -> tuple[Int64, Int64]:
        """All keys and values of a layer, these added."""
        old = self.layers.get(layer, (keys[:0], values[:0]))
        self.layers[layer] = np.concatenate([old[0], keys]), np.concatenate([old[1], values])
        return self.layers[layer]


def load(source: str) -> Model:
    """The model of a GGUF file."""
    return Model(source, ("llama", "qwen2"), ("Q4_0", "Q4_1", "Q8_0"))


def run(model: Model, tokens: Sequence[int], cache: Cache | None = None) -> Iterator[Stage]:
    """The stages in order, "greedy" last; tokens follow those in `cache`, which grows."""
    cache = Cache() if cache is None else cache
    past, t = len(cache), len(tokens)
    model.check_tokens(tokens, past)
    embed = model.blocks("token_embd")
    x = shifted(np.concatenate([embed.weights(token, token + 1) for token in tokens]), 8)
    yield "embed", x
    turns = [balls.rotation(model.rope_base, model.head_width, past + i, Q30) for i in range(t)]
    cos, sin = (np.stack(rows) for rows in zip(*turns, strict=True))
    c = balls.inverse_root(model.head_width, Q30)
    group = model.heads // model.kv_heads
    for layer in range(model.layers):
        at, blk = f"l{layer}.", f"blk.{layer}."

        def apply(stage: str, name: str, rows: Int64, at: str = at, blk: str = blk) -> Int64:
            return linear(at + stage, model.blocks(blk + name), rows, model.bias(blk + name, 40))

        y = _norm(model, at + "attn_norm", blk + "attn_norm", x)
        yield at + "attn_norm", y
        q, k, v = (apply(name, "attn_" + name, y).reshape(t, -1, model.head_width) for name in "qkv")
        yield from ((at + "q", q), (at + "k", k), (at + "v", v))
        q, k = (
            rope(f"{at}{name}_rope", rows, cos, sin, str(model.architecture)) for name, rows in (("q", q), ("k", k))
        )
        yield from ((at + "q_rope", q), (at + "k_rope", k))
        keys, values = cache.extend(layer, k, v)
        z, p = np.zeros((2, model.heads, t, past + t), np.int64)
        for i, row in np.ndindex(model.heads, t):
            seen = past + row + 1
            z[i, row, :seen] = scores(at + "scores", q[row, i], keys[:seen, i // group], c, (i, row))
            p[i, row, :seen] = softmax(z[i, row, :seen])
        yield from ((at + "scores", z), (at + "softmax", p))
        mixed = np.zeros_like(q)
        for row, i in np.ndindex(t, model.heads):
            seen = past + row + 1
            mixed[row, i] = mix(at + "mix", p[i, row, :seen], values[:seen, i // group], (row, i))
        yield at + "mix", mixed.reshape(t, -1)
        out = apply("attn_out", "attn_output", mixed.reshape(t, -1))
        yield at + "attn_out", out
        x = hold(at + "attn_out.residual", 47, x + out)

        y = _norm(model, at + "ffn_norm", blk + "ffn_norm", x)
        yield at + "ffn_norm", y
        gates, up = apply("gate", "ffn_gate", y), apply("up", "ffn_up", y)
        yield from ((at + "gate", gates), (at + "up", up))
        activated = silu(at + "silu", gates)
        yield at + "silu", activated
        act = gate(at + "act", activated, up)
        yield at + "act", act
        down = apply("down", "ffn_down", act)
        yield at + "down", down
        x = hold(at + "x.residual", 47, x + down)
        yield at + "x", x
    hidden = _norm(model, "hidden", "output_norm", x)
    yield "hidden", hidden
    logits = linear("logits", model.output(), hidden)
    yield "logits", logits
    yield "greedy", np.argmax(logits, axis=1).astype(np.int64)  # the first of equals


def _norm(model: Model, op: str, tensor: str, x: Int64) -> Int64:
    return rms_norm(x, hold(f"{op}.gain", 40, model.vector(f"{tensor}.weight", 24)), model.eps32)
