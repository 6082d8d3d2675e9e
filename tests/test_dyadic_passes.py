"""dyadic-q16 on devices: the pass on exact kernels, on a host compiler and on Intel's runtime, and a fault in a weight."""

import struct
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny_models as tiny
from gguf_bytes import Q4_1, Q8_0
from mock_gates import mock_device
from one_driver import one_driver

from cpu_ref import dyadic_q16 as reference
from cpu_ref.errors import RangeContract
from cpu_ref.layers import LAYERS
from cpu_ref.linear import linear
from cpu_ref.weights import BLOCK_TYPES
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


def exact(kernel, dims, options=None, constant=None, /, *, log=None, **inputs):
    """The reference's operation on arrays."""
    if log is not None:
        log.append((kernel, inputs))
    values = {n: v.tobytes() if v.dtype == np.uint8 else np.asarray(v).ravel().tolist() for n, v in inputs.items()}
    if kernel.startswith("linear_"):
        kind = BLOCK_TYPES[kernel.removeprefix("linear_").upper()]
        return np.array(linear(kind, values["w"], values["x"], dims["k"], bias=values["bias"])).reshape(-1, dims["n"])
    op = LAYERS[kernel]
    return np.array(op.compute(dict(dims), values, **(options or {}))).reshape([dims[d] for d in op.output])


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


@pytest.mark.parametrize("file", ["llama", "qwen2"])
def test_the_pass_on_exact_kernels_is_the_reference(file, request):
    """Both pairings, tied and separate output, with and without biases; all of it, every stage in order."""
    path = request.getfixturevalue(file)
    same(dict(MODULE.run(exact, MODULE.load(str(path)), TOKENS)), right_stages(path))


def test_matrices_over_the_binding_limit_are_cut_and_no_bit_changes(qwen2, monkeypatch):
    """Every uneven number of rows that the smallest limit allows."""
    monkeypatch.setattr(MODULE, "BINDING_BYTES", 256 + 7 * 8 * len(TOKENS) * 8)
    log = []
    same(dict(MODULE.run(partial(exact, log=log), MODULE.load(str(qwen2)), TOKENS)), right_stages(qwen2))
    linears = [len(inputs["w"]) for kernel, inputs in log if kernel.startswith("linear_")]
    assert max(linears) == 7 and linears[-6:] == [7, 7, 7, 7, 7, 5]


@pytest.mark.parametrize("split", [1, 4])
def test_a_pass_over_a_cache_makes_the_rows_of_the_whole_one(qwen2, split):
    """The tokens in two parts."""
    model, cache = MODULE.load(str(qwen2)), MODULE.Cache()
    list(MODULE.run(exact, model, TOKENS[:split], cache))
    last = dict(MODULE.run(exact, model, TOKENS[split:], cache))
    assert len(cache) == len(TOKENS)
    for name, (dims, values) in right_stages(qwen2).items():
        whole = np.array(values).reshape(dims)
        rows = whole[:, split:] if name.endswith(("scores", "softmax")) else whole[split:]
        assert np.array_equal(last[name], rows), name


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


def digests(runner):
    seen = {}
    runner.forward(TOKENS, None, lambda stage: seen.update({stage.name: stage.digest}))
    return seen


def test_intel_s_runtime_makes_the_reference_s_digests_where_it_is_installed(llama):
    """Under tree, and by the fast form; the g++ device above is always there."""
    device = one_driver("opencl", "intel-cpu")
    if device:
        right = digests(runners.ReferenceRunner("reference", PROFILE, str(llama)))
        assert digests(on(device, llama, "tree")) == digests(on(device, llama, variant="fast")) == right, device.id


def test_a_profile_without_kernels_runs_on_the_references_alone():
    """As a new one does at first."""
    new = replace(PROFILE, name="dyadic-q17")
    with pytest.raises(UsageError, match="device 'lavapipe': dyadic-q17 runs on reference and second only"):
        runners.runners(["second", "lavapipe"], new, "x.gguf", None)


class ExactSession:
    """In the place of a device: the reference's operations, one of them spoiled."""

    spoil = staticmethod(lambda kernel, inputs: inputs)

    def __init__(self, device, schedule, variant, resident):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def compute(self, kernel, dims, options=None, constant=None, /, **inputs):
        return exact(kernel, dims, options, constant, **self.spoil(kernel, inputs))


def changed(kernel, name, place, flip, nth=0):
    """The `nth` call of `kernel` meets one changed element of an input."""
    calls = []

    def spoil(called, inputs):
        calls.append(called)
        if called != kernel or calls.count(kernel) != nth + 1:
            return inputs
        wrong = np.array(inputs[name])
        wrong[place] ^= flip
        return inputs | {name: wrong}

    return spoil


@pytest.mark.parametrize(
    ("spoil", "stage", "operation"),
    [
        (changed("linear_q4_1", "w", (3, 9), 16, 12), "l1.up", "linear"),
        (changed("rope", "s", (2, 1), 1 << 20, 3), "l1.k_rope", "rope"),
        (changed("mix", "v", (1, 0, 5), 1 << 9), "l0.mix", "mix"),
    ],
    ids=["a bit of a weight", "a bit of a table", "a bit of an activation"],
)
def test_one_changed_bit_is_named_by_the_stage_that_it_first_shows_in(qwen2, monkeypatch, spoil, stage, operation):
    """Layer, operation, element, both values; every stage before it is right."""
    monkeypatch.setattr(runners, "Session", type("Spoiled", (ExactSession,), {"spoil": staticmethod(spoil)}))
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
            list(MODULE.run(exact, MODULE.load(str(path)), [1]))
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
