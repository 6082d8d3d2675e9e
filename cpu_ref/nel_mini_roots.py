"""The hashes published for nel-mini-w8a8: tables, weights, and everything that a run of generation computes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blake3 import blake3

from cpu_ref import nel_mini_w8a8 as nel
from cpu_ref.integers import write_signed
from cpu_ref.nel_mini_data import LAYERS, SHAPE, SHAPES
from cpu_ref.tables import table_bytes

Digest = bytes
Rows = dict[str, list[int]]
"""The stages of one position by name."""

ZERO = bytes(32)
SCALES = ((1, 11), (1, 11), (1, 11), (1, 12), (1, 15))
"""Of `nel-profile-id`: multiplier and shift of qkv, out, gate and up, down, pv."""
SHIFTS = (8, 31, 7)
"""Of `nel-profile-id`: the shifts of act, RMSNorm and scores."""
OPS = (
    ("rms1",),
    ("qkv.acc", "qkv"),
    ("rope",),
    ("scores",),
    ("softmax",),
    ("pv.acc", "pv"),
    ("out.acc", "out"),
    ("res1",),
    ("rms2",),
    ("gate.acc", "gate"),
    ("up.acc", "up"),
    ("act",),
    ("down.acc", "down"),
    ("res2",),
)
"""The stages whose values are the payload of each operation of a layer."""
WIDTHS = {"scores": 4, "softmax": 2, "acc": 4, "logits": 4}
"""Bytes of a value, by the last word of its stage's name; activations have 1."""


def tagged(domain: str, data: bytes) -> Digest:
    """H(domain, data): BLAKE3-256 of both joined."""
    return blake3(domain.encode("ascii") + data).digest()


def merkle(leaves: Iterable[Digest]) -> Digest:
    """The root over `leaves`, padded with zeros to a power of two; no leaf gives zeros."""
    level = list(leaves) or [ZERO]
    level += [ZERO] * ((1 << (len(level) - 1).bit_length()) - len(level))
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [tagged("NOOS/NEL/MERKLE/NODE/V1", left + right) for left, right in pairs]
    return level[0]


def unsigned(value: int, width: int) -> bytes:
    """Little-endian, `width` bytes."""
    return value.to_bytes(width, "little")


def lut_root() -> Digest:
    """Over the raw bytes of the four tables."""
    return tagged("NOOS/NEL/LUT/V1", b"".join(map(table_bytes, nel.tables().values())))


def weight_root(model: nel.Model) -> Digest:
    """Over the tensors, each with its name."""
    leaves = (tagged("NOOS/NEL/TESTMODEL/W8A8/V1", name.encode("ascii") + model.data(name)) for name in SHAPES)
    return merkle(leaves)


def da_weight_root(model: nel.Model) -> Digest:
    """Over all weight bytes in order."""
    return tagged("NOOS/NEL/DA/OBJECT/V1", b"weights" + b"".join(map(model.data, SHAPES)))


def nel_profile_id() -> Digest:
    """Over tables, scales and shape. It is not this project's `profile_id`."""
    numbers = (*(v for scale in SCALES for v in scale), *SHIFTS)
    shape = b"".join(unsigned(v, 8) for v in SHAPE)
    return tagged("NOOS/NEL/PROFILE/MINI-W8A8/V1", lut_root() + write_signed(numbers, 8) + shape)


def payload(rows: Rows, layer: int, op: int, last: bool) -> bytes:
    """What operation `op` of `layer` computed at one position; the choice is hashed at the last known position only."""
    if layer == LAYERS:
        if op == 2:
            return unsigned(rows["greedy"][0], 4) if last else b""
        return _bytes(rows, ("hidden", "logits")[op])
    names = [f"l{layer}.{name}" for name in OPS[op]]
    if OPS[op][0] == "pv.acc":  # head by head: 8 sums, then their 8 values
        parts = [(name, slice(8 * h, 8 * h + 8)) for h in range(4) for name in names]
        return b"".join(write_signed(rows[name][at], _width(name)) for name, at in parts)
    return b"".join(_bytes(rows, name) for name in names)


def _width(name: str) -> int:
    return WIDTHS.get(name.rpartition(".")[2], 1)


def _bytes(rows: Rows, name: str) -> bytes:
    return write_signed(rows[name], _width(name))


