"""dyadic-q16 on devices: the pass on exact kernels and on a host compiler, and a fault in a weight."""

import struct
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import tiny_models as tiny
from exact_device import ExactDevice
from gguf_bytes import Q4_1, Q8_0
from mock_gates import mock_device
from one_driver import one_driver

from cpu_ref import dyadic_q16 as reference
from cpu_ref.errors import RangeContract
from harness import device_session, forward, passes, profiles, runners
from harness.errors import InputRefused, UsageError

WIDE = {"blk.1.ffn_norm.weight": 65536.0, "blk.0.attn_q.bias": -4194304.0}
"""2^16 in Q24 and 2^22 in Q40: the first magnitudes outside."""

PROFILE = profiles.find("dyadic-q16")
MODULE = passes.find(PROFILE)
TOKENS = [1, 39, 0, 39, 17]


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """These devices disturb no measurement: no other samebits is waited for."""
    monkeypatch.setattr(device_session, "device_lock", lambda say: nullcontext())


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Q8_0, tied: the embedding makes the logits."""
    return tiny.write(tmp_path_factory.mktemp("models") / "llama.gguf", there=tiny.tensors(Q8_0, tied=True))


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    """Q4_1 with biases."""
    there = tiny.tensors(Q4_1, biases=True)
    return tiny.write(tmp_path_factory.mktemp("models") / "qwen2.gguf", "qwen2", None, there)


def right_stages(path, tokens=TOKENS):
    return {name: (dims, values) for name, dims, values in reference.run(reference.load(str(path)), tokens)}


def same(made, right):
    assert list(made) == list(right)
    for name, values in made.items():
        assert (values.shape, values.ravel().tolist()) == right[name], name


def test_every_stage_is_one_operation_of_the_profile(llama):
    """By the entry's table, which a mismatch is told by."""
    assert profiles.PROFILES["nel-mini-w8a8"].operation("l1.qkv.acc") == "matmul"
    made = [PROFILE.operation(name) for name in right_stages(llama)]
    assert sorted(set(made)) == sorted(PROFILE.operations) == sorted(PROFILE.stages)


def made_by(path, tokens=TOKENS, device=None, **options):
    return MODULE.OnDevice(device or ExactDevice(), MODULE.load(str(path)), **options).run(tokens)


@pytest.mark.parametrize("file", ["llama", "qwen2"])
def test_the_pass_on_exact_kernels_is_the_reference(file, request):
    """Both pairings, tied and separate output, with and without biases; all of it, every stage in order."""
    path = request.getfixturevalue(file)
    same(dict(made_by(path)), right_stages(path))


def test_a_layer_is_one_submission_and_only_what_is_wanted_comes_back(qwen2):
    """Embedding, two layers, head; weights go once, and a second pass sends what depends on its tokens."""
    device = ExactDevice()
    whole, right = MODULE.OnDevice(device, MODULE.load(str(qwen2))), right_stages(qwen2)
    for _ in range(2):
        found = dict(whole.run(TOKENS, wanted=lambda stage: stage in ("l1.x", "logits")))
        assert list(found) == ["l1.x", "logits", "greedy"]
        assert all((v.shape, v.ravel().tolist()) == right[name] for name, v in found.items())
    assert len(device.submissions) == 8
    assert [set(s.uploads) for s in device.submissions[4:]] == [
        {"ids", "embedding", "cosines", "sines"},
        set(),
        set(),
        set(),
    ]
    assert [s.receipts for s in device.submissions[:4]] == [False, False, False, True]


def test_a_matrix_over_the_binding_limit_is_cut_and_no_bit_changes(qwen2, monkeypatch):
    """By seven rows at most."""
    monkeypatch.setattr(MODULE.linear, "GROUP", 7)
    device, model = ExactDevice(), replace(MODULE.load(str(qwen2)), binding=256 + 7 * 20)
    same(dict(MODULE.OnDevice(device, model).run(TOKENS)), right_stages(qwen2))
    head = [s.passes[0].params for s in device.submissions[-1].steps if s.label == "logits"]
    assert [p[5] for p in head[-6:]] == [0, 7, 14, 21, 28, 35]


def test_weights_beyond_the_resident_bytes_are_sent_with_each_layer(qwen2):
    """None, or those that come first; the bits are the same."""
    for resident in (0, 3000):
        device = ExactDevice()
        whole = MODULE.OnDevice(device, MODULE.load(str(qwen2)), resident)
        for _ in range(2):
            same(dict(whole.run(TOKENS)), right_stages(qwen2))
        sent = [name for s in device.submissions[4:] for name in s.uploads if name.startswith("sent.")]
        assert len(sent) == (15 if resident == 0 else 12) and "sent.ffn_down@0" in device.tensors


