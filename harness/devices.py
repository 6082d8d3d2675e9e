"""Devices: which ones a machine has, what each is called, and how a user names them.

A device is one (API, driver, place in that driver's list). Nothing is joined or dropped by name: one GPU seen through
three APIs is three devices, two identical GPUs are two, and a driver that crashes, hangs or has no device is a row too.
"""

import os
import re
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from harness import backends, permissions
from harness.backends import ONLY_TINY, Driver, Report
from harness.backends.common import OPTIMISER, VENDORS, is_software, vendor_name
from harness.errors import NoDevice, UsageError
from harness.process import Child, Closed, ProtocolError, Timeout, environment, one_line, python
from harness.text import near

Kind = Literal["hardware", "software", "compile-only", "unknown"]

PROBE = python("harness.probe")
"""The command of the probe child, without the API."""

MOCK = "SAMEBITS_MOCK"
EXPECT = "SAMEBITS_EXPECT"
"""Variables: mock devices show up where the first is set; the second lists devices that must show up."""

ALIASES = {"lavapipe": "vulkan:lvp", "swiftshader": "vulkan:vk_swiftshader", "intel": "opencl:intel-cpu"}
"""Friendly names of drivers -> `api:label`."""

UNTRIED = "untested: samebits was written without a device of this kind"
"""`reason` of a device that can be used and is hardware, or of an API that was never tried."""

UNTRIED_APIS = ("metal", "d3d12", "cuda")

DEVICES_LIMIT = 256
MEMORY_LIMIT = 8 << 30
PARALLEL = 4

_SOFTWARE = re.compile(r"swrast|\bpocl\b|portable computing language|\bcpu\b", re.IGNORECASE)
_PHASES = ("start", "load", "probe")


class Device(msgspec.Struct, frozen=True):
    """One device, or a driver that gave none (`status` is not "ok"; `phase` and `reason` say why, with the mend).

    Of a device that can be used `reason` says what a user should know of it all the same.

    `id` is `api:label:index`, as printed and as selected; of a driver without a device it is `api:label`.
    `group` names the piece of hardware, where several rows are one (`harness.groups`); it is for display only.
    `environment` narrows a child to the device's driver, `origin` says where that was found; no record holds them.
    """

    id: str
    api: str
    label: str
    index: int = 0
    kind: Kind = "unknown"
    vendor: str = ""
    name: str = ""
    driver: str = ""
    compiler: str = ""
    uuid: str | None = None
    pci: str | None = None
    features: list[str] = []
    limits: dict[str, int] = {}
    raw: dict[str, Any] = {}
    status: str = "ok"
    phase: str = ""
    reason: str = ""
    group: str = ""
    origin: str = ""
    environment: dict[str, str | None] = {}

    @property
    def ok(self) -> bool:
        """Whether it can be run on."""
        return self.status == "ok"

    def summary(self) -> dict[str, Any]:
        """The row of `devices --json` and `gate --json`."""
        names = ("id", "api", "kind", "vendor", "name", "driver", "group", "status", "phase", "reason")
        return {name: getattr(self, name) for name in names}


