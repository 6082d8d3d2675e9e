"""Every refusal of docs/profiles/common.md, each by a model or an input that is sound but for one thing."""

import struct

import both
import pytest
import tiny_models as tiny
from gguf_bytes import F16, F32, Q4_0, Q4_1, Q5_0, Q8_0, Packed

from cpu_ref import dyadic_q16 as reference
from cpu_ref import errors
from cpu_ref.second import dyadic_q16 as second
from cpu_ref.second import errors as second_errors

TOKENS = [1, 2, 3]


def loads(path):
    """How each implementation's `load` ends: the name of the refusal, and the reference's message."""
    with pytest.raises(errors.Refused) as first:
        reference.load(str(path))
    with pytest.raises(second_errors.Refused) as other:
        second.load(str(path))
    for caught in (first, other):
        assert "\n" not in str(caught.value)
    assert type(first.value).__name__ == type(other.value).__name__
    return type(first.value).__name__, str(first.value)


@pytest.fixture
def model(tmp_path):
    """Writes a tiny model with changes and gives its path."""
    return lambda **given: tiny.write(tmp_path / "tiny.gguf", **given)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", None, "no llama.block_count; the profile never guesses it"),
        ("embedding_length", None, "no llama.embedding_length"),
        ("feed_forward_length", None, "no llama.feed_forward_length"),
        ("attention.head_count", None, "no llama.attention.head_count;"),
        ("attention.layer_norm_rms_epsilon", None, "no llama.attention.layer_norm_rms_epsilon; the profile never"),
        ("context_length", None, "no llama.context_length"),
        ("block_count", 0, "llama.block_count is 0; it must be one whole number of 1 or more"),
        ("block_count", 1 << 31, "no tensor 'blk.2.attn_norm.weight'"),
        ("attention.head_count", [4, 4], "llama.attention.head_count is [4, 4]; it must be one whole number"),
        ("attention.head_count", 1.5, "llama.attention.head_count is 1.5"),
        ("attention.head_count_kv", 3, "3 key/value heads do not divide 4 query heads"),
        ("attention.key_length", 15, "a head width of 15"),
        ("attention.layer_norm_rms_epsilon", 1e-11, "an epsilon of 1e-11; in Q32 it must be 1 or more"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "llama.attention.layer_norm_rms_epsilon is nan"),
        ("rope.freq_base", float("inf"), "llama.rope.freq_base is inf"),
        ("rope.freq_base", 0.0, "llama.rope.freq_base is 0.0"),
        ("rope.dimension_count", 8, "llama.rope.dimension_count is 8; the profile wants the head width, 16"),
        ("attention.value_length", 8, "llama.attention.value_length is 8; the profile wants the head width, 16"),
        ("rope.scaling.type", "yarn", "RoPE scaling of type 'yarn'; the profile has none"),
        ("rope.scaling.type", "linear", "RoPE scaling of type 'linear'"),
        ("attention.sliding_window", 16, "llama.attention.sliding_window is set; the profile has neither sliding"),
        ("attn_logit_softcapping", 50.0, "llama.attn_logit_softcapping is set"),
        ("final_logit_softcapping", 30.0, "llama.final_logit_softcapping is set"),
    ],
)
def test_a_number_outside_the_profile_is_refused_by_its_key(model, key, value, message):
    """Absent numbers that must not be guessed, impossible ones, and variants of the arithmetic."""
    kind, text = loads(model(changes={f"llama.{key}": value}))
    assert kind == "ModelRefused"
    assert text.startswith(f"tiny.gguf: {message}")


