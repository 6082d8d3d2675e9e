"""Expectations: known faults of known devices, as TOML. They are read with distrust, and are errors when they rot.

A record keeps what the device did. Expectations are laid over records when these are rolled up (`gate`, `matrix`, `diff`),
so that an entry added today covers last year's records, an entry that went uncovers them, and no record need be trusted
about what somebody once excused. `matrices/expectations/README.md` describes the format.
"""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness import backends, kernels, presets
from harness.devices import Device, is_without_optimiser
from harness.errors import InputRefused, UsageError
from harness.folders import expectations_root
from harness.records import Run
from harness.selections import Selector
from harness.text import clean
from harness.verdicts import FAULTS, TABLE, Result

MAX_FILE = 1 << 20


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault. An absent device key fits every device; one of `api`, `vendor`, `device` must be there.

    `device` is an id, a prefix of one ending in `*`, or part of a name. `driver` is a version range (`>=3.1,<4`) over the
    driver's number. `optimiser` ("on", "off") is for faults that come and go with it. `runs` is a case
    id or a prefix ending in `*`, with `;schedule=` and `;variant=` where wanted. The entry holds from its day `since` to
    the end of its day `until` (UTC).
    """

    name: str
    runs: str
    verdict: str
    reason: str
    since: date
    until: date | None = None
    link: str | None = None
    api: str | None = None
    vendor: str | None = None
    device: str | None = None
    driver: str | None = None
    optimiser: Literal["on", "off"] | None = None

    def fits(self, device: Device) -> bool:
        """Whether it speaks of `device` under its driver."""
        return (
            self.api in (None, device.api)
            and (self.vendor is None or self.vendor.lower() == device.vendor.lower())
            and (self.device is None or _names(self.device.lower(), device))
            and (self.optimiser is None or is_without_optimiser(device) == (self.optimiser == "off"))
            and (self.driver is None or _in_range(device.driver, SpecifierSet(self.driver)))
        )


@dataclasses.dataclass(frozen=True)
class Known:
    """An entry that was checked, with the file that holds it."""

    entry: Expectation
    selector: Selector
    file: str

    def covers(self, result: Result) -> bool:
        """Whether it speaks of the run key of `result`."""
        return self.selector.matches(result.case, result.schedule, result.variant)


def load(path: Path | None = None, today: date | None = None) -> list[Known]:
    """The entries of a file, or of all `*.toml` of a folder; without `path`, those that samebits ships.

    Raises UsageError where nothing is there, and InputRefused, naming file, entry and mend.
    """
    place = expectations_root() if path is None else path
    if not place.exists():
        raise UsageError(f"no expectations at {clean(str(place))}; name a TOML file or a folder of them")
    found: list[Known] = []
    names: dict[str, str] = {}
    for file in sorted(place.glob("*.toml")) if place.is_dir() else [place]:
        for known in _read(file, today or datetime.now(UTC).date()):
            name = known.entry.name
            if name in names:
                raise _refused(file, name, f"the name is taken in {names[name]}", "give each entry a name of its own")
            names[name] = known.file
            found.append(known)
    return found


def apply(runs: Iterable[Run], known: Sequence[Known]) -> list[Run]:
    """`runs` as the expectations let them be seen: known faults `waived`, a match where one was expected `fix`."""
    return [dataclasses.replace(run, results=tuple(over(run.header.device, run.results, known))) for run in runs]


def over(device: Device, results: Sequence[Result], known: Sequence[Known]) -> list[Result]:
    """`results` of `device`, with expectations laid over them."""
    mine = [k for k in known if k.entry.fits(device)]
    return [_seen(r, [k for k in mine if k.covers(r)]) for r in results]


def _seen(result: Result, known: Sequence[Known]) -> Result:
    """A known-bad twin has to mismatch: only its orange verdicts can be waived, and it is never fixed. The worker's end
    stands for no run key, so no entry speaks of it."""
    if not known or result.role == "shutdown":
        return result
    twin = result.role == "known-bad"
    if result.verdict == "match" and not twin:
        first = known[0]
        detail = (
            f"{first.entry.verdict} was expected: remove {first.entry.name!r} from {first.file} ({first.entry.reason})"
        )
        return msgspec.structs.replace(result, verdict="fix", was=first.entry.verdict, detail=clean(detail, 600))
    waiver = next((k for k in known if k.entry.verdict == result.verdict), None)
    if waiver is None or (twin and TABLE[result.verdict].colour != "orange"):
        return result
    entry = waiver.entry
    reason = "; ".join(filter(None, [f"{entry.name}: {entry.reason}", entry.link, result.detail]))
    return msgspec.structs.replace(result, verdict="waived", was=result.verdict, detail=clean(reason, 600))


def _refused(file: Path, entry: str | None, what: str, mend: str) -> InputRefused:
    where = f", entry {clean(entry, 80)!r}" if entry is not None else ""
    return InputRefused(f"expectations {clean(str(file))}{where}: {clean(what)}; {mend}")


def _read(file: Path, today: date) -> list[Known]:
    try:
        with file.open("rb") as f:
            data = f.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise _refused(file, None, f"larger than {MAX_FILE >> 20} MiB", "name a file of expectations")
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as e:
        raise _refused(file, None, f"cannot be read: {e.strerror}", "mend its permissions") from e
    except (ValueError, RecursionError) as e:
        raise _refused(file, None, f"is no TOML: {e}", "mend it there") from e
    strange = [key for key in content if key != "expect"]
    entries = content.get("expect", [])
    if strange or not isinstance(entries, list):
        raise _refused(
            file, None, f"unknown key {strange[0] if strange else 'expect'!r}", "entries are [[expect]] tables"
        )
    return [_checked(file, number, raw, today) for number, raw in enumerate(entries, 1)]


def _checked(file: Path, number: int, raw: Any, today: date) -> Known:
    name = str(raw.get("name", f"#{number}")) if isinstance(raw, dict) else f"#{number}"
    try:
        entry = msgspec.convert(raw, Expectation)
    except msgspec.ValidationError as e:
        raise _refused(file, name, str(e), f"keys are {', '.join(Expectation.__struct_fields__)}") from None
    if empty := [key for key in Expectation.__struct_fields__ if getattr(entry, key) == ""]:
        raise _refused(file, name, f"{empty[0]} is empty", "fill it, or leave out what is optional")
    if entry.verdict not in FAULTS:
        raise _refused(file, name, f"verdict {entry.verdict!r} is no fault", f"faults are {', '.join(FAULTS)}")
    if (entry.api, entry.vendor, entry.device) == (None, None, None):
        raise _refused(file, name, "it would fit every device", "name api, vendor or device")
    if entry.api is not None and entry.api not in backends.REGISTRY:
        raise _refused(file, name, f"no API {entry.api!r}", f"there are {', '.join(backends.REGISTRY)}")
    if entry.driver is not None:
        try:
            SpecifierSet(entry.driver)
        except InvalidSpecifier:
            raise _refused(
                file, name, f"driver {entry.driver!r} is no version range", "write as in '>=3.1,<4'"
            ) from None
    if entry.until is not None and entry.until < entry.since:
        raise _refused(file, name, f"until {entry.until} is before since {entry.since}", "mend the dates")
    if entry.since > today:
        raise _refused(file, name, f"since {entry.since} is in the future", "mend the date")
    if entry.until is not None and entry.until < today:
        raise _refused(file, name, f"expired on {entry.until}", "remove it, or look again and set a later until")
    try:
        selector = Selector.parse(entry.runs)
    except UsageError as e:
        raise _refused(file, name, str(e), "mend runs") from None
    if not _selects(selector, entry.api):
        raise _refused(file, name, f"runs {entry.runs!r} matches no run key", "`samebits cases` lists case ids")
    return Known(entry, selector, file.name)


def _selects(selector: Selector, api: str | None) -> bool:
    """Whether any run key of any preset (and of the self-tests) is selected, in the language of `api`."""
    languages = kernels.LANGUAGES if api is None else (backends.load(api).LANGUAGE,)
    return any(
        selector.matches(case.id, schedule, kernel.variant)
        for case in presets.all_cases()
        for kernel in (*kernels.KERNELS, *kernels.WHOLE.values())
        if kernel.name == case.kernel and set(kernel.languages) & set(languages)
        for schedule in kernel.schedules
    )


def _names(word: str, device: Device) -> bool:
    """An id, a prefix of one, or part of a name."""
    if word.endswith("*"):
        return device.id.lower().startswith(word[:-1])
    return word == device.id.lower() or word in device.name.lower()


def _in_range(driver: str, wanted: SpecifierSet) -> bool:
    """Whether a driver's number is in the range: the first in its text (`SwiftShader driver 5.0.0`), but that behind a
    driver's name where OpenGL puts its own before it (`4.5 (Core Profile) Mesa 22.3.6`: 22.3.6)."""
    number = re.search(r"\b(?:Mesa|NVIDIA) (\d+(?:\.\d+)*)", driver, re.ASCII) or re.search(
        r"(\d+(?:\.\d+)*)", driver, re.ASCII
    )
    try:
        return number is not None and wanted.contains(Version(number[1]), prereleases=True)
    except InvalidVersion:
        return False