def trace(rows: Rows, job: bytes, position: int, last: bool) -> Digest:
    """Over the layers' results and every operation at one position."""
    leaves = [
        tagged(
            "NOOS/NEL/ACT/LEAF/V1",
            job + unsigned(position, 4) + unsigned(layer, 2) + write_signed(rows[f"l{layer}.res2"], 1),
        )
        for layer in range(LAYERS)
    ]
    ops = [(layer, op) for layer in range(LAYERS) for op in range(len(OPS))] + [(LAYERS, op) for op in range(3)]
    leaves += [
        tagged("NOOS/NEL/OP/V1", unsigned(layer, 2) + unsigned(op, 2) + payload(rows, layer, op, last))
        for layer, op in ops
    ]
    return merkle(leaves)


@dataclass(frozen=True)
class Run:
    """The hashes of one generation. `states` is S_0, S_1, ...; the last is `s-end`."""

    tokens: list[int]
    traces: list[Digest]
    kv: list[Digest]
    histories: list[Digest]
    states: list[Digest]
    da_activation_root: Digest

    @property
    def chunk_trace_root(self) -> Digest:
        """Over the traces of all positions."""
        return merkle(self.traces)


def generation(model: nel.Model, prompt: Sequence[int], count: int, job: bytes) -> Run:
    """The hashes of generating `count` tokens after `prompt` under a `job` of 32 bytes, position by position."""
    nel.check_tokens(prompt, count)
    weights, profile = weight_root(model), nel_profile_id()
    cache, known = nel.Cache(), list(prompt)
    traces: list[Digest] = []
    histories, kv, activations = [_history(known)], [_kv(cache, weights, profile, job)], b""
    states = [_state(job, weights, profile, 0, histories[0], kv[0], ZERO)]
    for t in range(len(prompt) + count - 1):
        last = t == len(known) - 1
        rows = {name: values for name, _, values in nel.run(model, [known[t]], cache)}
        if last:
            known.append(rows["greedy"][0])
        traces.append(trace(rows, job, t, last))
        activations += b"".join(_bytes(rows, f"l{layer}.res2") for layer in range(LAYERS))
        histories.append(_history(known))
        kv.append(_kv(cache, weights, profile, job))
        states.append(_state(job, weights, profile, t + 1, histories[-1], kv[-1], traces[-1]))
    root = tagged("NOOS/NEL/DA/OBJECT/V1", b"activations" + activations)
    return Run(known[len(prompt) :], traces, kv, histories, states, root)


def _history(known: Sequence[int]) -> Digest:
    return merkle(
        tagged("NOOS/NEL/HISTORY/LEAF/V1", unsigned(i, 4) + unsigned(token, 4)) for i, token in enumerate(known)
    )


def _kv(cache: nel.Cache, weights: Digest, profile: Digest, job: bytes) -> Digest:
    layers = zip(cache.keys, cache.values, strict=True)
    rows = [write_signed(row, 1) for keys, values in layers for row in (*keys, *values)]
    head = weights + profile + job + unsigned(len(cache), 4)
    return tagged("NOOS/NEL/KV/V1", head + b"".join(rows))


def _state(job: bytes, weights: Digest, profile: Digest, m: int, history: Digest, kv: Digest, r: Digest) -> Digest:
    data = job + weights + profile + unsigned(m, 4) + history + kv + unsigned(0, 8) + r
    return tagged("NOOS/NEL/STATE/V1", data)


def roots() -> dict[str, str]:
    """Every hash that the document defines, in hex.

    Of the published vector's run: eight tokens after 1, 2, 3, 4, under a job of 32 bytes of 7.
    """
    model = nel.load("nel-mini:published")
    made = generation(model, [1, 2, 3, 4], 8, bytes([7]) * 32)
    found = {
        "lut-root": lut_root(),
        "weight-root": weight_root(model),
        "da-weight-root": da_weight_root(model),
        "nel-profile-id": nel_profile_id(),
        **{f"trace({t})": r for t, r in enumerate(made.traces)},
        "chunk-trace-root": made.chunk_trace_root,
        "kv": made.kv[-1],
        "history": made.histories[-1],
        **{f"S_{m}": s for m, s in enumerate(made.states)},
        "s-end": made.states[-1],
        "da-activation-root": made.da_activation_root,
    }
    return {name: digest.hex() for name, digest in found.items()}