def discover(
    apis: Iterable[str] | None = None,
    budget: float = 20.0,
    *,
    selectors: Sequence[str] = (),
    others: Sequence[str] = (),
    enough: Callable[[list[Device]], bool] = lambda rows: True,
) -> list[Device]:
    """Every driver of the machine, each probed in a child that sees only it, for at most `budget` seconds.

    `apis` limits the search; a name that is no API raises UsageError. Where there are `selectors`, drivers that neither
    they nor the names of `others` can mean are left out, as long as each selector names a usable device without them (see
    `_by_place`) and the rows are `enough`: so `select` finds the same devices as among all rows.
    """
    wanted = list(backends.REGISTRY if apis is None else apis)
    for api in wanted:
        if api not in backends.REGISTRY:
            raise UsageError(f"no API {api!r}; there are {', '.join(backends.REGISTRY)}")
    drivers: list[Driver] = []
    rows: list[Device] = []
    for api in wanted:
        if api == "mock" and not os.environ.get(MOCK):
            continue
        try:
            drivers += _distinct(backends.load(api).drivers())
        except UsageError:
            raise
        except Exception as error:  # a fault in one API's search must not hide the others
            detail = f"{type(error).__name__}: {error}"
            rows.append(Device(f"{api}:drivers", api, "drivers", status="failed", phase="search", reason=detail))
    words = [_word(selector) for selector in selectors]
    named = [driver for driver in drivers if any(_may_mean(word, driver) for word in (*words, *map(_word, others)))]
    found = _probe_all(named if words else drivers, budget)
    if words and not (all(_is_decided(found, word) for word in words) and enough(found)):
        found += _probe_all([driver for driver in drivers if driver not in named], budget)
        order = [(driver.api, driver.label) for driver in drivers]
        found.sort(key=lambda row: order.index((row.api, row.label)))
    blocked = [node for node in permissions.nodes() if node.problem]
    rows += [_with_permissions(row, blocked) for row in found]
    rows.sort(key=lambda row: wanted.index(row.api))
    return rows + [_node_row(node) for node in blocked if apis is None]


def select(devices: Sequence[Device], selectors: Iterable[str]) -> list[Device]:
    """The usable devices that any of `selectors` names, in the order of `devices`; all of them without a selector.

    A selector is an id, a prefix ending in `*`, `hardware`, `software`, `compile-only`, an API, a driver (`api:label`
    or its label), a vendor, an alias, or part of a name; the first of these that fits counts. Case does not matter.
    Raises NoDevice where one matches nothing, or only drivers that gave no device.
    """
    chosen: set[str] = set()
    given = False
    for selector in selectors:
        given = True
        matched = _matching(devices, _word(selector))
        usable = [d.id for d in matched if d.ok]
        if not usable and matched:
            raise NoDevice("; ".join(f"{d.id} cannot be used: {d.status}: {d.reason}" for d in matched))
        if not usable:
            there = ", ".join(d.id for d in devices if d.ok) or "none"
            names = {name for d in devices if d.ok for name in (d.id, f"{d.api}:{d.label}", d.label, d.api, d.vendor)}
            meant = near(selector, names | ALIASES.keys())
            raise NoDevice(f"no device matches {one_line(selector, 80)!r}; there are: {there}{meant}")
        chosen.update(usable)
    return [d for d in devices if d.ok and (d.id in chosen or not given)]


def awaited(names: str | None = None) -> list[str]:
    """What SAMEBITS_EXPECT, or `names`, lists, separated by commas."""
    listed = os.environ.get(EXPECT, "") if names is None else names
    return [name for name in map(str.strip, listed.split(",")) if name]


def expected(devices: Sequence[Device], names: str | None = None) -> list[str]:
    """What is `awaited` and missing: a sentence each.

    A name is a device id, `api:label`, a driver's label, an API or an alias.
    """
    missing = []
    for name in awaited(names):
        driver = ALIASES.get(name.lower(), name.lower())
        matched = [d for d in devices if driver in (d.id.lower(), f"{d.api}:{d.label}".lower(), d.label.lower(), d.api)]
        if any(d.ok for d in matched):
            continue
        why = "; ".join(f"{d.id}: {d.status}: {d.reason}" for d in matched) or "no such driver was found"
        missing.append(f"expected device {one_line(name, 80)} is missing ({why})")
    return missing


def without_optimiser(device: Device) -> Device:
    """The device with its compiler's optimiser off; its name says so, and so its records are a row of their own."""
    return msgspec.structs.replace(
        device,
        name=f"{device.name}, optimiser off",
        compiler=f"{device.compiler}, optimiser off",
        environment=device.environment | {OPTIMISER: "off"},
    )


def is_without_optimiser(device: Device) -> bool:
    """Whether it is such a device, also as a record has it."""
    return device.compiler.endswith(", optimiser off")


def slug(device: Device) -> str:
    """The folder of its records: API, driver and model, without versions; the same for identical devices."""
    model = re.sub(r"\([^)]*\)|\bv?\d+\.\d+[\d.]*\b", " ", device.name)
    text = unicodedata.normalize("NFKD", f"{device.api}-{device.label}-{model}").encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9+]+", "-", text.lower()).strip("-")[:80].strip("-") or "device"


