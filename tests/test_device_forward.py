"""Forward passes of a profile on a device: nel-mini on a host compiler, and every fault that a mock device can have."""

import functools
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
import tiny_models as tiny
from mock_gates import mock_device
from one_driver import one_driver
from patience import MINUTES

from cpu_ref import nel_mini_w8a8 as reference
from harness import device_session, devices, memory, passes, profiles, runners
from harness.device_session import Constant, Session
from harness.errors import DeviceFailed, InputRefused, NoDevice, UsageError
from harness.lane import Budgets

PROFILE = profiles.find("nel-mini-w8a8")


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """These devices disturb no measurement: no other samebits is waited for."""
    monkeypatch.setattr(device_session, "device_lock", lambda say: nullcontext())


@pytest.fixture(scope="module")
def host():
    """The CUDA sources on g++, which CI installs."""
    return one_driver("cuda_host", "g++")


def runner(device, source, schedule="forward"):
    module = passes.find(PROFILE)
    return runners.DeviceRunner(device, PROFILE, module, source, schedule)


def stages(made):
    return {name: (tuple(dims), list(values)) for name, dims, values in made}


@pytest.mark.parametrize(
    ("source", "schedule"),
    [("nel-mini:stress", "tree"), ("nel-mini:stress", "split_k"), ("nel-mini:published", "tiled_shuffled")],
)
def test_a_device_makes_every_stage_as_the_reference_does(host, source, schedule, tmp_path):
    """All 44 stages, their order, shapes, digests and bytes, under an order of sums that is not the reference's."""
    tokens = [9, 60, 3, 3, 41]
    right = stages(reference.run(reference.load(source), tokens))
    seen = []
    finished = runner(host, source, schedule).forward(tokens, tmp_path, seen.append)
    assert [s.name for s in seen] == list(right)
    for stage in seen:
        dims, values = right[stage.name]
        assert (stage.dims, stage.values().ravel().tolist()) == (dims, values), stage.name
    assert finished.greedy == right["greedy"][1] and finished.model_sha256 is None


def test_a_device_generates_the_published_tokens_over_its_cache(host):
    """The first two new tokens of the document."""
    told = []
    finished = runner(host, "nel-mini:published").generate([1, 2, 3, 4], 2, told.append)
    assert finished.greedy == told == [22, 51]


def test_the_pass_over_a_cache_has_the_stages_of_the_whole_one():
    """On exact kernels: the last of 7 tokens, fed after 6, as prefill makes it."""
    from cpu_ref.nel_mini_kernels import OPERATIONS

    def exact(kernel, dims, **inputs):
        op = OPERATIONS[kernel]
        flat = {name: np.asarray(v).ravel().tolist() for name, v in inputs.items()}
        shape = [e if isinstance(e, int) else dims[e] for e in op.output]
        return np.array(op.compute(dict(dims), flat)).reshape(shape)

    module, tokens = passes.find(PROFILE), [1, 2, 60, 60, 5, 17, 63]
    model, cache = module.load("nel-mini:stress"), module.Cache()
    whole = dict(module.run(exact, model, tokens))
    assert {n: v.ravel().tolist() for n, v in whole.items()} == {n: v for n, _, v in reference.run(model, tokens)}
    list(module.run(exact, model, tokens[:6], cache))
    last = dict(module.run(exact, model, tokens[6:], cache))
    assert len(cache) == 7
    for name, values in last.items():
        assert np.array_equal(values, whole[name][:, -1:] if values.ndim == 3 else whole[name][-1:]), name


@pytest.mark.parametrize(
    ("tokens", "said"), [([64], "token 0 is 64"), ([], "no tokens"), ([0] * 65, "65 tokens; the context")]
)
def test_tokens_are_refused_as_the_reference_refuses_them(tokens, said):
    """Before any kernel runs, with the device's name."""
    with pytest.raises(InputRefused, match=f"mock:match:0: {said}"):
        runner(mock_device("match"), "nel-mini:stress").forward(tokens, None, print)


def test_an_unknown_model_and_a_generation_past_the_context_are_refused():
    """One line each."""
    device = mock_device("match")
    with pytest.raises(InputRefused, match="no model 'nel-mini:x'"):
        runner(device, "nel-mini:x").forward([1], None, print)
    with pytest.raises(InputRefused, match="60 tokens and 5 new ones: this model's context holds 64"):
        runner(device, "nel-mini:stress").generate([0] * 60, 5, print)


GEMM = ("gemm_i32", {"m": 17, "n": 19, "k": 23})


