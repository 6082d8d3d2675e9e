"""Whole passes of dyadic-q16: reference and second on tiny models, decode against prefill, the document's vector."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import both
import make_tiny_qwen2
import pytest
import tiny_models as tiny
from gguf_bytes import F32, Q4_0, Q4_1, Q8_0, Packed

from cpu_ref import dyadic_q16 as reference
from cpu_ref import gguf_model
from cpu_ref.digest import tensor_digest
from cpu_ref.integers import write_signed
from cpu_ref.second import dyadic_q16 as second
from harness import models, presets, whole_pass
from harness.digest import digest_bytes
from harness.reference import load_goldens

TOKENS = [1, 2, 3, 39, 0, 5]
IMPLEMENTATIONS = [reference, second]


def digest(stage):
    dims, values = stage
    return tensor_digest("i64", dims, write_signed(values, 8))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", [Q8_0, Q4_0, Q4_1])
@pytest.mark.parametrize("biases", [False, True])
def test_reference_and_second_agree_on_every_stage(tmp_path, architecture, kind, biases):
    """Each block type and pairing, with and without biases; the embedding doubles as output matrix in half of them."""
    there = tiny.tensors(kind, biases=biases, tied=biases)
    found = both.stages(tiny.write(tmp_path / "m.gguf", architecture, None, there), TOKENS)
    assert max(map(abs, found["logits"][1])) > 1 << 14


def test_stages_are_the_documents_in_name_order_and_shape(tmp_path):
    """The table of the document, and `greedy` behind it; 0 stands where a key is later than the query."""
    found = both.stages(tiny.write(tmp_path / "m.gguf"), TOKENS)
    t, n = len(TOKENS), tiny.WIDTH
    heads, kv, mlp = (t, tiny.HEADS, 16), (t, tiny.KV_HEADS, 16), (t, tiny.MLP)
    layer = {"attn_norm": (t, n), "q": heads, "k": kv, "v": kv, "q_rope": heads, "k_rope": kv}
    layer |= {"scores": (4, t, t), "softmax": (4, t, t), "mix": (t, 64), "attn_out": (t, n), "ffn_norm": (t, n)}
    layer |= {"gate": mlp, "up": mlp, "silu": mlp, "act": mlp, "down": (t, n), "x": (t, n)}
    expected = {"embed": (t, n)} | {f"l{i}.{name}": dims for i in range(2) for name, dims in layer.items()}
    expected |= {"hidden": (t, n), "logits": (t, tiny.VOCABULARY), "greedy": (t,)}
    assert [(name, dims) for name, (dims, _) in found.items()] == list(expected.items())
    for name in ("l0.scores", "l1.softmax"):
        values = found[name][1]
        later = [values[(h * t + row) * t + key] for h in range(4) for row in range(t) for key in range(row + 1, t)]
        assert set(later) == {0}


@pytest.mark.parametrize("module", IMPLEMENTATIONS)
@pytest.mark.parametrize("cut", [[1] * 6, [2, 4], [5, 1]])
def test_any_split_with_the_cache_gives_the_rows_of_the_whole(tmp_path, module, cut):
    """Token by token, and in two parts: layers, hidden and logits of all rows, bit for bit."""
    model = module.load(str(tiny.write(tmp_path / "m.gguf", "qwen2", None, tiny.tensors(Q4_1, biases=True))))

    def rows(stage):
        return [int(v) for v in (stage[1].reshape(-1) if module is second else stage[2])]

    names = ("embed", "l0.x", "l1.x", "l1.q_rope", "l0.mix", "hidden", "logits", "greedy")
    whole = {stage[0]: rows(stage) for stage in module.run(model, TOKENS)}
    parts = {name: [] for name in names}
    cache, at = module.Cache(), 0
    for count in cut:
        for stage in module.run(model, TOKENS[at : at + count], cache):
            if stage[0] in parts:
                parts[stage[0]] += rows(stage)
        at += count
        assert len(cache) == at
    assert parts == {name: whole[name] for name in names}


def test_a_model_too_large_for_memory_is_built_as_it_is_used(tmp_path, monkeypatch):
    """Matrices that are not kept give the same stages, by Python's sums (few tokens) and by FLINT's."""
    path = tiny.write(tmp_path / "m.gguf", "llama", None, tiny.tensors(Q4_1))
    kept = [both.first_stages(path, TOKENS[:count]) for count in (2, 6)]
    monkeypatch.setattr(gguf_model, "_memory", lambda: 0)
    assert [both.first_stages(path, TOKENS[:count]) for count in (2, 6)] == kept
    assert not reference.load(str(path)).matrix("token_embd").keep


def test_the_tiny_qwen2_generator_gives_its_file_and_one_set_of_digests(tmp_path):
    """Biases, its own output matrix, a token whose embedding is zero; the generator checks the file's SHA-256."""
    path = tmp_path / "q.gguf"
    make_tiny_qwen2.write(str(path))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == make_tiny_qwen2.EXPECTED
    found = both.stages(path, [1, 2, 3, 0, 255])
    assert set(found["embed"][1][3 * 64 : 4 * 64]) == {0}
    assert {name: digest(found[name]) for name in ("embed", "l1.x", "hidden", "logits")} == QWEN2
    assert found["greedy"] == ((5,), [193, 141, 193, 193, 32])


