"""Groups: which rows are one piece of hardware. For display only: no verdict, gate or selector depends on them.

Identities (PCI address, UUID) decide; an operator's file speaks for rows that have none, and has the last word:

    [[join]]                                        # one piece of hardware
    name = "the card in slot 2"                     # optional
    devices = ["vulkan:radeon:1", "opengl:mesa-renderD129:0"]

    [[part]]                                        # never one piece, whatever they claim
    devices = ["opencl:x:0", "vulkan:y:*"]

A device is named by its id, or by a prefix ending in `*`. The file is $SAMEBITS_GROUPS, else `groups.toml` in the user's
configuration folder; an empty SAMEBITS_GROUPS means none.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness import devices
from harness.devices import Device
from harness.errors import InputRefused
from harness.folders import config_folder
from harness.text import clean

VARIABLE = "SAMEBITS_GROUPS"
MAX_FILE = 1 << 20


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices (ids, or prefixes ending in `*`) that are one piece of hardware, which `name` may name."""

    devices: list[str]
    name: str = ""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices of which no two are one piece of hardware."""

    devices: list[str]


class Overrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator's file says. `file`: where it was read, for messages; no key of it."""

    join: list[Join] = []
    part: list[Part] = []
    file: str = ""


NONE = Overrides()


def load() -> Overrides:
    """The operator's file; NONE where there is none. Raises InputRefused, naming file, entry and mend."""
    named = os.environ.get(VARIABLE)
    path = config_folder("groups.toml") if named is None else Path(named)
    if named == "" or (named is None and not path.exists()):
        return NONE
    try:
        with path.open("rb") as f:
            data = f.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise _refused(str(path), "", f"larger than {MAX_FILE >> 20} MiB; name a file of groups")
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as e:
        raise _refused(str(path), "", f"cannot be read: {e.strerror}; mend it, or unset {VARIABLE}") from e
    except (ValueError, RecursionError) as e:
        raise _refused(str(path), "", f"is no TOML: {e}; mend it there") from e
    if strange := sorted(set(content) - {"join", "part"}):
        raise _refused(str(path), "", f"unknown key {strange[0]!r}; entries are [[join]] and [[part]] tables")
    kinds: dict[str, type[Join] | type[Part]] = {"join": Join, "part": Part}
    for table, kind in kinds.items():
        entries = content.get(table, [])
        for number, raw in enumerate(entries if isinstance(entries, list) else [entries], 1):
            try:
                entry: Join | Part = msgspec.convert(raw, kind)
            except msgspec.ValidationError as e:
                keys = ", ".join(kind.__struct_fields__)
                raise _refused(str(path), f"{table} {number}", f"{e}; keys are {keys}") from None
            if len(entry.devices) < 2 and not any(word.endswith("*") for word in entry.devices):
                raise _refused(str(path), f"{table} {number}", "fewer than two devices; name those that it is about")
    return msgspec.structs.replace(msgspec.convert(content, Overrides), file=str(path))


def discovered(selectors: Sequence[str], overrides: Overrides) -> list[Device]:
    """The machine's devices with their `group`, without drivers that neither `selectors` nor SAMEBITS_EXPECT can mean.

    All drivers are there where a row could be in a group with one that was left out: where it is hardware, or has a PCI
    address, and where the operator's file speaks. Raises what `labelled` does.
    """

    def alone(rows: list[Device]) -> bool:
        return not (overrides.join or overrides.part or any(d.kind == "hardware" or d.pci for d in rows))

    found = devices.discover(selectors=selectors, others=devices.awaited(), enough=alone)
    return labelled(found, overrides)


def labelled(devices: Sequence[Device], overrides: Overrides = NONE) -> list[Device]:
    """The devices with their `group`: the operator's name, else the id of the first row of several, else empty.

    Raises InputRefused where an override matches nothing, or cannot be.
    """
    names = {
        id: join.name for join, ids in zip(overrides.join, _sets(devices, overrides, "join"), strict=True) for id in ids
    }
    labels: dict[str, str] = {}
    for group in groups(devices, overrides):
        named = next((names[d.id] for d in group if names.get(d.id)), "")
        labels |= {d.id: named or (group[0].id if len(group) > 1 else "") for d in group}
    return [msgspec.structs.replace(d, group=labels[d.id]) for d in devices]