def product(session):
    a = np.arange(17 * 23, dtype=np.int32).reshape(17, 23)
    b = np.arange(23 * 19, dtype=np.int32).reshape(23, 19) - 7
    return session.compute(*GEMM, a=a, b=b), a @ b


def test_a_session_computes_a_kernel_on_arrays():
    """Twice, on one worker."""
    with Session(mock_device("match"), "reverse") as session:
        for _ in range(2):
            found, right = product(session)
            assert found.tolist() == right.tolist()


def test_constants_stay_on_the_device_as_long_as_their_shape_and_there_is_room():
    """What is given for them again is not sent: the device still has the first. Another shape, or no room: it is."""
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(3, 4)
    shape, constant = {"m": 2, "n": 4, "k": 3}, Constant("b", ("b",))
    device = mock_device("match")
    with Session(device, "split_k", resident=1000) as session:
        assert np.array_equal(session.compute("gemm_i32", shape, None, constant, a=a, b=b), a @ b)
        assert np.array_equal(session.compute("gemm_i32", shape, None, constant, a=a + 1, b=b * 0), (a + 1) @ b)
        other = Constant("c", ("b",))
        wide = np.ones((3, 400), np.int32)
        for factor in (1, 2):
            made = session.compute("gemm_i32", shape | {"n": 400}, None, other, a=a, b=wide * factor)
            assert np.array_equal(made, a @ wide * factor)
        assert np.array_equal(
            session.compute("gemm_i32", shape | {"m": 1}, None, constant, a=a[1:], b=b * 2), a[1:] @ b * 2
        )
        assert np.array_equal(session.compute("gemm_i32", shape, None, constant, a=a, b=b * 3), a @ b * 3)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("nondeterministic/all", "gemm_i32: nondeterministic: two runs differ"),
        ("unwritten/all", "gemm_i32: unwritten: 1 of 323 elements never written"),
        ("write-past-end/all", "gemm_i32: mismatch: wrote past the end"),
        ("wrong-nonce/all", "gemm_i32: the compiled nonce .* did not come back"),
        ("sanitizer/all", "gemm_i32: sanitizer: mock: a planted report"),
        ("compile-error/all", "gemm_i32: compile-error: kernel:1:1: error: planted"),
        ("launch-error/all", "gemm_i32: launch-error: out of resources"),
        ("device-lost/all", "gemm_i32: device-lost: lost"),
        ("unsupported/all", "gemm_i32: unsupported: mock-feature"),
        ("crash/all", "gemm_i32: .*killed by SIGSEGV"),
        ("hang-run/all", "gemm_i32: no answer for 2 s"),
    ],
)
def test_what_a_device_does_wrong_ends_the_pass_with_one_line(behaviour, said):
    """Which device, which kernel, what happened; the process's exit code is 1, but for a feature that is lacking."""
    device = mock_device(behaviour)
    budgets = Budgets(run=2.0) if behaviour.startswith("hang") else Budgets()
    with Session(device, "reverse", budgets) as session, pytest.raises(DeviceFailed, match=said) as caught:
        product(session)
    assert (
        caught.value.exit_code == (2 if behaviour.startswith("unsupported") else 1)
        and "\n" not in str(caught.value)
        and str(caught.value).startswith("mock:")
    )


def test_a_device_that_does_not_open_is_named(monkeypatch):
    """A driver that gives another device than the one that was listed."""
    device = mock_device("match")
    monkeypatch.setattr(device_session.devices, "is_of", lambda device, report: False)
    with (
        pytest.raises(DeviceFailed, match="mock:match:0: opening it: the driver opened another device"),
        Session(device),
    ):
        pass


def test_device_selectors_stand_beside_reference_and_second(monkeypatch):
    """Reference and second first, in the order given, then devices."""
    monkeypatch.setenv("SAMEBITS_MOCK", "match")
    monkeypatch.setattr(runners.devices, "discover", functools.partial(devices.discover, ["mock"], MINUTES))
    found = runners.runners(["mock:match", "second", "reference"], PROFILE, "nel-mini:stress", "tree", tokens=[1])
    assert [r.id for r in found] == ["second", "reference", "mock:match:0"]
    assert found[2].schedule == "tree"
    with pytest.raises(NoDevice, match="no device matches 'other'"):
        runners.runners(["other"], PROFILE, "nel-mini:stress", None, tokens=[1])


