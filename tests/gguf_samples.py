"""A small GGUF file of every type that is read, and all readers of it held side by side."""

import random
import struct

from gguf_bytes import F16, F32, Q4_0, Q4_1, Q5_0, Q8_0, Packed, array, gguf_file, pair, string, text_pair

from cpu_ref.gguf_parser import Gguf
from cpu_ref.second.gguf_tensor import block_tensor
from cpu_ref.tensors import digests
from cpu_ref.weights import BLOCK_TYPES
from harness import gguf_check, gguf_read
from harness.digest import digest_array

BYTES = bytes(b & 0x3B for b in random.Random(4).randbytes(1 << 12))
"""Tensor data in which no float, of either width and wherever it stands, is infinite or NaN."""

WIDTHS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q5_0: (32, 22), Q8_0: (32, 34)}

PAIRS = [
    text_pair("general.architecture", "llama"),
    pair("llama.block_count", 4, struct.pack("<I", 30)),
    pair("tokenizer.ggml.add_bos_token", 7, b"\1"),
    pair("tokenizer.ggml.tokens", 9, array(8, 3, string("<s>") + string("the") + string(b"\xff\xfe"))),
    pair("tokenizer.ggml.scores", 9, array(6, 2, struct.pack("<2f", 0.5, -1))),
    pair("nested", 9, array(9, 2, array(7, 1, b"\0") + array(8, 1, string("x")))),
]


def tensor(name, dims, kind):
    block, width = WIDTHS[kind]
    size = dims[0] // block * width
    for d in dims[1:]:
        size *= d
    return Packed(name, dims, kind, BYTES[:size])


TENSORS = [
    tensor("norm", [5], F32),
    tensor("embed", [64, 3], Q8_0),
    tensor("down", [32, 2, 2], Q4_1),
    tensor("half", [3, 2, 1, 2], F16),
    tensor("old", [32], Q4_0),
    tensor("other", [32, 2], Q5_0),
]

MODEL = gguf_file(PAIRS, TENSORS)


def written(folder, data):
    """The path of a fresh file with these bytes."""
    path = folder / "tiny.gguf"
    path.unlink(missing_ok=True)  # to write over a file is ten times as slow
    path.write_bytes(data)
    return path


def u32(key, value):
    return pair(key, 4, struct.pack("<I", value))


def assert_alike(path):
    """Harness (validator and gguf package), reference and, for blocks, second give every tensor's bytes alike."""
    file, reference = gguf_read.Opened(path), Gguf(path)
    assert list(file.sound.tensors) == reference.names
    by_reference = digests(reference)
    for name, placed in file.sound.tensors.items():
        if placed.type not in gguf_check.SCALES:
            assert by_reference[name] is None
            continue
        data = file.tensor(name)
        assert digest_array(data) == by_reference[name], name
        if placed.type in BLOCK_TYPES:
            assert block_tensor(str(path), name, placed.type)[1].tobytes() == data.tobytes()
