"""What a user reads: tables for a terminal, Markdown and CSV. Words of drivers are strangers' and are cleaned."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness import backends, matrix, presets
from harness import table as tables
from harness.devices import Device
from harness.kernels import KERNELS, WHOLE
from harness.matrix import Failure, Gate, Row
from harness.profiles import PROFILES
from harness.records import Run, unit
from harness.report import fast_paths
from harness.text import clean
from harness.verdicts import SEVERITY, TABLE, Difference, Result

FAILURES_SHOWN = 20
VOIDS_SHOWN = 5
STYLES = {"green": "green", "red": "bold red", "orange": "yellow", "grey": "dim", "blue": "blue", "hatched": "magenta"}
GATES = {"PASS": "bold green", "FAIL": "bold red", "OPEN": "bold yellow", "VOID": "bold red"}


def console() -> Any:
    """Standard output: colour and width of a terminal, or none and room enough when piped."""
    from rich.console import Console

    class Output(Console):
        """A console that leaves a broken pipe to the command line; rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # Without `emoji=False` the device opencl:x:0 would be printed with a cross.
    return Output(width=None if sys.stdout.isatty() else 400, highlight=False, markup=False, emoji=False)


def print_gate(gate: Gate, runs: Sequence[Run], reduced: bool, judged: bool = True) -> None:
    """The whole verdict: devices, kernels, failures with their commands, what is missing, the gate."""
    out = console()
    out.print(_device_table(gate.rows, "verdicts", _counts))
    if runs:
        out.print(_kernel_table(runs))
        if fast := fast_paths.rows(runs):
            out.print(_text_table(fast_paths.HEAD, fast))
    for text in failure_lines(gate.failures):
        out.print(text)
    for text in waived_lines(gate.waived):
        out.print(text, style=STYLES["hatched"])
    for row in gate.rows:
        for reason in row.void[:VOIDS_SHOWN]:
            out.print(f"VOID {row.device.id}: {clean(reason)}", style="bold red")
        if len(row.void) > VOIDS_SHOWN:
            out.print(f"VOID {row.device.id}: and {len(row.void) - VOIDS_SHOWN} more reasons", style="bold red")
    if not judged:
        return
    if reduced:
        out.print(
            f"This was a REDUCED run (preset {gate.preset}): it can find faults, and can never PASS.", style="bold"
        )
    out.print(f"gate: {gate.gate}", style=GATES[gate.gate])
    for sentence in gate.missing:
        out.print(f"  missing for PASS: {clean(sentence, 600)}")


def print_devices(devices: Sequence[Device]) -> None:
    """The table of `samebits devices`."""
    console().print(_device_table([Row(d, {}) for d in devices], "note", lambda row: row.device.reason))


def print_sections(sections: Iterable[Any]) -> None:
    """The sections of `samebits doctor`."""
    out = console()
    for section in sections:
        out.print(section.title, style="bold")
        for row in section.rows:
            out.print(f"  {clean(row.what)}: {clean(row.found, 600)}")
            if row.mend:
                out.print(f"      -> {clean(row.mend, 600)}")


