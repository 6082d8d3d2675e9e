"""A released model as the kernels of dyadic-q16 take it: bytes of its file for matrices, the reference's integers for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref import dyadic_q16 as reference
from cpu_ref.contracts import Place
from cpu_ref.gguf_model import GgufModel
from cpu_ref.linear import SUM_BITS
from harness import model as residence
from harness.device_session import Span
from harness.families import linear
from harness.gguf_read import Opened, opened
from harness.plans import BLOCK_BYTES, GUARD_WORDS

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Matrix:
    """A released matrix [rows, k]: its block type in lower case, and its bytes by (first row, rows)."""

    block: str
    rows: int
    k: int
    parts: dict[tuple[int, int], Span]


@dataclass(frozen=True)
class Model:
    """A released model as kernels take it. The reference's reader refuses what the profile does not cover.

    Gains and biases are the reference's integers; blocks are the bytes that the gguf package finds.
    """

    exact: GgufModel
    file: Opened
    path: Path
    binding: int = residence.BINDING_BYTES
    _vectors: dict[str, Array] = field(default_factory=dict)
    _matrices: dict[str, "Matrix"] = field(default_factory=dict)

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

    def matrix(self, name: str) -> "Matrix":
        """Where matrix `name` lies in the file, in parts of rows that a kernel can see."""
        if name not in self._matrices:
            placed, (rows, width) = self.file.sound.tensors[f"{name}.weight"], self.file.usable(f"{name}.weight").shape
            step = max(1, (self.binding - 4 * GUARD_WORDS) // width // linear.GROUP) * linear.GROUP
            parts = [(first, min(step, rows - first)) for first in range(0, rows, step)]
            spans = {(first, n): Span(self.path, placed.start + first * width, n * width) for first, n in parts}
            block = placed.type.lower()
            self._matrices[name] = Matrix(block, rows, width // BLOCK_BYTES[block] * 32, spans)
        return self._matrices[name]

    def rows(self, name: str, numbers: Array) -> Array:
        """The bytes of these rows of matrix `name`."""
        found: Array = self.file.tensor(f"{name}.weight")[numbers]
        return found

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
    path = Path(source).absolute()
    return Model(reference.load(source), opened(path), path)


def check(model: Model, tokens: Sequence[int]) -> None:
    """TokensRefused, as the reference says it."""
    model.exact.check_tokens(tokens)
