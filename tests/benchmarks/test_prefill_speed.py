"""How fast a pass is whose tensors stay on the device. Normal runs skip this: `pytest tests/benchmarks --benchmark-only -s`."""

import time

import numpy as np
import pytest

from harness import devices, models, passes, profiles
from harness.device_session import Session

MODULE = passes.find(profiles.find("dyadic-q16"))
TOKENS = [504, 1108, 282, 15328] * 7
LLAMA_CPP = 386.0
"""Tokens a second of llama.cpp's prefill of so many on two threads of the machine where this was written."""

PART = 0.05
MACS = 134_500_000
"""Multiply-adds of SmolLM2-135M's matrices a token."""


@pytest.fixture(scope="module")
def device():
    """Intel's OpenCL runtime on the processor."""
    return devices.select(devices.discover(["opencl"]), ["opencl:intel-cpu"])[0]


def blas_gmacs(n=1024):
    """10^9 multiply-adds a second of NumPy's float64 product, the yardstick that travels."""
    a, b = np.ones((2, n, n))
    np.dot(a, b)
    begin = time.perf_counter()
    np.dot(a, b)
    return n**3 / (time.perf_counter() - begin) / 1e9


def test_a_prefill_of_28_tokens_is_at_least_a_twentieth_of_llama_cpp(benchmark, device):
    """SmolLM2, base kernels, weights there, logits of all rows; a first pass has compiled everything."""
    model = MODULE.load(str(models.verified("smollm2-135m-q4_1")))
    with Session(device) as session:
        whole = MODULE.OnDevice(session, model)

        def prefill():
            cache = MODULE.Cache(len(TOKENS))
            found = dict(whole.run(TOKENS, cache, lambda stage: stage == "logits"))
            whole.release(cache)
            return found

        prefill()
        benchmark.pedantic(prefill, rounds=5)
    blas = blas_gmacs()  # last, for its idle threads go on spinning
    seconds = benchmark.stats.stats.min
    speed = len(TOKENS) / seconds
    print(f"{speed:.1f} tokens/s, {speed * MACS / 1e9 / blas:.3f} of float64 BLAS")
    assert speed >= PART * LLAMA_CPP