def print_run(run: Run) -> None:
    """One record: its header in words, then its results."""
    out, h = console(), run.header
    state = "complete" if run.complete else f"INCOMPLETE ({run.footer.reason if run.footer else 'no footer'})"
    out.print(f"{h.device.id}  {clean(h.device.name)}  [{h.device.kind}]  {clean(h.device.driver)}", style="bold")
    out.print(
        f"preset {h.preset} {h.preset_version}, started {h.started}, {state}, samebits {h.version}, run {h.run_id}"
    )
    out.print(
        f"{h.system.os} {h.system.kernel} {h.system.machine}, Python {h.system.python}; argv: {clean(' '.join(h.argv))}"
    )
    for void in run.voids:
        out.print(f"VOID: {clean(void.reason)}", style="bold red")
    for r in run.results:
        role = "" if r.role == "case" else f" [{r.role}]"
        more = f" ({beside(r)})" if beside(r) else ""
        out.print(f"{r.verdict:16} {r.run}{role}{more}", style=STYLES[TABLE[r.verdict].colour])


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Failures by run key, the worst first, each with what is known and the command that repeats it.

    What was not run for one reason is one line.
    """
    lines: list[str] = []
    idle = Counter((f.device, f.result.detail or "") for f in failures if f.result.verdict == "not-run")
    real = sorted((f for f in failures if f.result.verdict != "not-run"), key=lambda f: SEVERITY[f.result.verdict])
    for f in real[:FAILURES_SHOWN]:
        r = f.result
        role = "" if r.role == "case" else f" [{r.role}]"
        lines.append(f"{r.verdict.upper()} {f.device} {r.run}{role}")
        if beside(r):
            lines.append(f"    {beside(r)}")
        if r.difference:
            lines += [f"    {line}" for line in difference_lines(r.difference)]
        if r.artefacts:
            lines.append(f"    kept: {', '.join(clean(a) for a in r.artefacts)}")
        if r.repeat:
            lines.append(f"    repeat: {clean(r.repeat, 600)}")
    if len(real) > FAILURES_SHOWN:
        lines.append(f"... and {len(real) - FAILURES_SHOWN} more; `samebits show RECORD` lists them all")
    lines += [f"NOT-RUN {device}: {count} run keys: {clean(why)}" for (device, why), count in idle.items()]
    return lines


def waived_lines(waived: Sequence[Failure]) -> list[str]:
    """Known faults, each with the reason that its expectation gives."""
    lines = []
    for f in waived[:FAILURES_SHOWN]:
        role = "" if f.result.role == "case" else f" [{f.result.role}]"
        lines.append(f"WAIVED (was {f.result.was}) {f.device} {f.result.run}{role}")
        lines.append(f"    {clean(f.result.detail or '', 600)}")
    return lines + [f"... and {len(waived) - FAILURES_SHOWN} more known faults"] * (len(waived) > FAILURES_SHOWN)


def difference_lines(d: Difference) -> list[str]:
    """A window of both sides, with marks under what differs, and the operands."""
    lines = []
    if d.index:
        lines.append(f"first at {d.index}, {d.count} in all; elements {d.window_start}.. :")
        texts = [(str(e), str(a)) for e, a in zip(d.expected, d.actual, strict=True)]
        widths = [max(map(len, pair)) for pair in texts]
        lines.append("  expected " + " ".join(e.rjust(w) for (e, _), w in zip(texts, widths, strict=True)))
        lines.append("  actual   " + " ".join(a.rjust(w) for (_, a), w in zip(texts, widths, strict=True)))
        marks = " ".join(("^" * w if e != a else " " * w) for (e, a), w in zip(texts, widths, strict=True))
        lines.append("           " + marks.rstrip())
    if d.guard_words:
        lines.append(f"{d.guard_words} guard words behind the output were overwritten")
    for name, values in d.operands.items():
        shown = ", ".join(map(str, values[:12]))
        lines.append(f"  {name}: {shown}{', ...' if len(values) > 12 else ''}")
    return lines


def to_markdown(gate: Gate, runs: Sequence[Run]) -> str:
    """The matrix for a README or a job summary."""
    # Rows of one piece of hardware say so, where any does.
    group = ["group"] * any(r.device.group for r in gate.rows)
    head = ["device", "kind", "vendor", "name", "driver", *group, "date", "verdicts"]
    body = [[*_words(r.device), *([r.device.group] if group else []), r.started[:10], _counts(r)] for r in gate.rows]
    parts = [_markdown(head, body)]
    table = tables.pivot(runs) if runs else None
    if table is not None and not table.empty:
        rows = [[device, *row] for device, row in zip(table.index, table.to_numpy().tolist(), strict=True)]
        parts.append(_markdown(["device", *table.columns], rows))
        if fast := fast_paths.rows(runs):
            parts.append(_markdown(fast_paths.HEAD, fast))
    parts.append(f"gate: **{gate.gate}** (preset {gate.preset})")
    if gate.missing:
        parts.append("\n".join(f"- missing for PASS: {_cell(s)}" for s in gate.missing))
    return "\n\n".join(parts) + "\n"


def readme_table(runs: Sequence[Run]) -> str:
    """The README's matrix, from records alone: families of kernels and profiles, each device under its largest preset.

    A preset of which a device ran selected cases alone shows only where it ran none whole; but its whole passes always do.
    """
    rank = {name: place for place, name in enumerate(presets.VERSION)}
    by_device: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run in matrix.latest(runs):
        by_device[unit(run.header.device)].append(run)
    apis = list(backends.REGISTRY)
    order = [*dict.fromkeys(tables.column(k.name) for k in (*KERNELS, *WHOLE.values())), *PROFILES]
    lines, seen = [], set()
    for group in by_device.values():
        entire = [run for run in group if not run.header.options.get("cases")] or group
        preset = max((run.header.preset for run in entire), key=lambda name: rank.get(name, -1))
        mine = [run for run in entire if run.header.preset == preset]
        beyond = _whole_passes([run for run in group if run not in mine], {r.run for run in mine for r in run.results})
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        by_profile: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for r in [*(r for run in mine for r in run.results), *beyond]:
            if r.role == "case":
                kernel = matrix.kernel_of(r.case)
                counts[tables.column(kernel)][r.verdict] += 1
                if kernel in tables.PROFILE_OF:
                    by_profile[tables.PROFILE_OF[kernel]].append((r.case, r.verdict))
        tallies = {column: _tally(count) for column, count in counts.items()}
        tallies |= {name: tables.profile_cell(PROFILES[name], found) for name, found in by_profile.items()}
        if "control" in tallies:
            tallies["control"] = tables.control_cell(tallies["control"], mine)
        device, header = mine[-1].header.device, max((run.header for run in mine), key=lambda h: h.started)
        void = "VOID" if any(run.voids for run in mine) else ""
        seen |= set(tallies)
        lines.append(
            (
                apis.index(device.api) if device.api in apis else len(apis),
                device,
                header,
                preset,
                _times(group),
                void,
                tallies,
            )
        )
    columns = sorted(seen, key=lambda name: (order.index(name) if name in order else len(order), name))
    body = [
        [
            *(
                f"{d.id}, {d.kind}",
                d.name,
                d.driver,
                header.started[:10],
                f"part of {preset} {header.preset_version}"
                if header.options.get("cases")
                else f"{preset} {header.preset_version}",
                times,
            ),
            *(void or tallies.get(column, "no data") for column in columns),
        ]
        for _, d, header, preset, times, void, tallies in sorted(lines, key=lambda line: (line[0], line[1].id))
    ]
    return _markdown(["device", "name", "driver", "date", "preset", "seconds", *columns], body)


def _times(runs: Sequence[Run]) -> str:
    """Seconds of each preset that a device ran whole, from its newest record; of one in parts, of all of them together."""
    whole: dict[str, int] = {}
    parts: Counter[str] = Counter()
    for run in sorted(runs, key=lambda run: run.header.started):
        if run.complete and run.seconds is not None:
            if {"cases", "shard"} & run.header.options.keys():
                parts[run.header.preset] += run.seconds
            else:
                whole[run.header.preset] = run.seconds
    texts = [f"{preset} {seconds}" for preset, seconds in whole.items()]
    return "; ".join(texts + [f"part of {p} {seconds}" for p, seconds in parts.items() if p not in whole])


def _whole_passes(runs: Sequence[Run], known: set[str]) -> list[Result]:
    """The whole passes among the results of `runs`, of each run key the newest, but for what is `known`."""
    found: dict[str, Result] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        if not run.voids:
            found |= {r.run: r for r in run.results if r.role == "case" and matrix.kernel_of(r.case) in WHOLE}
    return [r for key, r in found.items() if key not in known]


def _tally(counts: Counter[str]) -> str:
    """`60 match, 60 unsupported`, the worst first."""
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts, key=SEVERITY.__getitem__))


def to_csv(runs: Sequence[Run]) -> str:
    """Every run key as a line."""
    table = tables.frame(runs)
    for column in {"vendor", "name", "driver", "group"} & set(table.columns):
        table[column] = table[column].map(_csv_cell)
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def _csv_cell(text: str) -> str:
    """A stranger's text that a spreadsheet does not take for a formula."""
    plain = clean(text)
    return f"'{plain}" if plain.startswith(("=", "+", "-", "@")) else plain


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(_cell, head)) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(text: str) -> str:
    """A stranger's text in a Markdown table: no cell end, tag, entity, code, link, picture, mention or line end."""
    plain = re.sub(r"([\\`*\[\]<>|~&])", r"\\\1", clean(str(text), 600))
    # GitHub makes links and mentions of bare text too, unless a character of them is an entity.
    return plain.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def beside(r: Result) -> str:
    """What stands beside a verdict: phase, feature, detail."""
    feature = f"{r.feature}: needs {r.needed}, there is {r.there}" if r.feature else ""
    return clean(
        "; ".join(filter(None, [r.phase and f"in {r.phase}", feature or r.detail, r.was and f"was {r.was}"])), 500
    )


