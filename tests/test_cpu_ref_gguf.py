"""Both GGUF readers of `cpu_ref` on files packed by hand: what they read, and what they refuse in one line."""

import random
import struct
from pathlib import Path

import pytest
from gguf_bytes import (
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q5_0,
    Q8_0,
    Packed,
    array,
    entry,
    gguf_file,
    gguf_header,
    pair,
    string,
    text_pair,
)

from cpu_ref.errors import GgufRefused
from cpu_ref.gguf_parser import Gguf
from cpu_ref.second.errors import GgufRefused as SecondRefused
from cpu_ref.second.gguf_tensor import block_tensor

WORDS = array(8, 3, string("<s>") + string("the") + string(b"\xff\xfe"))

MODEL_PAIRS = [
    text_pair("general.architecture", "llama"),
    pair("llama.block_count", 4, struct.pack("<I", 30)),
    pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
    pair("llama.rope.freq_base", 6, struct.pack("<f", 100000.0)),
    pair("tokenizer.ggml.add_bos_token", 7, b"\0"),
    pair("tokenizer.ggml.tokens", 9, WORDS),
    pair("tokenizer.ggml.token_type", 9, array(5, 3, struct.pack("<3i", 3, 1, -1))),
]

EMBEDDING = random.Random(2).randbytes(3 * 2 * 34)

MODEL_TENSORS = [
    Packed("output_norm.weight", [64], F32, bytes(range(256))),
    Packed("token_embd.weight", [64, 3], Q8_0, EMBEDDING),
    Packed("blk.0.ffn_down.weight", [32, 5], Q4_1, b"\1" * 100),
    Packed("half", [3, 2], F16, b"\2" * 12),
    Packed("old", [32], Q4_0, b"\3" * 18),
]

