"""What pyopencl does not wrap of an OpenCL device, or only in part: UUID and PCI address, by KHR and vendor queries.

And which units for packed bytes it advertises.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from harness import units

UUID_KHR, PCI_KHR = 0x106A, 0x410F
BUS_NV, SLOT_NV, DOMAIN_NV = 0x4008, 0x4009, 0x400A
TOPOLOGY_AMD = 0x4037
PACKED_DOT_KHR = 0x1075
"""Numbers of clGetDeviceInfo, from `cl_ext.h`."""


def _asking(device: Any) -> Callable[[int, int], bytes | None]:
    """clGetDeviceInfo of `device`: the bytes of a parameter of that size, None where it is refused or out of reach."""
    import pyopencl as cl

    # The loader that pyopencl is linked to is reached through its extension module (not on Windows).
    query = getattr(ctypes.CDLL(cl._cl.__file__), "clGetDeviceInfo", None)
    if query is None:
        return lambda parameter, size: None
    query.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]

    def ask(parameter: int, size: int) -> bytes | None:
        data = ctypes.create_string_buffer(size)
        return data.raw if query(device.int_ptr, parameter, size, data, None) == 0 else None

    return ask


def units_of(device: Any) -> list[str]:
    """The units that the device advertises: accelerated dot products of packed bytes."""
    if "cl_khr_integer_dot_product" not in device.extensions.split():
        return []
    # Six cl_bool: signed, unsigned, mixed, then the saturating ones.
    said = _asking(device)(PACKED_DOT_KHR, 24)
    signed, unsigned = struct.unpack_from("2I", said or bytes(24))
    return [units.DOT_SIGNED] * bool(signed) + [units.DOT_UNSIGNED] * bool(unsigned)


def identify(device: Any) -> dict[str, str]:
    """UUID and PCI address as far as the device's extensions say them (keys `uuid`, `pci`)."""
    ask, extensions = _asking(device), device.extensions.split()
    found = {}
    uuid = ask(UUID_KHR, 16) if "cl_khr_device_uuid" in extensions else None
    if uuid and any(uuid):
        found["uuid"] = uuid.hex()
    if "cl_khr_pci_bus_info" in extensions and (khr := ask(PCI_KHR, 16)):
        found["pci"] = "{:04x}:{:02x}:{:02x}.{:x}".format(*struct.unpack("4I", khr))
    elif "cl_nv_device_attribute_query" in extensions and (bus := ask(BUS_NV, 4)) and (slot := ask(SLOT_NV, 4)):
        domain = ask(DOMAIN_NV, 4) or bytes(4)
        d, b, s = (int.from_bytes(raw, "little") for raw in (domain, bus, slot))
        found["pci"] = f"{d:04x}:{b:02x}:{s >> 3:02x}.{s & 7:x}"
    elif "cl_amd_device_attribute_query" in extensions and (amd := ask(TOPOLOGY_AMD, 24)) and amd[0] == 1:
        found["pci"] = f"0000:{amd[21]:02x}:{amd[22]:02x}.{amd[23]:x}"
    return found