def test_a_pass_of_many_tokens_is_cut_and_no_bit_changes(qwen2, monkeypatch):
    """Two tokens at a time: rows of attention grow by zeros, rows of the rest are joined."""
    monkeypatch.setattr(MODULE, "MOST_TOKENS", 2)
    same(dict(made_by(qwen2)), right_stages(qwen2))


@pytest.mark.parametrize("split", [1, 4])
def test_a_pass_over_a_cache_makes_the_rows_of_the_whole_one(qwen2, split):
    """The tokens in two parts; the cache grows on the device, or has room from the beginning."""
    for room in (0, len(TOKENS)):
        whole, cache = MODULE.OnDevice(ExactDevice(), MODULE.load(str(qwen2))), MODULE.Cache(room)
        list(whole.run(TOKENS[:split], cache))
        last = dict(whole.run(TOKENS[split:], cache))
        assert len(cache) == len(TOKENS)
        for name, (dims, values) in right_stages(qwen2).items():
            right = np.array(values).reshape(dims)
            rows = right[:, split:] if name.endswith(("scores", "softmax")) else right[split:]
            assert np.array_equal(last[name], rows), name


def test_sequences_of_unequal_length_share_a_pass(qwen2, monkeypatch):
    """Each has the stages that it has alone, one of them behind a cache; cut into passes of 4 tokens too."""
    sequences = [[5], TOKENS, [3, 3, 8]]
    for most in (512, 4):
        monkeypatch.setattr(MODULE, "MOST_TOKENS", most)
        whole = MODULE.OnDevice(ExactDevice(), MODULE.load(str(qwen2)))
        caches = [MODULE.Cache() for _ in sequences]
        list(whole.run(sequences[2][:1], caches[2]))
        batch = [*zip(sequences[:2], caches[:2], strict=True), (sequences[2][1:], caches[2])]
        made = dict(whole.batch(batch))
        for i, tokens in enumerate(sequences):
            for name, (dims, values) in right_stages(qwen2, tokens).items():
                right = np.array(values).reshape(dims)
                if i == 2:
                    right = right[:, 1:] if name.endswith(("scores", "softmax")) else right[1:]
                assert np.array_equal(made[name][i], right), (i, name)
        for cache in caches:
            whole.release(cache)
        assert whole.tape.sizes()["cache"] == 0


def test_the_choice_of_the_last_row_needs_no_logits_of_the_others(qwen2):
    """As generation asks for it."""
    device = ExactDevice()
    ((name, values),) = MODULE.OnDevice(device, MODULE.load(str(qwen2))).run(TOKENS, wanted=lambda stage: False)
    assert (name, values.tolist()) == ("greedy", [right_stages(qwen2)["greedy"][1][-1]])
    assert len(device.tensors["logits"]) == 8 * tiny.VOCABULARY


def test_the_estimate_is_what_a_pass_allocates(qwen2):
    """By kind; split_k keeps partial sums."""
    model, device = MODULE.load(str(qwen2)), ExactDevice()
    whole = MODULE.OnDevice(device, model)
    list(whole.run([5, 4, 3, 2, 1], MODULE.Cache(8), lambda stage: stage == "logits"))
    found, sizes = MODULE.memory(model, 5, 8), whole.tape.sizes()
    assert (found.weights, found.cache) == (sizes["weights"], sizes["cache"])
    assert found.activations == sizes["activations"] + sizes["scratch"]
    assert found.total == sum(map(len, device.tensors.values()))
    assert found.largest == max(map(len, device.tensors.values()))
    split = MODULE.memory(model, 5, 8, "split_k")
    assert split.activations > found.activations and split.cache == found.cache and split.weights == found.weights


def on(device, path, schedule="forward", variant="base"):
    return runners.DeviceRunner(device, PROFILE, MODULE, str(path), schedule, variant)


@pytest.fixture(scope="module")
def host():
    """The CUDA sources on g++, which CI installs."""
    return one_driver("cuda_host", "g++")


