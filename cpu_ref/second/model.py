"""A llama-like GGUF model for the second implementation: its numbers by a table of rules, its weights as int64 arrays."""

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cpu_ref.second.blocks import Blocks
from cpu_ref.second.errors import ModelRefused, TokensRefused, WeightsRefused
from cpu_ref.second.gguf_tensor import File

FORBIDDEN = ("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping")

LINEARS = {
    "attn_q": ("width", "queries"),
    "attn_k": ("width", "pairs"),
    "attn_v": ("width", "pairs"),
    "attn_output": ("queries", "width"),
    "ffn_gate": ("width", "mlp"),
    "ffn_up": ("width", "mlp"),
    "ffn_down": ("mlp", "width"),
}
"""Input and output size of each linear of a layer."""


class Model:
    """Numbers as attributes; `blocks(name)`, `vector(name, bits)`. ModelRefused, WeightsRefused, GgufRefused."""

    def __init__(self, path: str, architectures: Sequence[str], types: Sequence[str]) -> None:
        self._file, self._types = File(path), types
        self.architecture = self._file.metadata.get("general.architecture")
        _demand(self.architecture in architectures, f"architecture {self.architecture!r} is none of {architectures}")
        _demand("rope_freqs.weight" not in self._file.names, "there is a tensor rope_freqs.weight")
        _demand(self._meta("rope.scaling.type", "none") == "none", "RoPE is scaled")
        for key in FORBIDDEN:
            _demand(self._meta(key) is None, f"{key} is set")
        self.layers, self.width = self._whole("block_count"), self._whole("embedding_length")
        self.mlp, self.context = self._whole("feed_forward_length"), self._whole("context_length")
        self.heads = self._whole("attention.head_count")
        self.kv_heads = self._whole("attention.head_count_kv", self.heads)
        _demand(self.heads % self.kv_heads == 0, f"{self.heads} query heads share {self.kv_heads} key/value heads")
        if self._meta("attention.key_length") is None:
            _demand(self.width % self.heads == 0, f"no key_length, and {self.heads} heads of a width of {self.width}")
        self.head_width = self._whole("attention.key_length", self.width // self.heads)
        _demand(self.head_width % 2 == 0, f"the head width {self.head_width} is odd")
        for key in ("attention.value_length", "rope.dimension_count"):
            _demand(self._whole(key, self.head_width) == self.head_width, f"{key} is not {self.head_width}")
        self.rope_base = self._positive("rope.freq_base", 10000.0)
        self.eps32 = round(Fraction(self._positive("attention.layer_norm_rms_epsilon")) * 2**32)
        _demand(self.eps32 >= 1, "epsilon is below 1 in Q32")
        self.queries, self.pairs = self.heads * self.head_width, self.kv_heads * self.head_width
        self.vocabulary = self._check_tensors()
        with open(path, "rb") as file:
            self.sha256: str | None = hashlib.file_digest(file, "sha256").hexdigest()

    def blocks(self, name: str) -> Blocks:
        """The matrix `name.weight`."""
        kind, dims, data = self._file.tensor(f"{name}.weight")
        return Blocks(kind, data.reshape(dims[1], -1), f"{name}.weight")

    def output(self) -> Blocks:
        """The matrix of the logits."""
        return self.blocks("output" if "output.weight" in self._file.names else "token_embd")

    def vector(self, name: str, bits: int) -> list[int]:
        """An F32 vector in Q`bits`; a double holds it exactly, before and after it is rounded to nearest even."""
        values = self._file.tensor(name)[2].view("<f4").astype(np.float64)
        return [int(v) for v in np.rint(np.ldexp(values, bits))]

    def bias(self, name: str, bits: int) -> list[int] | None:
        """The vector `name.bias`, if there is one."""
        return self.vector(f"{name}.bias", bits) if f"{name}.bias" in self._file.names else None

    def check_tokens(self, tokens: Sequence[int], past: int) -> None:
        """TokensRefused unless 1 or more known ids fit behind `past` others."""
        if not tokens:
            raise TokensRefused("no token: a forward pass takes one or more")
        bad = [(t, i) for t, i in enumerate(tokens) if i not in range(self.vocabulary)]
        if bad:
            t, i = bad[0]
            raise TokensRefused(f"token {t} is {i}: this model's ids go from 0 to {self.vocabulary - 1}")
        if past + len(tokens) > self.context:
            raise TokensRefused(f"{past + len(tokens)} tokens: this model's context holds {self.context}")

    def _meta(self, key: str, absent: Any = None) -> Any:
        return self._file.metadata.get(f"{self.architecture}.{key}", absent)

    def _whole(self, key: str, absent: int | None = None) -> int:
        value = self._meta(key, absent)
        _demand(type(value) is int and value > 0, f"{key} is {value!r:.40}, not a whole number of 1 or more")
        return int(value)

    def _positive(self, key: str, absent: float | None = None) -> float:
        value = self._meta(key, absent)
        _demand(isinstance(value, float) and 0 < value < math.inf, f"{key} is {value!r:.40}, not a positive number")
        return float(value)

    def _check_tensors(self) -> int:
        """Every tensor there is needed, and every needed one is there; returns the vocabulary's size."""
        there = set(self._file.names)
        _demand(len(there) >= 9 * self.layers + 2, f"{len(there)} tensors are too few for {self.layers} layers")
        _demand("token_embd.weight" in there, "no tensor token_embd.weight")
        dims = self._file.tensor("token_embd.weight")[1]
        vocabulary = dims[1] if len(dims) == 2 else 0
        wanted: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.width, vocabulary)}
        wanted["output_norm.weight"] = (self.width,)
        optional: dict[str, tuple[int, ...]] = {"output.weight": (self.width, vocabulary)}
        for layer in range(self.layers):
            for name, (inputs, outputs) in LINEARS.items():
                size = getattr(self, outputs)
                wanted[f"blk.{layer}.{name}.weight"] = (getattr(self, inputs), size)
                optional[f"blk.{layer}.{name}.bias"] = (size,)
            for name in ("attn_norm", "ffn_norm"):
                wanted[f"blk.{layer}.{name}.weight"] = (self.width,)
        missing, unused = wanted.keys() - there, there - wanted.keys() - optional.keys()
        _demand(not missing, f"no tensor {min(missing, default='')}")
        _demand(not unused, f"tensor {min(unused, default='')} has no use")
        for name, dims in (wanted | optional).items():
            if name in there:
                self._check_tensor(name, dims)
        return vocabulary

    def _check_tensor(self, name: str, dims: tuple[int, ...]) -> None:
        kind, found, data = self._file.tensor(name)
        _demand(found == dims, f"tensor {name} has dimensions {list(found)}, expected {list(dims)}")
        if kind not in (self._types if len(dims) == 2 else ("F32",)):
            raise WeightsRefused(f"{name} is {kind}, which the profile does not take there")
        if len(dims) == 2:
            Blocks(kind, data.reshape(dims[1], -1), name)
        elif not np.isfinite(data.view("<f4")).all():
            raise WeightsRefused(f"{name} holds an infinity or a NaN")


def _demand(condition: bool, fault: str) -> None:
    if not condition:
        raise ModelRefused(f"{fault}; name another model")
