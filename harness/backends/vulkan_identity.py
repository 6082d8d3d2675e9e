"""What wgpu does not tell of a Vulkan device: UUID, PCI address, driver name and version, by a native query,
and which units for packed bytes it advertises.

Structures and numbers are those of the Vulkan 1.3 registry (`vulkan_core.h`).
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from harness import units
from harness.backends.vulkan_icds import LOADER
from harness.errors import TooOld

DEVICE_TYPES = ("other", "integrated GPU", "discrete GPU", "virtual GPU", "CPU")
"""VkPhysicalDeviceType, by its numbers."""

VULKAN_1_1 = 1 << 22 | 1 << 12
VULKAN_1_2 = 1 << 22 | 2 << 12
VULKAN_1_3 = 1 << 22 | 3 << 12


@dataclass(frozen=True)
class Identity:
    """A physical device as the driver itself names it. `driver` is e.g. `llvmpipe Mesa 22.3.6 (LLVM 15.0.6)`.

    `raw`: what else it says of itself, as it says it.
    """

    name: str
    vendor_id: int
    device_id: int
    driver: str
    api: str
    uuid: str | None
    pci: str | None
    units: tuple[str, ...] = ()
    raw: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        """What an adapter of wgpu tells too."""
        return self.name, self.vendor_id, self.device_id


class _Application(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("name", c_char_p),
        ("version", c_uint32),
        ("engine", c_char_p),
        ("engine_version", c_uint32),
        ("api_version", c_uint32),
    )


class _InstanceInfo(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("application", POINTER(_Application)),
        ("layer_count", c_uint32),
        ("layers", c_void_p),
        ("extension_count", c_uint32),
        ("extensions", c_void_p),
    )


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("api_version", c_uint32),
        ("driver_version", c_uint32),
        ("vendor_id", c_uint32),
        ("device_id", c_uint32),
        ("device_type", c_int32),
        ("name", c_char * 256),
        ("cache_uuid", c_uint8 * 16),
        ("limits_and_sparse", c_uint64 * 66),
    )


class _Id(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("device_uuid", c_uint8 * 16),
        ("driver_uuid", c_uint8 * 16),
        ("luid", c_uint8 * 8),
        ("node_mask", c_uint32),
        ("luid_valid", c_uint32),
    )


class _Driver(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("driver_id", c_int32),
        ("name", c_char * 256),
        ("info", c_char * 256),
        ("conformance", c_uint8 * 4),
    )


class _Pci(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
    )


class _DotProduct(ctypes.Structure):
    """30 flags, three a kind of operands: unsigned, signed, mixed. Packed bytes are the second kind."""

    _fields_ = (
        ("type", c_int32),
        ("next", c_void_p),
        ("of_vectors", c_uint32 * 3),
        ("packed_unsigned", c_uint32),
        ("packed_signed", c_uint32),
        ("others", c_uint32 * 25),
    )


class _Extension(ctypes.Structure):
    _fields_ = (("name", c_char * 256), ("version", c_uint32))


def query() -> list[Identity]:
    """The physical devices of the visible driver, in its order; [] where there is none.

    Raises OSError where the loader is missing, TooOld where it is of Vulkan 1.0.
    """
    vk = ctypes.CDLL(LOADER)
    if not hasattr(vk, "vkGetPhysicalDeviceProperties2"):
        raise TooOld("the Vulkan loader", "1.1", "1.0", "update it (Debian and Ubuntu: apt install libvulkan1)")
    application = _Application(type=0, api_version=VULKAN_1_1)
    info = _InstanceInfo(type=1, application=ctypes.pointer(application))
    instance = c_void_p()
    if vk.vkCreateInstance(byref(info), None, byref(instance)):
        return []
    try:
        count = c_uint32()
        if vk.vkEnumeratePhysicalDevices(instance, byref(count), None) or not count.value:
            return []
        devices = (c_void_p * count.value)()
        vk.vkEnumeratePhysicalDevices(instance, byref(count), devices)
        return [_identity(vk, c_void_p(device)) for device in devices[: count.value]]
    finally:
        vk.vkDestroyInstance(instance, None)


def _identity(vk: Any, device: c_void_p) -> Identity:
    count = c_uint32()
    vk.vkEnumerateDeviceExtensionProperties(device, None, byref(count), None)
    extensions = (_Extension * count.value)()
    vk.vkEnumerateDeviceExtensionProperties(device, None, byref(count), extensions)
    names = {e.name for e in extensions}
    plain = _Properties()
    vk.vkGetPhysicalDeviceProperties(device, c_void_p(ctypes.addressof(plain) + _Properties.api_version.offset))
    properties, ids = _Properties(type=1000059001), _Id(type=1000071004)
    driver, pci = _Driver(type=1000196000), _Pci(type=1000212000)
    dot = _DotProduct(type=1000280001)
    chain: list[ctypes.Structure] = [properties, ids]
    if plain.api_version >= VULKAN_1_2 or b"VK_KHR_driver_properties" in names:
        chain.append(driver)
    if b"VK_EXT_pci_bus_info" in names:
        chain.append(pci)
    if plain.api_version >= VULKAN_1_3 or b"VK_KHR_shader_integer_dot_product" in names:
        chain.append(dot)
    for this, following in pairwise(chain):
        this.next = ctypes.addressof(following)
    if plain.api_version >= VULKAN_1_1:
        vk.vkGetPhysicalDeviceProperties2(device, byref(properties))
    return Identity(
        name=_text(plain.name),
        vendor_id=plain.vendor_id,
        device_id=plain.device_id,
        driver=f"{_text(driver.name)} {_text(driver.info) or _version(plain.driver_version)}".strip(),
        api=_version(plain.api_version),
        uuid=bytes(ids.device_uuid).hex() if any(ids.device_uuid) else None,
        pci=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.{pci.function:x}" if pci in chain else None,
        raw={
            "device_type": dict(enumerate(DEVICE_TYPES)).get(plain.device_type, str(plain.device_type)),
            "driver_version": plain.driver_version,
            "driver_id": driver.driver_id,
            "driver_uuid": bytes(ids.driver_uuid).hex(),
            "conformance": ".".join(map(str, driver.conformance)),
        },
        units=tuple([units.DOT_SIGNED] * bool(dot.packed_signed) + [units.DOT_UNSIGNED] * bool(dot.packed_unsigned)),
    )


def _version(number: int) -> str:
    return f"{number >> 22 & 127}.{number >> 12 & 1023}.{number & 4095}"


def _text(raw: bytes) -> str:
    return " ".join(raw.decode("utf-8", "replace").split())


def match(adapters: Sequence[tuple[str, int, int]], identities: Iterable[Identity]) -> list[Identity | None]:
    """For each adapter (name, vendor id, device id) its identity, by order among equals; None where that is ambiguous.

    Identical devices match by order only where both lists hold as many of them: wgpu hides some devices.
    """
    by_key: dict[tuple[str, int, int], list[Identity]] = {}
    for identity in identities:
        by_key.setdefault(identity.key, []).append(identity)
    found: list[Identity | None] = []
    for place, key in enumerate(adapters):
        same = by_key.get(key, [])
        found.append(same[list(adapters[:place]).count(key)] if len(same) == list(adapters).count(key) else None)
    return found