@pytest.mark.parametrize(
    ("selectors", "said"),
    [
        (["second", "second"], "--device second is given twice; name each device once"),
        (["mock", "mock"], "--device mock is given twice; name each device once"),
        (["mock:match", "mock:match:0"], "--device mock:match:0 names mock:match:0, and mock:match does already"),
    ],
)
def test_a_device_that_is_named_twice_is_refused(monkeypatch, selectors, said):
    """Its own pass would be what it is held to."""
    monkeypatch.setenv("SAMEBITS_MOCK", "match")
    monkeypatch.setattr(runners.devices, "discover", functools.partial(devices.discover, ["mock"], MINUTES))
    with pytest.raises(UsageError, match=said):
        runners.runners(selectors, PROFILE, "nel-mini:stress", None, tokens=[1])


def test_memory_is_estimated_before_anything_runs(host):
    """Weights, activations, cache and the largest buffer, which grow with tokens and positions."""
    model = runner(host, "nel-mini:stress")
    short, long, longer = model.prepare([1]), model.prepare([1] * 40), model.prepare([1], 20)
    assert short.weights == long.weights == longer.weights > 4 * 64 * 32
    assert short.activations < long.activations and short.cache < longer.cache < long.cache
    assert short.total == short.weights + short.activations + short.cache
    assert f"weights {short.weights / 2**10:.1f} KiB" in str(short)


def test_the_estimate_of_a_model_file_counts_its_tensors(host, tmp_path):
    """All bytes of the matrices, the profile's tables, and 16 bytes a cached element of keys and values together."""
    path = tiny.write(tmp_path / "tiny.gguf")
    profile = profiles.find("dyadic-q16")
    needed = runners.DeviceRunner(host, profile, passes.find(profile), str(path), "forward").prepare([1, 2], 3)
    in_file = sum(len(t.data) for t in tiny.tensors().values())
    tables = 4 * (5632 + 256 + 32769)
    assert in_file < needed.weights - tables < 2 * in_file
    assert needed.cache == 16 * tiny.LAYERS * (2 + 2) * tiny.KV_HEADS * tiny.HEAD_WIDTH
    assert max(len(t.data) for t in tiny.tensors().values()) <= needed.largest < needed.weights


@pytest.mark.parametrize(
    ("limits", "resident", "said"),
    [
        (
            {"global_mem_size": 99 << 20},
            1 << 40,
            r"dev: too large: the pass needs 103\.0 MiB, the device has 99\.0 MiB; ",
        ),
        (
            {"totalGlobalMem": 1 << 20},
            0,
            r"dev: too large: the pass needs 13\.0 MiB, the device has 1\.0 MiB; give fewer",
        ),
        (
            {"max_mem_alloc_size": 9 << 20},
            0,
            r"dev: too large: one buffer of the pass has 10\.0 MiB, the device takes 9\.0",
        ),
        ({"max-buffer-size": 1 << 30, "max-storage-buffer-binding-size": 9 << 20}, 0, "one buffer of the pass has"),
    ],
)
def test_what_is_too_large_for_a_device_is_one_line(limits, resident, said):
    """Its memory, and its largest buffer; what need not stay there is not counted."""
    needed = memory.Memory(weights=100 << 20, activations=2 << 20, cache=1 << 20, largest=10 << 20)
    small = devices.Device("dev", "opencl", "dev", limits=limits)
    with pytest.raises(InputRefused, match=said) as caught:
        memory.check(small, needed, resident)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    memory.check(devices.Device("dev", "opencl", "dev", limits=dict.fromkeys(limits, 200 << 20)), needed, resident)


def test_a_model_that_is_too_large_never_opens_the_device(host, monkeypatch):
    """It is said before the session begins."""
    small = msgspec.structs.replace(host, limits={"global_mem_size": 1000})
    monkeypatch.setattr(runners, "Session", None)
    with pytest.raises(InputRefused, match="too large: the pass needs"):
        runner(small, "nel-mini:stress").forward([1], None, print)


def test_a_device_that_only_compiles_is_refused(monkeypatch):
    """It would leave nothing to compare."""
    monkeypatch.setenv("SAMEBITS_MOCK", "compile-only")
    monkeypatch.setattr(runners.devices, "discover", functools.partial(devices.discover, ["mock"], MINUTES))
    with pytest.raises(UsageError, match="compiles kernels and runs none"):
        runners.runners(["mock"], PROFILE, "nel-mini:stress", None, tokens=[1])


@pytest.mark.parametrize(("tokens", "count", "said"), [([999_999], 0, "token"), ([1] * 60, 10, "context holds 64")])
def test_tokens_are_refused_before_devices_are_looked_for(monkeypatch, tokens, count, said):
    """Discovery takes seconds, and a device need not be there for it."""
    monkeypatch.setattr(runners.devices, "discover", None)
    with pytest.raises(InputRefused, match=said):
        runners.runners(["mock"], PROFILE, "nel-mini:stress", None, tokens=tokens, count=count)
