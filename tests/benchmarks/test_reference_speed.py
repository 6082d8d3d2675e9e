"""How long exactness takes. Normal runs skip this: `pytest tests/benchmarks --benchmark-only`."""

import os

import numpy as np
import pytest

from cpu_ref.gemm import gemm_i32
from cpu_ref.second.gemm import gemm_i32 as second_gemm_i32

N = 1024


@pytest.fixture(scope="module")
def matrices():
    """Two full-range int32 matrices as bytes."""
    return os.urandom(4 * N * N), os.urandom(4 * N * N)


def test_the_reference_of_1024_cubed_takes_under_3_seconds(benchmark, matrices):
    """Bytes to bytes, conversions included, on two cores."""
    benchmark.pedantic(gemm_i32, (*matrices, N, N, N), rounds=3)
    assert benchmark.stats.stats.min < 3


def test_the_second_of_1024_cubed_takes_under_6_seconds(benchmark, matrices):
    """One core."""
    a, b = (np.frombuffer(m, "<i4").reshape(N, N) for m in matrices)
    benchmark.pedantic(second_gemm_i32, (a, b), rounds=3)
    assert benchmark.stats.stats.min < 6
