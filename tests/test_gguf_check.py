"""The validator that stands before the gguf package: what it refuses, that all readers agree on the rest, and a fuzzer."""

import hashlib
import json
import os
import random
import signal
import struct
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command import samebits
from gguf import GGML_QUANT_SIZES
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpu_ref.errors import GgufRefused
from cpu_ref.gguf_parser import Gguf
from cpu_ref.second.errors import GgufRefused as SecondRefused
from cpu_ref.second.gguf_tensor import block_tensor
from cpu_ref.tensors import digests
from cpu_ref.weights import BLOCK_TYPES
from harness import gguf_check, gguf_read, models
from harness.digest import digest_array
from harness.errors import InputRefused, InternalError

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


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file and gives its path."""

    def write(data):
        path = tmp_path / "tiny.gguf"
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    return write


def u32(key, value):
    return pair(key, 4, struct.pack("<I", value))


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
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(InputRefused, match=f"^{path.name}: there is no such file"):
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


HUGE = [1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]


def test_a_claimed_number_allocates_nothing(file):
    """Eight bytes at every fourth place overwritten by large numbers: the peak stays at what the sound file takes."""
    whole = gguf_file(PAIRS, TENSORS)
    tracemalloc.start()
    try:
        for at in range(0, len(whole) - 8, 4):
            for claim in (1 << 20, (1 << 64) - 1):
                path = file(whole[:at] + struct.pack("<Q", claim) + whole[at + 8 :])
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                read_by_both(path)
                assert tracemalloc.get_traced_memory()[1] - before < 1 << 18
    finally:
        tracemalloc.stop()


def read_by_both(path):
    """What the validator and the reference say of the file; anything but a refusal of one line passes through."""
    sound = None
    try:
        sound = gguf_check.check(path)
    except InputRefused as e:
        assert "\n" not in str(e)
    try:
        digests(Gguf(path))
        read = True
    except GgufRefused as e:
        assert "\n" not in str(e)
        read = False
    return sound, read


# The fuzzer. A file is a list of parts, each a field of the format, so that a mutation can hit lengths, counts, offsets
# and types and leave the rest in step.


def parts_of(pairs, tensors, version, alignment):
    """A well-formed file as its fields."""
    parts = [b"GGUF", struct.pack("<I", version), struct.pack("<Q", len(tensors)), struct.pack("<Q", len(pairs))]
    for p in pairs:
        length = struct.unpack_from("<Q", p)[0]
        parts += [p[:8], p[8 : 8 + length], p[8 + length : 12 + length]]
        rest = p[12 + length :]
        parts += [rest[:4], rest[4:12], rest[12:20], rest[20:]] if p[8 + length] == 9 else [rest[:8], rest[8:]]
    data = b""
    for t in tensors:
        data += bytes(-len(data) % alignment)
        parts += [struct.pack("<Q", len(t.name)), t.name.encode(), struct.pack("<I", len(t.dims))]
        parts += [struct.pack("<Q", d) for d in t.dims]
        parts += [struct.pack("<I", t.type), struct.pack("<Q", len(data))]
        data += t.data
    parts.append(bytes(-sum(map(len, parts)) % alignment))
    return [*parts, data]


def mutated(parts, mutations):
    """The file's bytes after each (kind, place, value)."""
    parts = list(parts)
    for kind, place, value in mutations:
        i = place % len(parts)
        part = parts[i]
        if kind == "number":  # an interesting number of the field's width
            parts[i] = (value % (1 << 8 * min(len(part), 8))).to_bytes(min(len(part), 8), "little") + part[8:]
        elif kind == "near" and len(part) in (4, 8):
            near = int.from_bytes(part, "little") + value % 65 - 32
            parts[i] = (near % (1 << 8 * len(part))).to_bytes(len(part), "little")
        elif kind in ("bit", "data") and (part := parts[i := i if kind == "bit" else len(parts) - 1]):
            at = value % (8 * len(part))
            parts[i] = part[: at // 8] + bytes([part[at // 8] ^ 1 << at % 8]) + part[at // 8 + 1 :]
        elif kind == "drop":
            parts[i] = b""
        elif kind == "double":
            parts[i] = part + part
        elif kind == "swap":
            j = value % len(parts)
            parts[i], parts[j] = parts[j], parts[i]
        elif kind == "again" and len(parts) < 400:  # a run of fields a second time: keys and entries twice
            parts[i:i] = parts[i : i + value % 9]
        elif kind == "cut":
            whole = b"".join(parts)
            parts = [whole[: value % (len(whole) + 1)]]
    return b"".join(parts)


NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 31, 32, 33, 64, 255, 256, 1 << 16, 1 << 24, *HUGE])
KINDS = st.sampled_from("number near near bit bit bit data data drop double swap again cut".split())
MUTATION = st.tuples(KINDS, st.integers(0, 99), NUMBERS | st.integers(0, (1 << 64) - 1))
SHAPES = [(k, dims) for k in WIDTHS for dims in ([1], [3], [2, 3], [1, 2, 2], [1, 1, 3, 2])]
FILE = st.tuples(
    st.sampled_from([2, 3]),
    st.sampled_from([8, 32, 64]),
    st.integers(0, (1 << len(PAIRS)) - 1),
    st.lists(st.sampled_from(SHAPES), max_size=4),
    st.lists(MUTATION, min_size=1, max_size=3),
)