def groups(devices: Sequence[Device], overrides: Overrides = NONE) -> list[list[Device]]:
    """Devices that are one piece of hardware, by the operator's word, PCI address or UUID; a pure function of its arguments.

    A driver lists a GPU once, so two devices of one driver are never joined, even where both claim one UUID.
    """
    joins, parts = _sets(devices, overrides, "join"), _sets(devices, overrides, "part")
    _check(devices, overrides, joins, parts)
    place = {device.id: n for n, device in enumerate(devices)}
    joined: set[str] = set().union(*joins)
    seeds = [[d for d in devices if d.id in ids] for ids in joins if ids]
    seeds += [[d] for d in devices if d.id not in joined]
    found: list[list[Device]] = []
    for home in sorted(seeds, key=lambda seed: place[seed[0].id]):
        for group in list(found):
            if any(_same_hardware(a, b) for a in group for b in home) and _compatible([*group, *home], parts):
                found.remove(group)
                home = group + home
        found.append(sorted(home, key=lambda d: place[d.id]))
    return sorted(found, key=lambda group: place[group[0].id])


def _sets(devices: Sequence[Device], overrides: Overrides, table: str) -> list[set[str]]:
    """The ids that each entry of `table` names."""
    found = []
    for number, entry in enumerate(getattr(overrides, table), 1):
        ids: set[str] = set()
        for word in entry.devices:
            lower = word.strip().lower()
            fits = [d.id for d in devices if d.id.lower() == lower or _starts(d.id.lower(), lower)]
            # A driver that gives no device today is a row without a place, and no reason to refuse the file.
            silent = any(not d.ok and lower.startswith(f"{d.id.lower()}:") for d in devices)
            if not fits and not silent:
                there = ", ".join(d.id for d in devices if d.ok) or "none"
                what = f"{clean(word, 80)!r} matches no device; there are: {there}"
                raise _refused(overrides.file, f"{table} {number}", what)
            ids.update(fits)
        found.append(ids)
    return found


def _starts(id: str, word: str) -> bool:
    return word.endswith("*") and id.startswith(word[:-1])


def _check(
    devices: Sequence[Device], overrides: Overrides, joins: Sequence[set[str]], parts: Sequence[set[str]]
) -> None:
    seen: set[str] = set()
    for number, ids in enumerate(joins, 1):
        mine = [d for d in devices if d.id in ids]
        where = f"join {number}"
        if twice := [d.id for d in mine if d.id in seen]:
            raise _refused(overrides.file, where, f"{twice[0]} is in another join already; put them into one")
        if clash := [p for p, apart in enumerate(parts, 1) if len(ids & apart) > 1]:
            raise _refused(overrides.file, where, f"part {clash[0]} parts what it joins; remove one of them")
        if not _compatible(mine, ()):
            what = "two devices of one driver, or two PCI addresses, are never one piece of hardware; name others"
            raise _refused(overrides.file, where, what)
        seen |= ids


def _same_hardware(one: Device, other: Device) -> bool:
    return any(key(one) is not None and key(one) == key(other) for key in (_pci, _uuid))


def _compatible(group: Sequence[Device], parts: Iterable[set[str]]) -> bool:
    addresses = {_pci(d) for d in group} - {None}
    drivers = [(d.api, d.label) for d in group]
    together = all(len(apart & {d.id for d in group}) <= 1 for apart in parts)
    return len(addresses) <= 1 and len(set(drivers)) == len(drivers) and together


def _pci(device: Device) -> tuple[int, ...] | None:
    """Domain, bus, device, function; drivers write the domain with four digits or eight, or not at all."""
    match = re.fullmatch(r"(?:([0-9a-f]+):)?([0-9a-f]+):([0-9a-f]+)(?:\.([0-9a-f]))?", (device.pci or "").lower())
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def _uuid(device: Device) -> str | None:
    """Hexadecimal digits only; one of zeros says nothing."""
    digits = re.sub(r"[^0-9a-f]", "", (device.uuid or "").lower().removeprefix("gpu-").removeprefix("mig-"))
    return digits if digits.strip("0") else None


def _refused(file: str, where: str, what: str) -> InputRefused:
    return InputRefused(f"groups {clean(file, 300)}{f', {where}' if where else ''}: {clean(what, 600)}")
