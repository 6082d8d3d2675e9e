"""The f32 control: no right answer, and no way to fail."""

import numpy as np
import pytest

from harness import kernels, presets
from harness.cases import parse_case
from harness.goldens import of_preset
from harness.selections import Selection
from harness.tasks import tasks
from harness.verdicts import observe
from harness.worker import GUARD_BYTES


def test_the_control_is_in_every_preset_and_has_neither_checks_nor_goldens() -> None:
    """No right answer, so no self-test and no known-bad twin; and nothing for the reference to compute."""
    for preset in presets.VERSION:
        found = [c for c in presets.cases(preset) if c.kernel == "gemm_f32"]
        assert found and not set(found) & set(of_preset(preset))
    todo = tasks([Selection(c) for c in presets.cases("tiny") if c.kernel == "gemm_f32"], "opencl")
    assert {task.role for task in todo} == {"case"}


def test_the_control_s_data_rounds_differently_in_each_order() -> None:
    """Ascending and descending float32 sums differ in most outputs, and nothing overflows or is subnormal."""
    kernel = kernels.base("gemm_f32")
    tensors = kernel.generate(parse_case("gemm_f32;m=5;n=18;k=37;dist=magnitudes;seed=0"))
    a, b = tensors["a"], tensors["b"]
    assert a.dtype == b.dtype == np.float32
    up, down = np.zeros((5, 18), np.float32), np.zeros((5, 18), np.float32)
    for k in range(37):
        up += a[:, k, None] * b[k]
        down += a[:, 36 - k, None] * b[36 - k]
    assert np.isfinite(up).all() and (up != down).mean() > 0.5
    assert np.abs(a[a != 0]).min() > 1e-12


@pytest.mark.parametrize(("second_run", "detail"), [(b"\0\0\x80\x3f", None), (b"\0\0\0\x40", "two runs differ")])
def test_what_the_control_says_is_informational_whatever_its_runs_say(second_run: bytes, detail: str | None) -> None:
    """Its digest is that of the first run; two runs that differ are told, and no fault."""
    dumps = (b"\0\0\x80\x3f" + GUARD_BYTES, second_run + GUARD_BYTES)
    seen = observe(dumps, "f32", (1, 1))
    assert (seen.verdict, seen.detail) == ("informational", detail) and seen.digest
    assert observe((dumps[0][:-4], dumps[1]), "f32", (1, 1)).verdict == "launch-error"