def test_a_device_makes_every_stage_and_generates_over_its_cache(host, qwen2, tmp_path):
    """The CUDA sources under split_k, with native 64-bit integers where there is such a form."""
    runner, seen = on(host, qwen2, "split_k", "int64"), []
    finished = runner.forward(TOKENS, tmp_path, seen.append)
    same({stage.name: stage.values() for stage in seen}, right_stages(qwen2))
    assert finished.model_sha256 == reference.load(str(qwen2)).sha256
    second = runners.ReferenceRunner("second", PROFILE, str(qwen2))
    right = second.generate(TOKENS, 3, print).greedy
    assert runner.generate(TOKENS, 3, print).greedy == right


def test_a_profile_without_kernels_runs_on_the_references_alone():
    """As a new one does at first."""
    new = replace(PROFILE, name="dyadic-q17")
    with pytest.raises(UsageError, match="device 'lavapipe': dyadic-q17 runs on reference and second only"):
        runners.runners(["second", "lavapipe"], new, "x.gguf", None, tokens=[1])


class ExactSession(ExactDevice):
    """As a session is opened."""

    def __init__(self, *_):
        super().__init__(self.spoiled)

    @staticmethod
    def spoiled(label, inputs):
        return inputs

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


def changed(label, name, place, flip):
    """The step of that label meets one changed element of an input."""

    def spoil(called, inputs):
        if called != label:
            return inputs
        wrong = np.array(inputs[name])
        wrong[place] ^= flip
        return inputs | {name: wrong}

    return spoil


@pytest.mark.parametrize(
    ("spoil", "stage", "operation"),
    [
        (changed("l1.up", "w", 3 * 20 + 9, 16), "l1.up", "linear"),
        (changed("l1.k_rope", "s", 2 * 8 + 1, 1 << 20), "l1.k_rope", "rope"),
        (changed("l0.mix", "v", 32 + 5, 1 << 9), "l0.mix", "mix"),
    ],
    ids=["a bit of a weight", "a bit of a table", "a bit of an activation"],
)
def test_one_changed_bit_is_named_by_the_stage_that_it_first_shows_in(qwen2, monkeypatch, spoil, stage, operation):
    """Layer, operation, element, both values; every stage before it is right."""
    monkeypatch.setattr(runners, "Session", type("Spoiled", (ExactSession,), {"spoiled": staticmethod(spoil)}))
    device = on(mock_device("match"), qwen2)
    yardstick = runners.ReferenceRunner("reference", PROFILE, str(qwen2))
    _, (mismatch,) = forward.forward([yardstick, device], TOKENS, lambda *_: None)
    assert (mismatch.device, mismatch.against, mismatch.stage) == ("mock:match:0", "reference", stage)
    assert PROFILE.operation(stage) == operation
    dims, values = right_stages(qwen2)[stage]
    assert mismatch.expected == np.array(values).reshape(dims)[mismatch.element] != mismatch.actual


@pytest.mark.parametrize(
    ("tokens", "said"), [([40], "token 0 is 40"), ([], "no token"), ([0] * 25, "25 tokens: this model's context")]
)
def test_tokens_are_refused_as_the_reference_refuses_them(qwen2, monkeypatch, tokens, said):
    """One line with the device's name."""
    monkeypatch.setattr(runners, "Session", ExactSession)
    with pytest.raises(InputRefused, match=f"mock:match:0: {said}"):
        on(mock_device("match"), qwen2).forward(tokens, None, print)


def test_gains_and_biases_outside_their_contracts_are_named_as_the_reference_names_them(tmp_path):
    """The one contract that shows without activations."""
    said = []
    for name, value in WIDE.items():
        there = tiny.tensors(Q8_0, biases=True)
        there[name] = there[name]._replace(data=struct.pack("<f", value) + there[name].data[4:])
        path = tiny.write(tmp_path / f"{name}.gguf", there=there)
        with pytest.raises(RangeContract) as right:
            right_stages(path, [1])
        with pytest.raises(RangeContract) as made:
            list(made_by(path, [1]))
        assert str(made.value) == str(right.value)
        said.append(made.value.op)
    assert said == ["l1.ffn_norm.gain", "l0.q.bias"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"qwen2.rope.scaling.type": "yarn"}, "RoPE scaling"), ({"general.architecture": "gpt2"}, "architecture 'gpt2'")],
)
def test_a_model_that_the_profile_does_not_cover_is_refused_before_the_device_is_opened(
    tmp_path, monkeypatch, changes, said
):
    """By name."""
    path = tiny.write(tmp_path / "other.gguf", "qwen2", changes)
    monkeypatch.setattr(runners, "Session", None)
    with pytest.raises(InputRefused, match=f"mock:match:0: other.gguf: {said}"):
        on(mock_device("match"), path).forward([1], None, print)