def is_of(device: Device, report: Report) -> bool:
    """Whether a device that was opened is the one that was found: a driver may list its devices in another order."""
    opened = _device(Driver(device.api, device.label, device.origin), device.index, report)
    opened = without_optimiser(opened) if device.environment.get(OPTIMISER) == "off" else opened
    return all(getattr(opened, name) == getattr(device, name) for name in ("name", "driver", "uuid", "pci"))


def _distinct(drivers: Iterable[Driver]) -> list[Driver]:
    """Drivers with labels that can be printed and are unique in their API, as ids need them."""
    found: list[Driver] = []
    taken: set[str] = set()
    for driver in drivers:
        plain = re.sub(r"[^A-Za-z0-9.+_-]", "_", driver.label)[:40] or "driver"
        label = next(name for name in (plain, *(f"{plain}-{n}" for n in range(2, 10_000))) if name.lower() not in taken)
        taken.add(label.lower())
        found.append(msgspec.structs.replace(driver, label=label))
    return found


def _probe_all(drivers: Sequence[Driver], budget: float) -> list[Device]:
    running: set[Child] = set()
    with tempfile.TemporaryDirectory(prefix="samebits-", ignore_cleanup_errors=True) as folder:
        pool = ThreadPoolExecutor(PARALLEL)
        try:
            jobs = [pool.submit(_probe, d, budget, Path(folder, str(n)), running) for n, d in enumerate(drivers)]
            return [row for job in jobs for row in job.result()]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(running):  # interrupted: nobody waits for a driver that hangs
                child.kill(grace=0)
            pool.shutdown()


def _probe(driver: Driver, budget: float, caches: Path, running: set[Child]) -> list[Device]:
    if driver.problem:
        return [_row(driver, "unusable", "search", driver.problem)]
    caches.mkdir()
    deadline = time.monotonic() + budget
    reports: list[Report] = []
    phase = "start"
    try:
        changes = {**driver.environment, **backends.load(driver.api).cache_environment(caches)}
        child = Child([*PROBE, driver.api], environment(changes), memory_limit=MEMORY_LIMIT)
    except OSError as error:
        return [_row(driver, "failed", phase, f"the probe cannot be started: {error}")]
    with child:
        running.add(child)
        try:
            while (event := child.receive(deadline - time.monotonic())).get("event") != "done":
                if event.get("event") == "phase" and event.get("phase") in _PHASES:
                    phase = event["phase"]
                elif event.get("event") == "device" and len(reports) < DEVICES_LIMIT:
                    reports.append(msgspec.convert(event.get("report"), Report))
                elif event.get("event") == "fault":
                    return [_row(driver, one_line(str(event.get("status")), 30), phase, str(event.get("detail")))]
                else:
                    raise ProtocolError(f"unexpected event {one_line(str(event), 80)}")
        except Timeout:
            return [_row(driver, "timeout", phase, f"no answer within {budget:g} s")]
        except Closed as end:
            return [_row(driver, "crash", phase, f"{end}{_last_words(child)}")]
        except (ProtocolError, msgspec.ValidationError) as error:
            return [_row(driver, "failed", phase, f"the probe's answer makes no sense: {error}")]
        finally:
            running.discard(child)
    if not reports:
        return [_row(driver, "no-device", "probe", "present, no device")]
    return [_device(driver, index, report) for index, report in enumerate(reports)]


def _last_words(child: Child) -> str:
    lines = child.stderr_tail().strip().splitlines()
    return f"; last words: {one_line(lines[-1])}" if lines else ""


def _row(driver: Driver, status: str, phase: str, reason: str) -> Device:
    return Device(
        id=f"{driver.api}:{driver.label}",
        api=driver.api,
        label=driver.label,
        name=driver.label,
        status=status,
        phase=phase,
        reason=one_line(reason),
        origin=driver.origin,
        environment=driver.environment,
    )


