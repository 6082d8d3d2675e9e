"""The worker protocol of `python -m cpu_ref` and `python -m cpu_ref.second`: one suite for both."""

import hashlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_bytes import F32, Q8_0, Packed, gguf_file

import cpu_ref.second

MODULES = ["cpu_ref", "cpu_ref.second"]


def talk(module, *lines):
    """Answers to the lines, from a worker that must end cleanly and print nothing else."""
    text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    done = subprocess.run([sys.executable, "-m", module], input=text, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def gemm(tmp_path):
    """A request for [[1, 2], [3, 2^31 - 1]] times [[1, 1], [1, 2]]: one output leaves int32 twice."""
    (tmp_path / "a").write_bytes(struct.pack("<4i", 1, 2, 3, (1 << 31) - 1))
    (tmp_path / "b").write_bytes(struct.pack("<4i", 1, 1, 1, 2))
    inputs = {"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}
    dims = {"m": 2, "n": 2, "k": 2}
    return {
        "op": "compute",
        "id": "g",
        "kernel": "gemm_i32",
        "dims": dims,
        "inputs": inputs,
        "out": str(tmp_path / "c"),
    }


@pytest.fixture
def linear(tmp_path):
    """A request for two rows of one block on one token, out of raw bytes; a model file with the same bytes beside."""
    w = struct.pack("<H32b", 0x3C00, 1, *[0] * 31) + struct.pack("<H32b", 0x4000, -3, *[0] * 31)
    (tmp_path / "w").write_bytes(w)
    (tmp_path / "x").write_bytes(struct.pack("<32q", 65536, *[0] * 31))
    tensors = [Packed("token_embd.weight", [32, 2], Q8_0, w), Packed("f", [32, 2], F32, bytes(256))]
    (tmp_path / "m.gguf").write_bytes(gguf_file([], tensors))
    (tmp_path / "bias").write_bytes(bytes(16))
    inputs = {name: str(tmp_path / name) for name in ("w", "x", "bias")}
    dims = {"m": 1, "n": 2, "k": 32}
    return {
        "op": "compute",
        "id": 7,
        "kernel": "linear_q8_0",
        "dims": dims,
        "inputs": inputs,
        "out": str(tmp_path / "y"),
    }


def sha(header, data):
    return hashlib.sha256(header + b"\0" + data).hexdigest()


@pytest.mark.parametrize("module", MODULES)
def test_a_gemm_is_answered_with_digests_counts_and_a_file(module, gemm, tmp_path):
    """Every field of the answer; the output file holds the residues."""
    (answer,) = talk(module, gemm)
    c = struct.pack("<4i", 3, 5, -(1 << 31) + 2, 1)
    assert answer.pop("seconds") >= 0
    assert answer == {
        "id": "g",
        "digest": sha(b"i32[2,2]", c),
        "element": "i32",
        "dims": [2, 2],
        "leaves_type": 2,
        "input_digests": {name: sha(b"i32[2,2]", (tmp_path / name).read_bytes()) for name in "ab"},
    }
    assert (tmp_path / "c").read_bytes() == c


@pytest.mark.parametrize("module", MODULES)
def test_weights_from_raw_bytes_and_from_a_model_give_one_answer(module, linear, tmp_path):
    """The tensor's bytes are digested as u8 rows either way."""
    model = linear | {
        "inputs": linear["inputs"] | {"w": {"gguf": str(tmp_path / "m.gguf"), "tensor": "token_embd.weight"}}
    }
    raw, from_model = talk(module, linear, model)
    y = struct.pack("<2q", 65536, -6 * 65536)
    for answer in (raw, from_model):
        assert answer.pop("seconds") >= 0
    assert raw == from_model
    assert (raw["id"], raw["digest"], raw["dims"]) == (7, sha(b"i64[1,2]", y), [1, 2])
    assert raw["input_digests"]["w"] == sha(b"u8[2,34]", (tmp_path / "w").read_bytes())
    assert (tmp_path / "y").read_bytes() == y


BAD_LINES = [b"", b"{", b"[1]", b"null", b'"compute"', b"\xff\xfe", b"[" * 100_000, b'{"op": ' + b"9" * 5000 + b"}"]


@pytest.mark.parametrize("module", MODULES)
def test_lines_that_are_no_request_are_refused_and_the_next_goes_on(module, gemm):
    """Empty, cut, wrong, binary, deep and endless JSON."""
    *refused, good = talk(module, *BAD_LINES, gemm)
    assert [(a["id"], a["error"]) for a in refused] == [(None, "RequestRefused")] * len(BAD_LINES)
    assert "digest" in good


BAD_FIELDS = [
    {"op": "destroy"},
    {"kernel": "gemm_f32"},
    {"kernel": None},
    {"kernel": ["gemm_i32"]},
    {"dims": {"m": 2, "n": 2}},
    {"dims": {"m": 2, "n": 2, "k": 2, "q": 1}},
    {"dims": [2, 2, 2]},
    {"dims": {"m": 2, "n": 2, "k": 0}},
    {"dims": {"m": 2, "n": 2, "k": 2.0}},
    {"dims": {"m": True, "n": 2, "k": 2}},
    {"dims": {"m": 3, "n": 2, "k": 2}},
    {"dims": {"m": 1 << 40, "n": 1 << 40, "k": 1}},
    {"inputs": None},
    {"inputs": {}},
    {"inputs": {"a": 3, "b": 4}},
    {"inputs": {"a": "absent", "b": "absent"}},
    {"inputs": {"a": "/", "b": "/"}},
    {"inputs": {"a": "nul\0", "b": "\ud800"}},
    {"out": None},
    {"out": ""},
    {"out": "\ud800"},
    {"out": "absent/folder/c"},
]


@pytest.mark.parametrize("module", MODULES)
def test_each_bad_field_is_refused_in_one_line_without_a_traceback(module, gemm):
    """One field of a good request spoiled at a time; all in one session, and the good request still works."""
    *refused, good = talk(module, *(gemm | bad for bad in BAD_FIELDS), gemm)
    assert [a.get("error") for a in refused] == ["RequestRefused"] * len(BAD_FIELDS)
    assert all(a["id"] == "g" and "\n" not in a["detail"] for a in refused)
    assert "digest" in good


@pytest.mark.parametrize("module", MODULES)
def test_bad_weights_are_refused_by_the_name_of_their_fault(module, linear, tmp_path):
    """K no multiple of 32, another type, another shape, no such tensor, no model, a NaN scale, a broken contract."""
    inputs = linear["inputs"]

    def model(**source):
        return linear | {
            "inputs": inputs | {"w": {"gguf": str(tmp_path / "m.gguf"), "tensor": "token_embd.weight"} | source}
        }

    (tmp_path / "nan").write_bytes(struct.pack("<H32b", 0x7E00, *[0] * 32) * 2)
    (tmp_path / "far").write_bytes(struct.pack("<32q", *[1 << 47] * 32))
    answers = talk(
        module,
        linear | {"dims": {"m": 1, "n": 2, "k": 33}},
        model() | {"dims": {"m": 1, "n": 1, "k": 64}},
        model(tensor=5),
        model(tensor="absent"),
        model(gguf=str(tmp_path / "absent.gguf")),
        model(gguf=str(tmp_path / "w")),
        model(gguf=3),
        linear | {"inputs": inputs | {"w": str(tmp_path / "nan")}},
        linear | {"inputs": inputs | {"x": str(tmp_path / "far")}},
    )
    assert [a["error"] for a in answers] == [
        "WeightsRefused",
        "WeightsRefused",
        "RequestRefused",
        "GgufRefused",
        "GgufRefused",
        "GgufRefused",
        "RequestRefused",
        "WeightsRefused",
        "RangeContract",
    ]
    assert answers[-1]["detail"] == f"linear.x[0, 0] = {1 << 47}: its magnitude must stay below 2^47"
    (wrong_type,) = talk(module, model(tensor="f"))
    assert wrong_type["error"] in ("WeightsRefused", "GgufRefused")


@pytest.mark.parametrize("module", MODULES)
def test_a_worker_whose_parent_is_gone_ends_quietly(module, gemm):
    """Its answers go nowhere: no traceback, no hang."""
    process = subprocess.Popen([sys.executable, "-m", module], stdin=-1, stdout=-1, stderr=-1)
    process.stdout.close()
    process.stdin.write(json.dumps(gemm).encode() + b"\n")
    process.stdin.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(600) == 1


@pytest.mark.parametrize("module", MODULES)
def test_a_worker_loads_nothing_of_the_harness_and_the_second_nothing_of_the_reference(module):
    """Independence is looked up in the loaded modules, not promised."""
    code = f"import {module}.worker, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in loaded if m.split(".")[0] in ("harness", "msgspec", "gguf")]
    if module == "cpu_ref":
        assert "numpy" not in loaded
        assert "cpu_ref.second" not in loaded
    else:
        assert not [m for m in loaded if m.startswith("cpu_ref.") and not m.startswith("cpu_ref.second")]
        sources = [p.read_text("utf-8") for p in Path(cpu_ref.second.__file__).parent.glob("*.py")]
        assert not [
            s for s in sources if re.search(r"^(import|from) flint\b.*\n(.*\n)*.*\bfmpz", s, re.M)
        ]  # balls only
