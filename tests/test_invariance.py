"""One pattern of bits whatever computes a pass, and however it is cut: schedules, forms, streams, caches, batches, optimiser.

The suite has every schedule, every cut, and streams in each cut, on three stacks. SAMEBITS_EVERY_WAY=1 does the whole product,
on four stacks and both architectures: minutes.
"""

import os
from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import tiny_models as tiny
from gguf_bytes import Q4_1, Q8_0
from one_driver import one_driver

from cpu_ref import dyadic_q16 as reference
from harness import device_session, devices, kernels, passes, profiles
from harness.device_session import Session
from harness.errors import DeviceFailed
from harness.schedules import NAMES

EVERY = bool(os.environ.get("SAMEBITS_EVERY_WAY"))
PROFILE = profiles.find("dyadic-q16")
MODULE = passes.find(PROFILE)
OPERATIONS = {kernel for there in PROFILE.operations.values() for kernel in there}
FORMS = list(dict.fromkeys(k.variant for k in kernels.KERNELS if k.name in OPERATIONS))
SEQUENCES = ([1, 39, 0, 17], [7, 7, 30])

RESIDENT = (0, 3000, 1 << 20)
"""Bytes of weights that stay on the device: none, some matrices, all."""

CUTS = {
    "whole": [[(0, 4)]],
    "token by token": [[(1, 1)]] * 3,
    "uneven": [[(0, 1)], [(0, 3)]],
    "batch of 2": [[(0, 3), (1, 1)], [(0, 1), (1, 2)]],
    "batch of 8": [[(0, 4), (1, 3), (0, 1), (1, 2), (0, 3), (1, 1), (0, 2), (1, 3)]],
}
"""Passes one after another: of each sequence that shares one, its number and how many of its next tokens."""

STACKS = ("cuda_host:g++", "opencl:intel-cpu", "vulkan:lvp", "opencl:pocl")
WAYS = [
    ("cuda_host:g++", "llama", True, NAMES),
    ("opencl:intel-cpu", "qwen2", False, NAMES),
    ("vulkan:lvp", "qwen2", True, NAMES),
    ("opencl:intel-cpu", "llama", True, ("tree",)),
    ("opencl:pocl", "llama", False, ("reverse",)),
]
"""Device, architecture, whether its compiler optimises, schedules. Of drivers that are installed, g++ always."""

if EVERY:
    WAYS = [
        (device, file, optimised, NAMES)
        for device, file, optimised in product(STACKS, ("llama", "qwen2"), (True, False))
        if optimised or device != "vulkan:lvp"  # which has no such switch
    ]


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """These devices disturb no measurement: no other samebits is waited for."""
    monkeypatch.setattr(device_session, "device_lock", lambda say: nullcontext())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Q8_0, tied, pairs of neighbours; and Q4_1 with biases, pairs by halves. Each with the reference's rows of what is told."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, there in {"llama": tiny.tensors(Q8_0, tied=True), "qwen2": tiny.tensors(Q4_1, biases=True)}.items():
        path = str(tiny.write(folder / f"{name}.gguf", name, None, there))
        made = [reference.run(reference.load(path), tokens) for tokens in SEQUENCES]
        right = [{stage: np.array(v).reshape(dims) for stage, dims, v in stages if told(stage)} for stages in made]
        found[name] = MODULE.load(path), right
    return found


def told(stage):
    return stage in ("embed", "hidden", "logits", "greedy") or stage.endswith((".x", ".k_rope"))


def fed(whole, cut):
    """The rows of each sequence of a cut by stage, over caches that grow, and its number."""
    caches = [MODULE.Cache() for _ in cut[0]]
    made = [{} for _ in cut[0]]
    for shares in cut:
        sequences = [
            (SEQUENCES[number][len(cache) : len(cache) + count], cache)
            for (number, count), cache in zip(shares, caches, strict=False)
        ]
        for stage, values in whole.batch(sequences, told):
            for rows, new in zip(made, values, strict=False):
                rows.setdefault(stage, []).append(new)
    for cache in caches:
        whole.release(cache)
    joined = [{stage: np.concatenate(parts) for stage, parts in rows.items()} for rows in made]
    return zip((number for number, _ in cut[0]), (len(cache) for cache in caches), joined, strict=True)


def plan(schedules):
    """Schedule, form, what stays, cut. In the suite two cuts a schedule, each cut once streamed; the other forms under one."""
    if EVERY:
        return list(product(schedules, FORMS, RESIDENT, CUTS))
    cuts = list(CUTS)
    turns = [(s, "base", 0, cuts[i]) for i, s in enumerate(schedules)]
    turns += [(s, "base", RESIDENT[1 + i % 2], cuts[i - 1]) for i, s in enumerate(schedules)]
    return turns + [("split_k", form, 0, "batch of 2") for form in FORMS if form != "base" and "split_k" in schedules]


@pytest.mark.parametrize(("name", "file", "optimised", "schedules"), WAYS)
def test_a_pass_has_the_reference_s_bits_however_it_is_cut(files, name, file, optimised, schedules):
    """One open device: each cut with weights resident, in part, or sent with each layer."""
    found = one_driver(*name.split(":"))
    if found is None:
        assert name != "cuda_host:g++"
        return
    model, right = files[file]
    with Session(found if optimised else devices.without_optimiser(found)) as session:
        for session.schedule, session.variant, resident, cut in plan(schedules):
            for number, count, rows in fed(MODULE.OnDevice(session, model, resident), CUTS[cut]):
                assert list(rows) == list(right[number])
                for stage, values in rows.items():
                    place = (session.schedule, session.variant, resident, cut, stage)
                    assert np.array_equal(values, right[number][stage][:count]), place


def test_the_suite_has_each_schedule_form_and_cut_on_three_stacks_and_each_cut_streamed_too():
    """What the ways are for; the whole product has them all."""
    assert len({device for device, _, _, schedules in WAYS if schedules == NAMES}) >= 3
    turns = plan(NAMES)
    assert {(resident > 0, cut) for _, _, resident, cut in turns} == set(product((False, True), CUTS))
    assert {(s, form) for s, form, *_ in turns} >= {*product(NAMES, ["base"]), *product(["split_k"], FORMS)}
    assert {resident for _, _, resident, _ in turns} == set(RESIDENT) and "int64" in FORMS


def test_the_form_int64_is_of_every_kernel_but_the_one_that_only_copies():
    """So a pass in it has no limbs left, whatever the language."""
    (whole,) = (entry.whole for entry in kernels.WHOLE.values())
    for language in kernels.LANGUAGES:
        forms = {name: {k.variant for k in kernels.variants(name, language)} for name in whole.kernels}
        assert [name for name, there in forms.items() if "int64" not in there] == ["kv_append"]


def test_a_device_without_native_64_bit_integers_says_so_and_takes_no_other_form(files):
    """OpenGL has none in WGSL: the first kernel of the pass is unsupported."""
    device = one_driver("opengl", "llvmpipe")
    if device is None:
        return
    with (
        Session(device, variant="int64") as session,
        pytest.raises(DeviceFailed, match=r"embed: unsupported: .*shader-int64") as e,
    ):
        list(MODULE.OnDevice(session, files["qwen2"][0]).run(SEQUENCES[0]))
    assert e.value.verdict == "unsupported"