def _device(driver: Driver, index: int, report: Report) -> Device:
    name = one_line(report.name, 120) or "unnamed"
    kind = _kind(report)
    untried = driver.api in UNTRIED_APIS or (kind == "hardware" and driver.api != "mock")
    only_tiny = next((ONLY_TINY[feature] for feature in report.features if feature in ONLY_TINY), "")
    return Device(
        id=f"{driver.api}:{driver.label}:{index}",
        api=driver.api,
        label=driver.label,
        index=index,
        kind=kind,
        vendor=vendor_name(0, one_line(report.vendor, 80)),
        name=name,
        driver=one_line(report.driver, 200),
        compiler=one_line(report.compiler, 200),
        uuid=report.uuid and one_line(report.uuid, 80),
        pci=report.pci and one_line(report.pci, 40),
        features=[one_line(feature, 80) for feature in report.features],
        limits=report.limits,
        raw=report.raw,
        reason=UNTRIED if untried else only_tiny,
        origin=driver.origin,
        environment=driver.environment | {OPTIMISER: None},
    )


def _kind(report: Report) -> Kind:
    """What it is; a software renderer is software, whatever it says of itself."""
    texts = (report.name, report.vendor, report.driver)
    types = (str(value).lower() for name, value in report.raw.items() if "type" in name.lower())
    if report.kind == "compile-only":
        return "compile-only"
    if any(is_software(t) or _SOFTWARE.search(t) for t in texts) or any("cpu" in t for t in types):
        return "software"
    return "hardware" if report.kind == "hardware" else "software"


def _with_permissions(row: Device, blocked: Sequence[permissions.Node]) -> Device:
    if row.status != "no-device" or not blocked:
        return row
    return msgspec.structs.replace(row, reason=f"{row.reason}; {blocked[0].problem}: {blocked[0].mend}")


def _node_row(node: permissions.Node) -> Device:
    label = Path(node.path).name
    reason = f"{node.problem}: {node.mend}"
    return Device(
        f"system:{label}", "system", label, name=node.path, status="no-permission", phase="open", reason=reason
    )


def _word(selector: str) -> str:
    return selector.strip().lower()


def _matching(devices: Sequence[Device], word: str) -> list[Device]:
    """The devices that `word` names in the first sense in which it names a usable one, else any."""
    if not word:
        return []
    if word.endswith("*"):
        return [d for d in devices if d.id.lower().startswith(word[:-1])]
    ids, *places = _by_place(devices, word)
    senses = (
        ids,
        [d for d in devices if d.kind == word],
        *places,
        [d for d in devices if d.vendor.lower() == word],
        [d for d in devices if f"{d.api}:{d.label}" == ALIASES.get(word)],
        [d for d in devices if word in d.name.lower()],
    )
    usable = (found for found in senses if any(d.ok for d in found))
    return next(usable, next((found for found in senses if found), []))


def _by_place(devices: Sequence[Device], word: str) -> list[list[Device]]:
    """What `word` names as an id, an API, a driver or an alias: of API and label alone, so it is known before a probe.

    "intel" is a vendor first: what it names depends on what other drivers give.
    """
    alias = None if word in map(str.lower, VENDORS.values()) else ALIASES.get(word)
    return [
        [d for d in devices if d.id.lower() == word],
        [d for d in devices if d.api == word],
        [d for d in devices if word in (f"{d.api}:{d.label}".lower(), d.label.lower())],
        [d for d in devices if f"{d.api}:{d.label}" == alias],
    ]


def _is_decided(devices: Sequence[Device], word: str) -> bool:
    """Whether `word` names a usable device, and would name no other one if more drivers were probed."""
    if word in get_args(Kind):
        return False
    senses = [_matching(devices, word)] if word.endswith("*") else _by_place(devices, word)
    return any(d.ok for found in senses for d in found)


def _may_mean(word: str, driver: Driver) -> bool:
    """Whether `word` can name a device of `driver` by its place."""
    name = f"{driver.api}:{driver.label}".lower()
    if word.endswith("*"):
        return f"{name}:".startswith(word[:-1]) or word.startswith(f"{name}:")
    names = (driver.api, name, driver.label.lower())
    return word in names or word.rpartition(":")[0] == name or ALIASES.get(word) == name
