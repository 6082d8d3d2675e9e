"""Tensors that stay on a device: one kernel on them, and every fault that a mock device can have."""

from contextlib import nullcontext

import numpy as np
import pytest
from mock_gates import mock_device

from harness import device_session
from harness.device_session import Session, Span
from harness.errors import DeviceFailed, Incomplete
from harness.lane import Budgets
from harness.model import Constant, Tape


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """These devices disturb no measurement: no other samebits is waited for."""
    monkeypatch.setattr(device_session, "device_lock", lambda say: nullcontext())


def submitted(session):
    """One kernel on tensors that stay, and the right answer."""
    a = np.arange(17 * 23, dtype=np.int32).reshape(17, 23)
    b = np.arange(23 * 19, dtype=np.int32).reshape(23, 19) - 7
    tape = Tape(session)
    for name, values in (("left", a), ("right", b)):
        tape.constant(name, Constant(values.nbytes, lambda values=values: values))
    kernel = session.entry("gemm_i32")
    tape.step(
        "l3.product",
        "gemm_i32",
        {"m": 17, "n": 19, "k": 23},
        {"a": "left", "b": "right", kernel.output.name: "product"},
    )
    tape.fetch("l3.product", "product", (17, 19), "i32")
    return tape.submit(receipts=True)["l3.product"], a @ b


def test_a_session_computes_on_tensors_that_stay():
    """Twice, each time with tensors of its own."""
    with Session(mock_device("match"), "reverse") as session:
        for _ in range(2):
            found, right = submitted(session)
            assert found.tolist() == right.tolist()


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("write-past-end/all", "l3.product: mismatch: wrote past the end"),
        ("wrong-nonce/all", "gemm_i32: the compiled nonce .* did not come back"),
        ("sanitizer/all", "l3.product: sanitizer: mock: a planted report"),
        ("compile-error/all", "l3.product: compile-error: kernel:1:1: error: planted"),
        ("launch-error/all", "l3.product: launch-error: out of resources"),
        ("device-lost/all", "l3.product: device-lost: lost"),
        ("unsupported/all", "l3.product: unsupported: mock-feature"),
        ("crash/all", "l3.product: .*killed by SIGSEGV"),
        ("hang-run/all", "l3.product: no answer for 2 s"),
    ],
)
def test_what_a_device_does_wrong_with_tensors_that_stay_is_told_by_layer_and_operation(behaviour, said):
    """The step that was queued last; the process's exit code is 1, but for a feature that is lacking."""
    device = mock_device(behaviour)
    budgets = Budgets(run=2.0) if behaviour.startswith("hang") else Budgets()
    with Session(device, "reverse", budgets) as session, pytest.raises(DeviceFailed, match=said) as caught:
        submitted(session)
    assert (
        caught.value.exit_code == (2 if behaviour.startswith("unsupported") else 1)
        and "\n" not in str(caught.value)
        and str(caught.value).startswith("mock:")
    )


def test_a_model_file_that_is_gone_is_no_fault_of_the_device(tmp_path):
    """The run is incomplete, and the file is named."""
    with Session(mock_device("match")) as session, pytest.raises(Incomplete, match=r"No such file.*gone\.gguf"):
        tape = Tape(session)
        tape.constant("w", Constant(8, Span(tmp_path / "gone.gguf", 0, 8)))
        tape.submit()
