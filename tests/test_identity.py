"""Identities as drivers of hardware say them, on answers written by hand from the vendors' headers: no card was at hand."""

import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.backends import cuda, opencl_identity

UUID = bytes(range(16))


def said(monkeypatch: pytest.MonkeyPatch, extensions: str, answers: dict[int, bytes]) -> dict[str, str]:
    """What is made of a device's answers to clGetDeviceInfo, by parameter; one that is not there, or longer, is refused."""

    def asking(device: Any) -> Any:
        return lambda parameter, size: answer if len(answer := answers.get(parameter, b"")) == size else None

    monkeypatch.setattr(opencl_identity, "_asking", asking)
    return opencl_identity.identify(SimpleNamespace(extensions=extensions))


def test_opencl_says_uuid_and_address_by_the_khr_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cl_device_pci_bus_info_khr`: domain, bus, device, function."""
    answers = {0x106A: UUID, 0x410F: struct.pack("<4I", 1, 0xC1, 2, 3)}
    found = said(monkeypatch, "cl_khr_device_uuid cl_khr_pci_bus_info", answers)
    assert found == {"uuid": UUID.hex(), "pci": "0001:c1:02.3"}
    assert said(monkeypatch, "cl_khr_fp64", answers) == {}
    assert said(monkeypatch, "cl_khr_device_uuid", {0x106A: bytes(16)}) == {}


def test_opencl_says_the_address_by_nvidia_s_and_amd_s_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot id holds device and function; AMD's topology is a type, 17 unused bytes, bus, device, function."""
    nvidia = {0x4008: struct.pack("<I", 0x65), 0x4009: struct.pack("<I", 2 << 3 | 1)}
    assert said(monkeypatch, "cl_nv_device_attribute_query", nvidia) == {"pci": "0000:65:02.1"}
    nvidia[0x400A] = struct.pack("<I", 2)
    assert said(monkeypatch, "cl_nv_device_attribute_query", nvidia) == {"pci": "0002:65:02.1"}
    amd = struct.pack("<I17s3B", 1, b"", 0xE3, 4, 5)
    assert said(monkeypatch, "cl_amd_device_attribute_query", {0x4037: amd}) == {"pci": "0000:e3:04.5"}
    assert said(monkeypatch, "cl_amd_device_attribute_query", {0x4037: bytes(24)}) == {}


@pytest.mark.parametrize(
    ("uuid", "smi", "told"),
    [
        (UUID[1:] + b"\1", "", (UUID[1:] + b"\1").hex()),
        (b"\x12", "GPU-00112233-4455-6677-8899-aabbccddeeff", "00112233445566778899aabbccddeeff"),
        (b"", "", None),
    ],
)
def test_cuda_says_both_by_its_attributes_and_keeps_what_it_said(
    monkeypatch: pytest.MonkeyPatch, uuid: bytes, smi: str, told: str | None
) -> None:
    """CuPy cuts a UUID at a zero byte; then nvidia-smi tells it."""
    runtime = SimpleNamespace(
        is_hip=False,
        getDeviceProperties=lambda index: {
            "name": b"NVIDIA H200",
            "uuid": uuid,
            "major": 9,
            "minor": 0,
            "pciBusID": 0x65,
        },
        deviceGetPCIBusId=lambda index: "0000:65:00.0",
        driverGetVersion=lambda: 13000,
    )
    inner = SimpleNamespace(runtime=runtime, nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)))
    fake = SimpleNamespace(__version__="14.0", cuda=inner)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", inner)
    monkeypatch.setattr(cuda, "_management", lambda pci: {"uuid": smi, "driver_version": "580.65.06"} if smi else {})
    report = cuda._report(0)
    assert (report.uuid, report.pci) == (told, "0000:65:00.0")
    assert report.raw["pciBusID"] == 0x65 and report.kind == "hardware"
