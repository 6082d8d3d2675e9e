"""What a forward pass takes of a device's memory: estimated, and held against what the device has, before anything runs."""

from dataclasses import asdict, dataclass

import psutil

from harness.devices import Device
from harness.errors import InputRefused


@dataclass(frozen=True)
class Memory:
    """Bytes of a pass: all weights, the stages of one layer and the logits, keys and values, and the largest one buffer."""

    weights: int
    activations: int
    cache: int
    largest: int

    @property
    def total(self) -> int:
        """All of it, with every weight there."""
        return self.weights + self.activations + self.cache

    def plain(self) -> dict[str, int]:
        """For JSON, in bytes."""
        return asdict(self) | {"total": self.total}

    def __str__(self) -> str:
        parts = {"weights": self.weights, "activations": self.activations, "cache": self.cache}
        listed = ", ".join(f"{name} {_shown(size)}" for name, size in parts.items())
        return f"{_shown(self.total)} ({listed}; largest buffer {_shown(self.largest)})"


def check(device: Device, needed: Memory, resident: int) -> None:
    """InputRefused where the device has less than the pass needs, at most `resident` bytes of weights staying there."""
    room, buffer = _room(device), _largest_buffer(device)
    at_least = needed.activations + needed.cache + min(needed.weights, max(resident, needed.largest))
    if at_least > room:
        raise InputRefused(
            f"{device.id}: too large: the pass needs {_shown(at_least)}, the device has {_shown(room)}; "
            "give fewer tokens, a smaller --resident-bytes or another device"
        )
    if buffer is not None and needed.largest > buffer:
        raise InputRefused(
            f"{device.id}: too large: one buffer of the pass has {_shown(needed.largest)}, the device takes {_shown(buffer)}; "
            "give fewer tokens or another device"
        )


def _room(device: Device) -> int:
    """The device's memory where its API tells it, else this machine's: a software device lives there, no other says more."""
    told = (device.limits.get(name) for name in ("global_mem_size", "totalGlobalMem"))
    return next(filter(None, told), None) or int(psutil.virtual_memory().total)


def _largest_buffer(device: Device) -> int | None:
    names = ("max_mem_alloc_size", "max-buffer-size", "max-storage-buffer-binding-size")
    return min((device.limits[name] for name in names if device.limits.get(name)), default=None)


def _shown(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):,.1f} KiB"
