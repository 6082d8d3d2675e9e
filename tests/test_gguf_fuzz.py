"""Hostile GGUF files: mutated in every field, with huge numbers: refused in one line without much memory, or read alike."""

import os
import signal
import struct
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import gguf_file
from gguf_samples import PAIRS, TENSORS, WIDTHS, assert_alike, tensor, u32, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpu_ref.errors import GgufRefused
from cpu_ref.gguf_parser import Gguf
from cpu_ref.second.errors import GgufRefused as SecondRefused
from cpu_ref.second.gguf_tensor import block_tensor
from cpu_ref.tensors import digests
from harness import gguf_check
from harness.errors import InputRefused

HUGE = [1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]


def test_a_claimed_number_allocates_nothing(tmp_path):
    """Eight bytes at every fourth place overwritten by large numbers: the peak stays at what the sound file takes."""
    whole = gguf_file(PAIRS, TENSORS)
    tracemalloc.start()
    try:
        for at in range(0, len(whole) - 8, 4):
            for claim in (1 << 20, (1 << 64) - 1):
                path = written(tmp_path, whole[:at] + struct.pack("<Q", claim) + whole[at + 8 :])
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
    seen = Counter()

    @settings(
        max_examples=FILES, deadline=None, database=None, derandomize=FILES <= 2000, suppress_health_check=HealthCheck
    )
    @given(FILE)
    def fuzz(spec):
        version, alignment, chosen, shapes, mutations = spec
        pairs = [p for i, p in enumerate(PAIRS) if chosen >> i & 1]
        tensors = [tensor(f"t{i}", [WIDTHS[k][0] * d[0], *d[1:]], k) for i, (k, d) in enumerate(shapes)]
        pairs = pairs if alignment == 32 else [*pairs, u32("general.alignment", alignment)]
        path = written(tmp_path, mutated(parts_of(pairs, tensors, version, alignment), mutations))
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


def test_random_bytes_behind_a_sound_header_are_read_alike(tmp_path):
    """Tensor data is anything: infinite scales are told apart by `usable`, never by the digest."""
    rng = np.random.default_rng(5)
    size = len(TENSORS[1].data)
    for _ in range(20):
        packed = TENSORS[1]._replace(data=rng.bytes(size))
        assert_alike(written(tmp_path, gguf_file(PAIRS, [packed])))
