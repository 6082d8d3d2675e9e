"""A llama-like model out of a GGUF file: its numbers, gains, biases and matrices, and every refusal of profiles/common.md.

All is checked on construction, the scales of every block too; nothing that the file says is guessed or passed over.
"""

import hashlib
import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from cpu_ref.errors import ModelRefused, TokensRefused, WeightsRefused
from cpu_ref.gguf_parser import Gguf, Tensor
from cpu_ref.linear import Matrix
from cpu_ref.rounding import rne
from cpu_ref.weights import BLOCK_TYPES, Weights

WEIGHT_BYTES = 8
"""What a weight of a built matrix takes, while it is below 2^62."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of common.md's table; `epsilon` and `rope_base` are the exact values of the file's F32."""

    layers: int
    width: int
    mlp: int
    heads: int
    kv_heads: int
    head_width: int
    epsilon: Fraction
    rope_base: Fraction
    context: int


class GgufModel:
    """An open model of one of `architectures`, its matrices in one of the block types `types`.

    Raises GgufRefused, ModelRefused and WeightsRefused. Built matrices stay in memory where half of it holds them all;
    otherwise each is built when it is used.
    """

    def __init__(self, path: str | Path, architectures: Sequence[str], types: Sequence[str]) -> None:
        self._file = Gguf(path)
        self._types = types
        self.architecture = self._file.metadata.get("general.architecture")
        if self.architecture not in architectures:
            raise self._refused(f"architecture {self.architecture!r}", f"the profile takes {', '.join(architectures)}")
        self._refuse_variants()
        self.numbers = self._numbers()
        self._wanted: dict[str, tuple[int, ...]] = self._shapes()
        self._refuse_tensors()
        self.vocabulary = self._wanted["token_embd.weight"][1]
        self.context, self.layers = self.numbers.context, self.numbers.layers
        matrices = [n for n, dims in self._wanted.items() if len(dims) == 2]
        keep = WEIGHT_BYTES * sum(math.prod(self._wanted[n]) for n in matrices) <= _memory() // 2
        self._matrices = {n: Matrix(self._weights(n), keep=keep) for n in matrices}
        with open(path, "rb") as file:
            self.sha256: str | None = hashlib.file_digest(file, "sha256").hexdigest()

    def matrix(self, name: str) -> Matrix:
        """The matrix `name.weight`."""
        return self._matrices[f"{name}.weight"]

    def output(self) -> Matrix:
        """The matrix that makes logits: `output.weight`, or the embedding where that is absent."""
        return self._matrices.get("output.weight") or self._matrices["token_embd.weight"]

    def gain(self, name: str, bits: int) -> list[int]:
        """The F32 vector `name.weight` in Q`bits`, each `rne` of its exact value."""
        return self._vector(f"{name}.weight", bits)

    def bias(self, name: str, bits: int) -> list[int] | None:
        """The F32 vector `name.bias` in Q`bits`; None where the file has none."""
        return self._vector(f"{name}.bias", bits) if f"{name}.bias" in self._wanted else None

    def check_tokens(self, tokens: Sequence[int], past: int = 0) -> None:
        """Raise TokensRefused unless these ids can stand at the positions from `past` on."""
        if not tokens:
            raise TokensRefused("no token: a forward pass takes one or more")
        for t, token in enumerate(tokens):
            if not 0 <= token < self.vocabulary:
                raise TokensRefused(f"token {t} is {token}: this model's ids go from 0 to {self.vocabulary - 1}")
        if past + len(tokens) > self.context:
            raise TokensRefused(f"{past + len(tokens)} tokens: this model's context holds {self.context}")

    def _refused(self, fault: str, mend: str) -> ModelRefused:
        return ModelRefused(f"{self._file.name}: {fault}; {mend}")

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _refuse_variants(self) -> None:
        """What would need other arithmetic than the profile's."""
        scaling = self._file.metadata.get(self._key("rope.scaling.type"), "none")
        if scaling != "none":
            raise self._refused(f"RoPE scaling of type {scaling!r}", "the profile has none")
        if "rope_freqs.weight" in self._file.names:
            raise self._refused("tensor 'rope_freqs.weight'", "the profile's RoPE has one base and no factors")
        for name in ("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"):
            if self._key(name) in self._file.metadata:
                raise self._refused(
                    f"{self._key(name)} is set", "the profile has neither sliding windows nor soft caps"
                )

    def _numbers(self) -> Numbers:
        width, heads = self._count("embedding_length"), self._count("attention.head_count")
        kv_heads = self._count("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise self._refused(f"{kv_heads} key/value heads do not divide {heads} query heads", "name another model")
        if self._key("attention.key_length") not in self._file.metadata and width % heads:
            raise self._refused(
                f"no key_length, and {heads} heads do not divide a width of {width}", "name another model"
            )
        head_width = self._count("attention.key_length", width // heads)
        if head_width % 2:
            raise self._refused(f"a head width of {head_width}", "RoPE turns pairs, so it must be even")
        for name in ("rope.dimension_count", "attention.value_length"):
            if (found := self._count(name, head_width)) != head_width:
                raise self._refused(f"{self._key(name)} is {found}", f"the profile wants the head width, {head_width}")
        epsilon = self._real("attention.layer_norm_rms_epsilon", None)
        if rne(epsilon * (1 << 32)) < 1:
            raise self._refused(f"an epsilon of {float(epsilon):g}", "in Q32 it must be 1 or more")
        return Numbers(
            layers=self._count("block_count"),
            width=width,
            mlp=self._count("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_width=head_width,
            epsilon=epsilon,
            rope_base=self._real("rope.freq_base", 10000),
            context=self._count("context_length"),
        )

    def _value(self, name: str, absent: int | None) -> Any:
        value = self._file.metadata.get(self._key(name), absent)
        if value is None:
            raise self._refused(f"no {self._key(name)}", "the profile never guesses it")
        return value

    def _count(self, name: str, absent: int | None = None) -> int:
        value = self._value(name, absent)
        if type(value) is not int or value < 1:
            raise self._refused(f"{self._key(name)} is {value!r:.60}", "it must be one whole number of 1 or more")
        return value

    def _real(self, name: str, absent: int | None) -> Fraction:
        value = self._value(name, absent)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self._refused(f"{self._key(name)} is {value!r:.60}", "it must be a positive number")
        return Fraction(value)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Dimensions by name of every tensor that the forward pass reads."""
        n = self.numbers
        there = set(self._file.names)
        if "token_embd.weight" not in there:
            raise self._refused("no tensor 'token_embd.weight'", "the forward pass needs it")
        dims = self._file.tensor("token_embd.weight").dims
        vocabulary = dims[1] if len(dims) == 2 else 0
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (n.width, vocabulary),
            "output_norm.weight": (n.width,),
        }
        if "output.weight" in there:
            shapes["output.weight"] = (n.width, vocabulary)
        q, kv = n.heads * n.head_width, n.kv_heads * n.head_width
        linears = {
            "attn_q": (n.width, q),
            "attn_k": (n.width, kv),
            "attn_v": (n.width, kv),
            "attn_output": (q, n.width),
            "ffn_gate": (n.width, n.mlp),
            "ffn_up": (n.width, n.mlp),
            "ffn_down": (n.mlp, n.width),
        }
        for layer in range(n.layers):
            if f"blk.{layer}.attn_norm.weight" not in there:  # before a hostile count of layers takes memory
                raise self._refused(f"no tensor 'blk.{layer}.attn_norm.weight'", "the forward pass needs it")
            shapes |= {f"blk.{layer}.{norm}.weight": (n.width,) for norm in ("attn_norm", "ffn_norm")}
            for name, dims in linears.items():
                shapes[f"blk.{layer}.{name}.weight"] = dims
                if f"blk.{layer}.{name}.bias" in there:
                    shapes[f"blk.{layer}.{name}.bias"] = (dims[1],)
        return shapes

    def _refuse_tensors(self) -> None:
        there = self._file.names
        for name in there:
            if name not in self._wanted:
                raise self._refused(f"the forward pass has no use for tensor {name!r}", "name another model")
        for name, dims in self._wanted.items():
            if name not in there:
                raise self._refused(f"no tensor {name!r}", "the forward pass needs it")
            tensor = self._file.tensor(name)
            if tensor.dims != dims:
                raise self._refused(f"tensor {name!r} has dimensions {list(tensor.dims)}", f"expected {list(dims)}")
            types = self._types if len(dims) == 2 else ("F32",)
            if tensor.type not in types:
                raise WeightsRefused(f"{name} is {tensor.type}: the profile takes {', '.join(types)} there")
            if len(dims) == 1:
                self._refuse_values(tensor)

    def _refuse_values(self, tensor: Tensor) -> None:
        for i, (value,) in enumerate(struct.iter_unpack("<f", tensor.data)):
            if not math.isfinite(value):
                raise WeightsRefused(f"{tensor.name}: element {i} is {value}, which has no exact value")

    def _weights(self, name: str) -> Weights:
        tensor = self._file.tensor(name)
        return Weights(BLOCK_TYPES[tensor.type], tensor.data, tensor.dims[0], name)

    def _vector(self, name: str, bits: int) -> list[int]:
        return [rne(Fraction(v) * (1 << bits)) for (v,) in struct.iter_unpack("<f", self._file.tensor(name).data)]


def _memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
