"""One pattern of bits whatever computes a pass, and however it is cut: schedules, caches, batches, streams, forms, optimiser."""

from contextlib import nullcontext

import numpy as np
import pytest
import tiny_models as tiny
from gguf_bytes import Q4_1
from one_driver import one_driver

from cpu_ref import dyadic_q16 as reference
from harness import device_session, devices, kernels, passes, profiles
from harness.device_session import Session
from harness.errors import DeviceFailed

MODULE = passes.find(profiles.find("dyadic-q16"))
SEQUENCES = ([1, 39, 0, 39, 17, 5], [7, 7, 30, 2, 11, 28])

WAYS = [
    ("cuda_host:g++", "split_k", "int64", True),
    ("opencl:intel-cpu", "forward", "base", True),
    ("opencl:intel-cpu", "forward", "fast", True),
    ("opencl:intel-cpu", "tiled_shuffled", "base", True),
    ("opencl:pocl", "reverse", "base", False),
    ("vulkan:lvp", "tree", "base", True),
]
"""Device, schedule, form, whether its compiler optimises; those of drivers that are installed, g++ always."""


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """These devices disturb no measurement: no other samebits is waited for."""
    monkeypatch.setattr(device_session, "device_lock", lambda say: nullcontext())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Q4_1 with biases, pairs of heads by halves."""
    there = tiny.tensors(Q4_1, biases=True)
    return MODULE.load(str(tiny.write(tmp_path_factory.mktemp("models") / "qwen2.gguf", "qwen2", None, there)))


@pytest.fixture(scope="module")
def right(model):
    """Of each sequence the reference's rows of what is told; a shorter one has the first of them, for attention is causal."""
    made = [reference.run(reference.load(str(model.path)), tokens) for tokens in SEQUENCES]
    return [{name: np.array(v).reshape(dims) for name, dims, v in stages if told(name)} for stages in made]


def told(stage):
    return stage in ("embed", "hidden", "logits", "greedy") or stage.endswith((".x", ".k_rope"))


def cut(whole, tokens, pieces):
    """A sequence fed piece by piece over one cache."""
    cache, made, at = MODULE.Cache(), {}, 0
    for size in pieces:
        for name, values in whole.run(tokens[at : at + size], cache, told):
            made.setdefault(name, []).append(values)
        at += size
    return {name: np.concatenate(values) for name, values in made.items()}


def same(made, rows):
    assert list(made) == list(rows)
    for name, values in made.items():
        assert np.array_equal(values, rows[name][: len(values)]), name


NATIVE = [("opencl:intel-cpu", "split_k"), ("vulkan:lvp", "forward")]
"""Device and schedule of native 64-bit integers, beside g++ above; each of these devices has a way with limbs there."""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
def test_a_pass_has_the_reference_s_bits_however_it_is_cut(way, model, right):
    """Whole, token by token, in uneven pieces, in batches of 2 and 8 of unequal length, weights resident or sent."""
    name, schedule, variant, optimised = way
    found = one_driver(*name.split(":"))
    if found is None:
        assert name != "cuda_host:g++"
        return
    device = found if optimised else devices.without_optimiser(found)
    with Session(device, schedule, variant=variant) as session:
        for resident in (1 << 20, 700):
            whole = MODULE.OnDevice(session, model, resident)
            same(cut(whole, SEQUENCES[0], [6]), right[0])
        same(cut(whole, SEQUENCES[0], [1] * 6), right[0])
        same(cut(whole, SEQUENCES[1], [3, 1, 2]), right[1])
        for lengths in ((6, 2), (1, 6, 3, 2, 5, 4, 1, 6)):
            batch = [(SEQUENCES[i % 2][:length], MODULE.Cache()) for i, length in enumerate(lengths)]
            made = dict(whole.batch(batch, told))
            for i, length in enumerate(lengths):
                one = {stage: values[i] for stage, values in made.items()}
                assert all(len(values) == length for values in one.values())
                same(one, right[i % 2])


@pytest.mark.parametrize("way", NATIVE, ids="-".join)
def test_native_64_bit_integers_have_the_bits_of_limbs(way, model, right):
    """All kernels of the pass but the one that only copies, whole and over a cache."""
    name, schedule = way
    device = one_driver(*name.split(":"))
    if device is None:
        return
    with Session(device, schedule, variant="int64") as session:
        forms = {kernel: session.entry(kernel).variant for kernel in kernels.WHOLE["pass_dyadic_q16"].whole.kernels}
        assert [kernel for kernel, form in forms.items() if form != "int64"] == ["kv_append"]
        whole = MODULE.OnDevice(session, model)
        same(cut(whole, SEQUENCES[0], [6]), right[0])
        same(cut(whole, SEQUENCES[1], [3, 1, 2]), right[1])


def test_a_device_without_native_64_bit_integers_says_so_and_takes_no_other_form(model):
    """OpenGL has none in WGSL: the first kernel of the pass is unsupported."""
    device = one_driver("opengl", "llvmpipe")
    if device is None:
        return
    with (
        Session(device, variant="int64") as session,
        pytest.raises(DeviceFailed, match=r"embed: unsupported: .*shader-int64") as e,
    ):
        list(MODULE.OnDevice(session, model).run(SEQUENCES[0]))
    assert e.value.verdict == "unsupported"