def test_a_row_of_large_activations_takes_the_branch_beyond_64_bits(tmp_path):
    """Embeddings under the largest scales: the mean of squares passes 64 bits in every row of the first norm."""
    there = tiny.tensors()
    name = "token_embd.weight"
    there[name] = Packed(name, [32, 40], Q8_0, tiny.blocks(Q8_0, 40, 32, "large", 0x7A00))
    found = both.stages(tiny.write(tmp_path / "m.gguf", "llama", None, there), TOKENS)
    for t in range(len(TOKENS)):
        row = found["embed"][1][32 * t : 32 * (t + 1)]
        assert (sum(v * v for v in row) // 32).bit_length() > 64
    assert max(map(abs, found["l0.attn_norm"][1])) < 1 << 20


def test_subnormal_scales_are_exact(tmp_path):
    """Every block of a matrix under a scale below 2^-14."""
    there = tiny.tensors()
    for name in ("token_embd.weight", "blk.0.attn_q.weight"):
        k, rows = there[name].dims
        there[name] = Packed(name, [k, rows], Q8_0, tiny.blocks(Q8_0, rows, k, name, 0x0001))
    found = both.stages(tiny.write(tmp_path / "m.gguf", "llama", None, there), TOKENS)
    assert 0 < max(map(abs, found["embed"][1])) < 512 * 128 // 256
    assert max(map(abs, found["l0.q"][1])) > 0


def test_the_lowest_id_wins_among_equal_logits(tmp_path):
    """An output matrix of zeros but for two equal rows: either they win, or all the others do; the first is chosen."""
    there = tiny.tensors()
    row = tiny.blocks(Q8_0, 1, 32, "row")
    data = bytes(34) * 3 + row + bytes(34) * 8 + row + bytes(34) * 27
    there["output.weight"] = Packed("output.weight", [32, 40], Q8_0, data)
    found = both.stages(tiny.write(tmp_path / "m.gguf", "llama", None, there), list(range(20)))
    logits = [found["logits"][1][40 * t : 40 * (t + 1)] for t in range(20)]
    assert all(row[3] == row[12] != 0 == row[0] for row in logits)
    assert found["greedy"][1] == [3 if row[3] > 0 else 0 for row in logits]
    assert set(found["greedy"][1]) == {0, 3}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_broken_contract_names_layer_stage_element_and_value(tmp_path, sign):
    """A gain of 2^16, of one step less (which breaks something later), and a bias of 2^22."""
    there = tiny.tensors()

    def with_value(name, count, at, value):
        values = [1.0] * count
        values[at] = value
        return there | {name: Packed(name, [count], F32, struct.pack(f"<{count}f", *values))}

    def refused(changed):
        return both.stages(tiny.write(tmp_path / "m.gguf", "llama", None, changed), TOKENS)

    inside = ((1 << 24) - 1) / (1 << 24)
    gain, bias = "blk.1.ffn_norm.weight", "blk.1.attn_k.bias"
    message = f"l1.ffn_norm.gain[5] = {sign << 40}: its magnitude must stay below 2^40"
    assert refused(with_value(gain, 32, 5, sign * float(1 << 16))) == ("RangeContract", message)
    assert "gain" not in str(refused(with_value(gain, 32, 5, sign * inside * (1 << 16))))
    message = f"l1.k.bias[7] = {sign << 62}: its magnitude must stay below 2^62"
    assert refused(with_value(bias, 32, 7, sign * float(1 << 22))) == ("RangeContract", message)


def test_a_broken_linear_names_layer_stage_token_row_and_column(tmp_path):
    """Weights of 65504 times 127 against gains of nearly 2^16: some term of the first query passes 2^62."""
    there = tiny.tensors()
    huge = struct.pack("<H32b", 0x7BFF, *[127] * 32) * 64
    there["blk.1.attn_q.weight"] = Packed("blk.1.attn_q.weight", [32, 64], Q8_0, huge)
    name = "blk.1.attn_norm.weight"
    there[name] = Packed(name, [32], F32, struct.pack("<32f", *[65535.0] * 32))
    kind, message = both.stages(tiny.write(tmp_path / "m.gguf", "llama", None, there), TOKENS)
    assert kind == "RangeContract"
    assert message.startswith("l1.q.term[0, 0, ")


QWEN2 = {
    "embed": "16143161b0ff92577ef1294fdc86bf10c46686cf69826abcdc43a3298f1da4e5",
    "l1.x": "bf167cb634b5842487e1200d9d12fc38d0211128bfc22fb6cfd2fe19ff86854a",
    "hidden": "1dd56539f7180637b8f190cc77554ab1f40a3695ea422bd4db139b7c313394e9",
    "logits": "08cff00f8564c20fdc099687cfd71d9d16caa56c6f4cc5b5b2f41b184cf62d81",
}
"""Digests of the tiny qwen2 model on tokens 1, 2, 3, 0, 255: by reference and second, and committed."""

VECTOR = {
    "embed": "9f5e5b7bb036061d36cc8998e8648f351c35071b083ce3cc4b4f065502ca1d97",
    "l0.x": "bbc230f40521183f1d7f3fd39867b84ade709fb91305ad00aa920d28fb923034",
    "l29.x": "b6be26079fadf877beb25835a9c21f06997f2fcc1caedcb3e2eadd5e23bf38d6",
    "hidden": "a0b420d08f2826334c00ea5579434fc211183947ff8420dd6fd29b168834db32",
    "logits": "1672b3b2e054955f45a5cb6175ce58c51fa251217bcef196f9b97da378e9beb0",
}
"""The document's, tokens 504, 1108, 282, 15328."""

LICENCE_28 = "88cc0bb9004b2ed62f9e8a2c7be7b161fc2c7a494500f46688c2515b705b8d8b"
"""Digest of the digests of all stages on the first 28 ids of the licence text, by reference and second."""


def ask(module, *requests):
    """The answers of a worker to the requests, by stage where they have one."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([sys.executable, "-m", module], input=lines, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("module", ["cpu_ref.forward", "cpu_ref.second.forward"])
def test_the_documents_vector_and_28_tokens_of_the_real_model(module):
    """Where SAMEBITS_MODELS holds it (a minute for the exact one): the document's digests, one answer to 28 tokens, and goldens."""
    if not os.environ.get("SAMEBITS_MODELS") or not models.location("smollm2-135m-q4_1").is_file():
        pytest.skip("SAMEBITS_MODELS holds no model")
    path = str(models.verified("smollm2-135m-q4_1"))
    ids = json.loads(Path(__file__).with_name("data").joinpath("licence-512.json").read_text())["ids"][:28]
    request = {"op": "forward", "profile": "dyadic-q16", "model": path}
    answers = ask(module, request | {"tokens": [504, 1108, 282, 15328]}, request | {"tokens": ids})
    end = next(i for i, answer in enumerate(answers) if "greedy" in answer)
    short, long = ({a["stage"]: a["digest"] for a in part if "stage" in a} for part in (answers[:end], answers[end:]))
    assert {name: short[name] for name in VECTOR} == VECTOR
    everything = hashlib.sha256(json.dumps(long).encode()).hexdigest()
    assert (len(long), everything) == (30 * 17 + 4, LICENCE_28)
    cases = [c.id for c in presets.cases("full") if c.kernel == "pass_dyadic_q16"]
    goldens = load_goldens()
    for case, stages in zip(cases, (short, long), strict=True):
        raw, dims = whole_pass.canonical(stages.values())
        assert goldens[case]["digest"] == digest_bytes("u8", dims, raw)