def test_absent_numbers_take_the_tables_defaults(model):
    """Key/value heads = heads, head width = width / heads, base 10000; RoPE scaling `none` is no scaling."""
    changes = {"llama.attention.head_count": 2, "llama.attention.head_count_kv": None}
    changes |= {"llama.attention.key_length": None, "llama.rope.freq_base": None, "llama.rope.scaling.type": "none"}
    there = tiny.tensors()
    for layer in range(tiny.LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            full = f"blk.{layer}.{name}.weight"
            there[full] = Packed(full, [32, 32], Q8_0, tiny.blocks(Q8_0, 32, 32, full))
    path = model(changes=changes, there=there)
    numbers, other = reference.load(str(path)).numbers, second.load(str(path))
    assert (numbers.kv_heads, numbers.head_width, numbers.rope_base) == (2, 16, 10000)
    assert (other.kv_heads, other.head_width, other.rope_base) == (2, 16, 10000.0)
    spelled = {"llama.attention.head_count_kv": 2, "llama.attention.key_length": 16, "llama.rope.freq_base": 10000.0}
    found = both.stages(path, TOKENS)
    assert found == both.stages(model(changes=changes | spelled, there=there), TOKENS)


def test_a_head_width_that_is_not_whole_is_refused(model):
    """No key_length, and 3 heads do not divide 32."""
    changes = {"llama.attention.key_length": None, "llama.attention.head_count": 3, "llama.attention.head_count_kv": 3}
    kind, text = loads(model(changes=changes))
    assert (kind, "3 heads do not divide a width of 32" in text) == ("ModelRefused", True)


def test_an_architecture_that_the_profile_does_not_list_is_refused_by_name(model):
    """gemma; and none at all."""
    for architecture in ("gemma", None):
        kind, text = loads(model(changes={"general.architecture": architecture}))
        assert kind == "ModelRefused"
        assert text.startswith(f"tiny.gguf: architecture {architecture!r}; the profile takes llama, qwen2")


def spoiled(name, dims, kind, data):
    return tiny.tensors() | {name: Packed(name, dims, kind, data)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rope_freqs.weight", "tensor 'rope_freqs.weight'; the profile's RoPE has one base and no factors"),
        ("blk.0.attn_norm.bias", "the forward pass has no use for tensor 'blk.0.attn_norm.bias'"),
        ("blk.2.attn_q.weight", "the forward pass has no use for tensor 'blk.2.attn_q.weight'"),
        ("output.bias", "the forward pass has no use for tensor 'output.bias'"),
    ],
)
def test_a_tensor_that_the_forward_pass_does_not_use_is_refused_by_name(model, name, message):
    """RoPE factors, a norm's bias, a layer too many, a bias of the output."""
    kind, text = loads(model(there=spoiled(name, [32], F32, bytes(128))))
    assert kind == "ModelRefused"
    assert text.startswith(f"tiny.gguf: {message}")


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.0.ffn_norm.weight"]
    + [f"blk.1.{name}.weight" for name in tiny.LINEARS],
)  # fmt: skip
def test_a_tensor_that_the_forward_pass_does_not_find_is_refused_by_name(model, name):
    """Every kind of tensor but the output matrix, for which the embedding stands in."""
    there = tiny.tensors()
    del there[name]
    kind, text = loads(model(there=there))
    assert kind == "ModelRefused"
    assert f"no tensor {name!r}; the forward pass needs it" in text


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("blk.0.attn_q.weight", [32, 32]),
        ("blk.1.ffn_down.weight", [32, 64]),
        ("output.weight", [32, 41]),
        ("token_embd.weight", [32]),
        ("token_embd.weight", [32, 5, 8]),
    ],
)
def test_a_tensor_of_other_dimensions_is_refused_by_name(model, name, dims):
    """A head too few, a transposed matrix, another vocabulary, a vector and a cube."""
    count = 1
    for d in dims:
        count *= d
    kind, text = loads(model(there=spoiled(name, dims, Q8_0, bytes(count // 32 * 34))))
    assert kind == "ModelRefused"
    assert name in text


def test_a_row_that_is_no_multiple_of_the_block_is_refused(model):
    """33 values in a row of a matrix, by the file's reader."""
    kind, text = loads(model(there=spoiled("blk.0.attn_q.weight", [33, 64], Q8_0, bytes(34 * 66))))
    assert kind == "GgufRefused"
    assert "rows of 33 values are no multiple of Q8_0's 32" in text


def test_a_type_that_is_not_implemented_is_refused_by_name(model):
    """Q5_0 by the file's reader, F16 and F32 matrices and Q8_0 gains by the profile."""
    name = "blk.0.attn_q.weight"
    kind, text = loads(model(there=spoiled(name, [32, 64], Q5_0, bytes(64 * 22))))
    assert (kind, f"tensor {name!r} has type Q5_0" in text) == ("GgufRefused", True)
    kind, text = loads(model(there=spoiled(name, [32, 64], F32, bytes(32 * 64 * 4))))
    assert (kind, text) == ("WeightsRefused", f"{name} is F32: the profile takes Q4_0, Q4_1, Q8_0 there")
    with pytest.raises(errors.WeightsRefused, match=f"{name} is F16"):
        reference.load(str(model(there=spoiled(name, [32, 64], F16, bytes(32 * 64 * 2)))))
    kind, text = loads(model(there=spoiled("output_norm.weight", [32], Q8_0, bytes(34))))
    assert (kind, text) == ("WeightsRefused", "output_norm.weight is Q8_0: the profile takes F32 there")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_gain_or_a_bias_without_a_value_is_refused_by_tensor_and_element(model, value):
    """Element 3."""
    data = struct.pack("<32f", 0, 0, 0, value, *[0] * 28)
    for name in ("blk.1.ffn_norm.weight", "blk.1.ffn_down.bias"):
        kind, text = loads(model(there=spoiled(name, [32], F32, data)))
        assert kind == "WeightsRefused"
        assert text == f"{name}: element 3 is {value}, which has no exact value"


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00, 0xFFFF])
@pytest.mark.parametrize(("kind", "half"), [(Q8_0, 0), (Q4_0, 0), (Q4_1, 0), (Q4_1, 1)])
def test_a_scale_without_a_value_is_refused_at_load_by_tensor_row_and_block(model, kind, half, bits):
    """Infinities and NaNs, in the scale and in the min; row 5, block 1 of the last matrix."""
    there = tiny.tensors(kind)
    name = "blk.1.ffn_down.weight"
    size = tiny.QUANT_BYTES[kind] + 2 * tiny.HALVES[kind]
    data = bytearray(there[name].data)
    struct.pack_into("<H", data, (5 * 2 + 1) * size + 2 * half, bits)
    there[name] = there[name]._replace(data=bytes(data))
    refused = loads(model(there=there))
    assert refused == ("WeightsRefused", f"{name}: row 5, block 1: the scale 0x{bits:04x} is infinite or NaN")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "no token: a forward pass takes one or more"),
        ([1, 40], "token 1 is 40: this model's ids go from 0 to 39"),
        ([-1], "token 0 is -1: this model's ids go from 0 to 39"),
        ([0] * 25, "25 tokens: this model's context holds 24"),
    ],
)
def test_tokens_that_the_model_does_not_take_are_refused(model, tokens, message):
    """None, outside the vocabulary on both sides, one more than the context; the whole context passes."""
    path = model()
    assert both.stages(path, tokens) == ("TokensRefused", message)


def test_the_context_counts_what_the_cache_holds(model):
    """All of the context in two parts, then one token more."""
    path = str(model())
    for module, refusals in ((reference, errors), (second, second_errors)):
        opened, cache = module.load(path), module.Cache()
        for part in ([1] * 20, [2] * 4):
            list(module.run(opened, part, cache))
        with pytest.raises(refusals.TokensRefused, match="25 tokens: this model's context holds 24"):
            next(module.run(opened, [1], cache))


def test_a_missing_file_is_refused(tmp_path):
    """By the reader, with the name."""
    kind, text = loads(tmp_path / "absent.gguf")
    assert (kind, text.split(";")[0]) == ("GgufRefused", "absent.gguf: there is no such file")