FILES = int(os.environ.get("SAMEBITS_FUZZ_FILES", "2000"))
ROOM = 512 << 20
HANG_S = 5


@pytest.fixture
def bounded():
    """At most ROOM bytes of address space more than now, and an alarm that ends what hangs (where the system can)."""
    if sys.platform != "linux":
        yield
        return
    import resource

    def hang(*_):
        raise TimeoutError(f"a file took over {HANG_S} s")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    previous = signal.signal(signal.SIGALRM, hang)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, previous)


def test_mutated_files_are_refused_or_read_alike(tmp_path, bounded):
    """SAMEBITS_FUZZ_FILES mutated files: refused without crash, hang or much memory, or read alike."""
    path, seen = tmp_path / "fuzz.gguf", Counter()

    @settings(
        max_examples=FILES, deadline=None, database=None, derandomize=FILES <= 2000, suppress_health_check=HealthCheck
    )
    @given(FILE)
    def fuzz(spec):
        version, alignment, chosen, shapes, mutations = spec
        pairs = [p for i, p in enumerate(PAIRS) if chosen >> i & 1]
        tensors = [tensor(f"t{i}", [WIDTHS[k][0] * d[0], *d[1:]], k) for i, (k, d) in enumerate(shapes)]
        pairs = pairs if alignment == 32 else [*pairs, u32("general.alignment", alignment)]
        path.unlink(missing_ok=True)  # to write over a file is ten times as slow
        path.write_bytes(mutated(parts_of(pairs, tensors, version, alignment), mutations))
        if sys.platform == "linux":
            signal.setitimer(signal.ITIMER_REAL, HANG_S)
        try:
            sound, read = read_by_both(path)
            try:
                block_tensor(str(path), "t0", "Q8_0")
            except SecondRefused as e:
                assert "\n" not in str(e)
            if sound:
                assert read, "the validator accepts what the reference refuses"
                assert_alike(path)
        finally:
            if sys.platform == "linux":
                signal.setitimer(signal.ITIMER_REAL, 0)
        seen["files"] += 1
        seen["accepted" if sound else "refused"] += 1
        seen["tensors read alike"] += len(sound.tensors) if sound else 0

    fuzz()
    print(dict(seen))
    assert seen["files"] >= FILES  # Hypothesis may stop early where it finds nothing new
    assert min(seen["accepted"], seen["refused"]) > FILES // 10


def test_random_bytes_behind_a_sound_header_are_read_alike(file):
    """Tensor data is anything: infinite scales are told apart by `usable`, never by the digest."""
    rng = np.random.default_rng(5)
    size = len(TENSORS[1].data)
    for _ in range(20):
        packed = TENSORS[1]._replace(data=rng.bytes(size))
        assert_alike(file(gguf_file(PAIRS, [packed])))
