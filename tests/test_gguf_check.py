"""The validator that stands before the gguf package: what it refuses, and that all readers agree on the rest."""

import hashlib
import json
import os
import struct
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from command import samebits
from gguf import GGML_QUANT_SIZES
from gguf_bytes import (
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q8_0,
    array,
    entry,
    gguf_file,
    gguf_header,
    pair,
    string,
    text_pair,
)
from gguf_samples import MODEL, PAIRS, TENSORS, WIDTHS, assert_alike, tensor, u32, written

from harness import gguf_check, gguf_read, models
from harness.errors import InputRefused, InternalError


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file and gives its path."""
    return partial(written, tmp_path)


def laid(*entries, data=64):
    """A file whose directory is `entries`, with `data` bytes behind it."""
    header = gguf_header([], entries)
    return header + bytes(-len(header) % 32 + data)


REFUSED = {
    "an empty file": (b"", "the file is empty"),
    "another magic": (b"GGML" + MODEL[4:], "begins with b'GGML'.*name a GGUF file"),
    "three bytes": (b"GGU", "begins with b'GGU'"),
    "version 1": (gguf_file(version=1), "version 1.*convert"),
    "version 4": (gguf_file(version=4), "version 4"),
    "big-endian version 2": (struct.pack(">4sIQQ", b"GGUF", 2, 0, 0), "big-endian"),
    "big-endian version 3": (struct.pack(">4sIQQ", b"GGUF", 3, 1, 1), "big-endian"),
    "a tensor count of 2^63": (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 63, 0), "number of tensors.*possible"),
    "a tensor count of 9": (struct.pack("<4sIQQ", b"GGUF", 3, 9, 0) + bytes(99), "number of tensors.*too much"),
    "a key count of 2^64 - 1": (struct.pack("<4sIQQ", b"GGUF", 3, 0, (1 << 64) - 1), "number of keys"),
    "a key of 2^63 bytes": (gguf_header([struct.pack("<Q", 1 << 63) + bytes(40)], []), "length of a key.*possible"),
    "a key that is no UTF-8": (gguf_file([string(b"\xff") + bytes(9)]), "no UTF-8"),
    "a key twice": (gguf_file([text_pair("a", "x"), text_pair("a", "y")]), "key 'a' stands twice"),
    "a key of the package": (gguf_file([u32("GGUF.version", 3)]), "'GGUF.version' is reserved"),
    "a value of 2^40 bytes": (gguf_file([pair("a", 8, struct.pack("<Q", 1 << 40))]), "length of 'a'.*possible"),
    "an array of 2^62 numbers": (gguf_file([pair("a", 9, array(4, 1 << 62, b""))]), "length of 'a'.*possible"),
    "an array of 2^20 strings": (gguf_file([pair("a", 9, array(8, 1 << 20, b""))]), "length of 'a'.*too much"),
    "a string past the end": (
        gguf_file([pair("a", 9, array(8, 2, string("x") + struct.pack("<Q", 99)))]),
        "string of 'a' .* inside the file",
    ),
    "an unknown value type": (gguf_file([pair("a", 13, bytes(8))]), "'a' has value type 13"),
    "an empty array of an unknown type": (gguf_file([pair("a", 9, array(99, 0, b""))]), "value type 99"),
    "a truth value of 2": (gguf_file([pair("a", 7, b"\2")]), "truth value of 2"),
    "truth values of 2": (gguf_file([pair("a", 9, array(7, 2, b"\1\2"))]), "truth value"),
    "the second of a split": (
        gguf_file([pair("split.no", 2, b"\1\0"), pair("split.count", 2, b"\3\0")]),
        "file 2 of 3 of a split model; join the whole set",
    ),
    "the first of a split": (gguf_file([pair("split.count", 2, b"\2\0")]), "file 1 of 2 of a split model"),
    "a split without a count": (gguf_file([pair("split.no", 2, b"\2\0")]), "file 3 of a split model"),
    "a split in words": (gguf_file([text_pair("split.count", "two")]), "split.count is no whole number"),
    "alignment 0": (gguf_file([u32("general.alignment", 0)]), "general.alignment"),
    "alignment 24": (gguf_file([u32("general.alignment", 24)]), "general.alignment"),
    "alignment 2^31": (gguf_file([u32("general.alignment", 1 << 31)]), "general.alignment"),
    "alignment in 64 bits": (gguf_file([pair("general.alignment", 10, struct.pack("<Q", 32))]), "general.alignment"),
    "a tensor twice": (gguf_file([], [tensor("t", [1], F32)] * 2), "tensor 't' stands twice"),
    "a name of 65 bytes": (laid(entry("t" * 65, [1], F32, 0)), "length of a tensor's name.*64 are possible"),
    "a name that is no UTF-8": (laid(string(b"\xc3") + entry("", [1], F32, 0)[8:]), "name .*no UTF-8"),
    "rank 0": (laid(entry("t", [], F32, 0)), "0 dimensions"),
    "rank 5": (laid(entry("t", [1] * 5, F32, 0)), "5 dimensions"),
    "rank 2^32 - 1": (gguf_header([], [string("t") + b"\xff" * 4 + bytes(64)]), "4294967295 dimensions"),
    "a dimension of 0": (laid(entry("t", [4, 0], F32, 0)), "dimension of 0"),
    "sizes that wrap at 2^64": (laid(entry("t", [1 << 32, 1 << 32], F32, 0)), "ends at byte"),
    "dimensions of 2^64 - 32": (laid(entry("t", [(1 << 64) - 32] * 4, Q8_0, 0)), "ends at byte"),
    "an offset of 2^63": (laid(entry("t", [1], F32, 1 << 63)), "ends at byte"),
    "an offset that wraps": (laid(entry("t", [1], F32, (1 << 64) - 32)), "ends at byte"),
    "an unaligned offset": (laid(entry("t", [1], F32, 4)), "no multiple of the alignment 32"),
    "a row that is no whole blocks": (laid(entry("t", [33], Q8_0, 0)), "rows of 33 values, no multiple of Q8_0's 32"),
    "a removed type": (laid(entry("t", [32], 4, 0)), "tensor 't' has type number 4"),
    "a type of a fork": (laid(entry("t", [256], 137, 0)), "tensor 't' has type number 137"),
    "tensors that overlap": (laid(entry("t", [9], F32, 0), entry("u", [1], F32, 32)), "'t' and 'u' overlap"),
    "one place for two": (laid(entry("t", [1], F32, 0), entry("u", [1], F32, 0)), "'t' and 'u' overlap"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_in_one_line_that_names_it_and_the_mend(file, name):
    """One rule each."""
    data, message = REFUSED[name]
    with pytest.raises(InputRefused, match=message) as caught:
        gguf_check.check(file(data))
    assert str(caught.value).startswith("tiny.gguf: ") and "; " in str(caught.value) and "\n" not in str(caught.value)


def test_nesting_deeper_than_four_is_refused(file):
    """Four levels are sound; 2,000 do not exhaust the stack."""
    value = array(0, 1, b"\7")
    for _ in range(3):
        value = array(9, 1, value)
    path = file(gguf_file([pair("deep", 9, value)], TENSORS))
    assert_alike(path)
    for _ in range(2000):
        value = array(9, 1, value)
    with pytest.raises(InputRefused, match="nests arrays deeper than 4"):
        gguf_check.check(file(gguf_file([pair("deep", 9, value)])))


def test_items_of_all_arrays_together_are_bounded(file, monkeypatch):
    """Two arrays within the bound, whose sum is not."""
    monkeypatch.setattr(gguf_check, "MAX_ITEMS", 5)
    pairs = [pair(k, 9, array(0, 3, b"abc")) for k in "ab"]
    with pytest.raises(InputRefused, match=r"length of 'b'.*is 3, 2 are possible"):
        gguf_check.check(file(gguf_file(pairs)))


def test_a_missing_file_a_folder_and_a_hostile_name_are_named_on_one_line(tmp_path):
    """The last part of the path alone, cleaned."""
    there = ((tmp_path / "absent.gguf", "there is no such file"), (tmp_path, "it is a folder; name a GGUF file in it"))
    for path, said in (*there, (Path("/dev/null"), "it is no regular file")):
        with pytest.raises(InputRefused, match=f"^{path.name}: {said}"):
            gguf_check.check(path)
    data = laid(entry("a\nb\x1b[31m", [0], F32, 0))
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(InputRefused) as caught:
        gguf_check.check(path)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("kind", "place"), [(F32, 0), (F16, 0), (Q4_0, 0), (Q4_1, 0), (Q4_1, 2), (Q8_0, 0)])
@pytest.mark.parametrize("fraction", [0, 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_a_scale_without_a_value_is_refused_with_tensor_and_block(file, kind, place, fraction, sign):
    """Infinities and NaNs of both signs, in the last block of the second row; the same bits elsewhere are data."""
    block, width = WIDTHS[kind]
    bits = struct.pack("<I", sign << 31 | 0x7F800000 | fraction)
    if kind != F32:
        bits = struct.pack("<H", sign << 15 | 0x7C00 | fraction)
    sound = tensor("t", [3 * block, 2], kind)
    at = 5 * width + place
    path = file(gguf_file([], [sound._replace(data=sound.data[:at] + bits + sound.data[at + len(bits) :])]))
    with pytest.raises(InputRefused, match=rf"tensor 't', row 1, block 2: scale 0x{bits[::-1].hex()} is infinite or"):
        gguf_read.opened(path).usable("t")
    assert gguf_read.opened(path).tensor("t").shape == (2, 3 * width)
    if width - 2 >= 4:
        inner = sound.data[: width - 2] + b"\xff\xff" + sound.data[width:]
        path = file(gguf_file([text_pair("other", "file")], [sound._replace(data=inner)]))
        assert gguf_read.opened(path).usable("t").tobytes() == inner


def test_types_are_those_of_the_package():
    """Name, block and bytes of each; the types that samebits reads are among them."""
    package = {int(t): (t.name, *sizes) for t, sizes in GGML_QUANT_SIZES.items()}
    assert {n: package.get(n) for n in gguf_check.TYPES} == gguf_check.TYPES
    assert set(gguf_check.SCALES) <= {t[0] for t in gguf_check.TYPES.values()}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_all_readers_give_the_same_bytes(file, version, alignment):
    """Every type that is read, ranks 1 to 4, gaps of three sizes."""
    pairs = [*PAIRS, u32("general.alignment", alignment), pair("split.count", 2, b"\0\0")]
    path = file(gguf_file(pairs, TENSORS, version, alignment))
    assert_alike(path)
    opened = gguf_read.Opened(path)
    for packed in TENSORS:
        assert opened.tensor(packed.name).tobytes() == packed.data
    assert opened.usable("down").shape == (4, 20)
    with pytest.raises(InputRefused, match="tensor 'other' has type Q5_0; samebits reads F32, F16"):
        opened.usable("other")
    with pytest.raises(InputRefused, match="no tensor 'absent'"):
        opened.usable("absent")


def test_a_file_is_opened_once_and_again_when_it_changed(file):
    """One object a process and state of the file."""
    path = file(MODEL)
    first = gguf_read.opened(path)
    assert gguf_read.opened(path) is first
    assert gguf_read.opened(file(MODEL + bytes(32))) is not first


def test_a_type_that_an_older_package_does_not_know_is_refused_in_one_line(file, monkeypatch):
    """The package raises ValueError there."""

    def refuse(path):
        raise ValueError("30 is not a valid GGMLQuantizationType")

    monkeypatch.setattr(gguf_read, "_Reader", refuse)
    with pytest.raises(InputRefused, match=r"the gguf package refuses it: 30 is not .*install a newer one"):
        gguf_read.Opened(file(MODEL))


def test_readers_that_differ_are_an_internal_error(file, monkeypatch):
    """A digest that differs, a tensor that one places elsewhere, and a reference that dies."""
    path = file(MODEL)
    gguf_read.inspect(path)
    with monkeypatch.context() as patch:
        patch.setattr(gguf_read, "digest_array", lambda data: "0" * 64)
        with pytest.raises(InternalError, match=r"tensor 'norm' is 0000.* here, .* by the reference"):
            gguf_read.inspect(path)
    with monkeypatch.context() as patch:
        patch.setattr(gguf_read.sys, "executable", "/bin/false")
        with pytest.raises(InternalError, match="the reference died"):
            gguf_read.inspect(path)
    opened = gguf_read.Opened(path)
    opened._tensors["norm"] = opened._tensors["norm"]._replace(data_offset=0)
    with pytest.raises(InternalError, match="place tensor 'norm' differently"):
        opened.tensor("norm")


def test_inspect_lists_tensors_with_digests_of_both_readers(file, tmp_path):
    """The command: text, JSON, and exit 2 with one line for a file that is refused."""
    path = file(MODEL)
    listed = samebits(tmp_path, "inspect", path)
    assert listed.returncode == 0, listed.stderr
    assert "Q8_0     64x3         embed  [both]" in listed.stdout
    assert "5 of 6 tensors read alike by both readers" in listed.stderr
    rows = {row["name"]: row for row in json.loads(samebits(tmp_path, "inspect", path, "--json").stdout)["tensors"]}
    digest = hashlib.sha256(b"u8[3,68]\0" + TENSORS[1].data).hexdigest()
    assert rows["embed"] == {
        "name": "embed",
        "type": "Q8_0",
        "dims": [64, 3],
        "bytes": 204,
        "digest": digest,
        "reference": digest,
    }
    assert rows["other"]["reference"] is None
    refused = samebits(tmp_path, "inspect", file(MODEL[:-40]))
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


def test_the_real_model_is_read_alike_by_all_readers():
    """Where SAMEBITS_MODELS holds it: 272 tensors, and the bytes that cases get."""
    if not os.environ.get("SAMEBITS_MODELS") or not models.location("smollm2-135m-q4_1").is_file():
        pytest.skip("SAMEBITS_MODELS holds no model")
    sound, tensors = gguf_read.inspect(models.verified("smollm2-135m-q4_1"))
    assert Counter(t.tensor.type for t in tensors) == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert all(t.reference == t.digest for t in tensors) and sound.version in (2, 3)
    data = models.tensor_bytes("smollm2-135m-q4_1", "token_embd.weight")
    assert data.shape == (49152, 612)