MODEL = gguf_file(MODEL_PAIRS, MODEL_TENSORS)


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file and gives its path."""

    def write(data):
        path = tmp_path / "tiny.gguf"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("version", [2, 3])
def test_a_model_is_read_as_it_was_packed(file, version):
    """Metadata of every kind that models use, tensors with type, dimensions and bytes."""
    gguf = Gguf(file(gguf_file(MODEL_PAIRS, MODEL_TENSORS, version)))
    assert gguf.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 30,
        "llama.attention.layer_norm_rms_epsilon": struct.unpack("<f", struct.pack("<f", 1e-5))[0],
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.tokens": ["<s>", "the", "\udcff\udcfe"],
        "tokenizer.ggml.token_type": [3, 1, -1],
    }
    for packed in MODEL_TENSORS:
        tensor = gguf.tensor(packed.name)
        assert (tensor.dims, bytes(tensor.data)) == (tuple(packed.dims), packed.data)
    embedding = gguf.tensor("token_embd.weight")
    assert (embedding.type, embedding.rows, embedding.row_bytes) == ("Q8_0", 3, 68)


def test_the_second_reads_the_same_bytes(file):
    """Dimensions and bytes of the Q8_0 tensor."""
    dims, data = block_tensor(str(file(MODEL)), "token_embd.weight", "Q8_0")
    assert (dims, data.tobytes()) == ((64, 3), EMBEDDING)


def test_every_number_type_is_read_with_its_sign(file):
    """One metadata key for each GGUF number type, at its lowest value."""
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    lowest = {
        c: 0 if c.isupper() else -1.5 if c in "fd" else -(1 << (8 * struct.calcsize(c) - 1)) for c in kinds.values()
    }
    pairs = [pair(str(kind), kind, struct.pack("<" + c, lowest[c])) for kind, c in kinds.items()]
    tensors = [Packed("t", [32], Q8_0, bytes(34))]
    path = file(gguf_file(pairs, tensors))
    assert Gguf(path).metadata == {str(kind): lowest[c] for kind, c in kinds.items()}
    assert block_tensor(str(path), "t", "Q8_0")[0] == (32,)


def test_another_alignment_moves_the_data(file):
    """`general.alignment` of 256: both readers find the second tensor behind the gap."""
    pairs = [pair("general.alignment", 4, struct.pack("<I", 256))]
    tensors = [Packed("a", [4], F32, bytes(16)), Packed("b", [32], Q8_0, bytes(range(34)))]
    path = file(gguf_file(pairs, tensors, alignment=256))
    assert bytes(Gguf(path).tensor("b").data) == block_tensor(str(path), "b", "Q8_0")[1].tobytes() == bytes(range(34))


def test_arrays_in_arrays_are_read_and_too_deep_ones_refused(file):
    """Four levels are read; the fifth is refused before it can exhaust the stack."""
    value = array(0, 1, b"\7")
    for _ in range(3):
        value = array(9, 1, value)
    assert Gguf(file(gguf_file([pair("deep", 9, value)]))).metadata == {"deep": [[[[7]]]]}
    for _ in range(2000):
        value = array(9, 1, value)
    path = file(gguf_file([pair("deep", 9, value)], [Packed("t", [32], Q8_0, bytes(34))]))
    with pytest.raises(GgufRefused, match="nests arrays deeper than 4"):
        Gguf(path)
    with pytest.raises(SecondRefused):
        block_tensor(str(path), "t", "Q8_0")


HOSTILE = {
    "an empty file": (b"", "the file is empty"),
    "another magic": (b"GGML" + MODEL[4:], "begins with b'GGML'"),
    "version 1": (gguf_file(version=1), "version 1"),
    "a big-endian file": (b"GGUF" + bytes([0, 0, 0, 3]) + MODEL[8:], "a big-endian file"),
    "a tensor count of 2^60": (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 60, 0), "number of tensors.*claims"),
    "a key count of 2^64 - 1": (struct.pack("<4sIQQ", b"GGUF", 3, 0, (1 << 64) - 1), "number of metadata keys.*claims"),
    "a key of 2^63 bytes": (
        gguf_header([struct.pack("<Q", 1 << 63) + bytes(40)], []),
        "length of metadata key.*claims",
    ),
    "an array of 2^62 numbers": (gguf_file([pair("a", 9, array(4, 1 << 62, b""))]), "'a'.*claims"),
    "an array of 2^40 strings": (gguf_file([pair("a", 9, array(8, 1 << 40, b""))]), "'a'.*claims"),
    "an array of 2^40 arrays": (gguf_file([pair("a", 9, array(9, 1 << 40, b""))]), "'a'.*claims"),
    "an unknown value type": (gguf_file([pair("a", 13, bytes(8))]), "'a' has value type 13"),
    "an array of an unknown type": (gguf_file([pair("a", 9, array(99, 1, bytes(32)))]), "value type 99"),
    "a truth value of 2": (gguf_file([pair("a", 7, b"\2")]), "truth value of 2"),
    "truth values of 2": (gguf_file([pair("a", 9, array(7, 2, b"\1\2"))]), "truth value of 2"),
    "a key twice": (gguf_file([text_pair("a", "x"), text_pair("a", "y")]), "'a' stands twice"),
    "a tensor twice": (gguf_file([], [Packed("t", [1], F32, bytes(4))] * 2), "tensor 't' stands twice"),
    "rank 0": (gguf_header([], [entry("t", [], F32, 0)]) + bytes(64), "0 dimensions"),
    "rank 2^32 - 1": (gguf_header([], [string("t") + b"\xff" * 4 + bytes(64)]), "4294967295 dimensions"),
    "a dimension of 0": (gguf_header([], [entry("t", [0], F32, 0)]) + bytes(64), "dimension of 0"),
    "an unaligned offset": (gguf_header([], [entry("t", [1], F32, 4)]) + bytes(64), "no multiple of the alignment"),
    "alignment 0": (gguf_file([pair("general.alignment", 4, bytes(4))]), "general.alignment is 0"),
    "alignment in words": (gguf_file([text_pair("general.alignment", "wide")]), "general.alignment is 'wide'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_in_one_line(file, name):
    """Each file names the thing and the mend; the second, which reads less, at least does not find a tensor."""
    data, message = HOSTILE[name]
    path = file(data)
    with pytest.raises(GgufRefused, match=message) as caught:
        Gguf(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(SecondRefused) as second:
        block_tensor(str(path), "t", "Q8_0")
    assert "\n" not in str(second.value)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (entry("t", [32], Q5_0, 0), "type Q5_0; the reference reads F32, F16, Q4_0, Q4_1, Q8_0"),
        (entry("t", [33], Q8_0, 0), "rows of 33 values are no multiple of Q8_0's 32"),
        (entry("t", [32, 1 << 60], Q8_0, 0), "ends at byte .* of"),
        (entry("t", [1 << 63, (1 << 64) - 1], Q8_0, 0), "ends at byte .* of"),
        (entry("t", [32], Q8_0, 1 << 63), "ends at byte .* of"),
        (entry("t", [32], Q8_0, 64), "ends at byte .* of"),
        (entry("other", [32], Q8_0, 0), "no tensor 't'"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_refused_when_it_is_asked_for(file, packed, message):
    """The file opens (other tensors may be sound); the tensor is refused by both readers."""
    header = gguf_header([], [packed])
    path = file(header + bytes(-len(header) % 32) + bytes(64))
    gguf = Gguf(path)
    with pytest.raises(GgufRefused, match=message):
        gguf.tensor("t")
    with pytest.raises(SecondRefused):
        block_tensor(str(path), "t", "Q8_0")


def test_a_file_cut_at_any_byte_is_refused(file):
    """Every length below the whole: no reader runs past the end, none returns a short tensor."""
    whole = gguf_file(MODEL_PAIRS, MODEL_TENSORS[:2])
    assert bytes(Gguf(file(whole)).tensor("token_embd.weight").data) == EMBEDDING
    for length in range(len(whole)):
        path = file(whole[:length])
        with pytest.raises(GgufRefused):
            Gguf(path).tensor("token_embd.weight")
        with pytest.raises(SecondRefused):
            block_tensor(str(path), "token_embd.weight", "Q8_0")


def test_a_damaged_byte_never_brings_anything_but_a_refusal_or_a_tensor(file):
    """Each header byte set to 0xFF in turn."""
    whole = gguf_file(MODEL_PAIRS, MODEL_TENSORS)
    for at in range(whole.index(EMBEDDING) - 256):
        path = file(whole[:at] + b"\xff" + whole[at + 1 :])
        try:
            assert len(Gguf(path).tensor("token_embd.weight").data) > 0
        except GgufRefused as e:
            assert "\n" not in str(e)
        try:
            assert len(block_tensor(str(path), "token_embd.weight", "Q8_0")[1]) > 0
        except SecondRefused as e:
            assert "\n" not in str(e)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    """The last part of the path stands in the message, the rest does not."""
    there = ((tmp_path / "absent.gguf", "there is no such file"), (tmp_path, "it is a folder; name a GGUF file in it"))
    for path, said in (*there, (Path("/dev/null"), "it is no regular file")):
        with pytest.raises(GgufRefused, match=f"^{path.name}: {said}"):
            Gguf(path)
        with pytest.raises(SecondRefused):
            block_tensor(str(path), "t", "Q8_0")