def _counts(row: Row) -> str:
    if row.void:
        return "VOID"
    counts = ", ".join(f"{n} {verdict}" for verdict, n in row.counts.items())
    if row.control == matrix.NO_POWER:
        counts += "; the control has no power"
    return counts or row.device.reason or "not run"


def _colour(row: Row) -> str:
    """That of the worst verdict; not green where the control has no power, for then a match says less than it looks."""
    judged = [word for word in row.counts if word != "informational"] or list(row.counts)
    colour = TABLE[min(judged, key=SEVERITY.__getitem__)].colour if judged else "grey"
    return "orange" if colour == "green" and row.control == matrix.NO_POWER else colour


def _words(device: Device) -> tuple[str, ...]:
    return device.id, device.kind, device.vendor, device.name, device.driver


def _device_table(rows: Sequence[Row], last: str, said: Callable[[Row], str]) -> Any:
    """Devices; the column `last` holds what is `said` of each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    group = ["group"] * any(row.device.group for row in rows)
    for name in ("device", "kind", "vendor", "name", "driver", *group, "status", last):
        table.add_column(name, overflow="fold")
    for row in rows:
        d = row.device
        style = STYLES[_colour(row)]
        status = d.status if d.ok else f"{d.status}{f' ({d.phase})' if d.phase else ''}"
        cells = (*_words(d), *([d.group] if group else []), status)
        table.add_row(*(Text(clean(c, 120)) for c in cells), Text(clean(said(row), 300), style))
    return table


def _kernel_table(runs: Sequence[Run]) -> Any:
    pivot = tables.pivot(runs)
    rows = [[device, *row] for device, row in zip(pivot.index, pivot.to_numpy().tolist(), strict=True)]
    return _text_table(["device", *pivot.columns], rows)


def _text_table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in head:
        table.add_column(str(column))
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
