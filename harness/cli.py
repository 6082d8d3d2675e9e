"""The command line: parse, call, print, exit code. Nothing else.

Data goes to standard output, progress and errors to standard error. Exit codes: docs/design.md.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from harness import __version__, presets
from harness.cli_profiles import forward, generate, profile
from harness.cli_tools import bench, fetch_model, inspect, reference
from harness.errors import SamebitsError, UsageError
from harness.folders import state_folder
from harness.terminal import PATH, print_json, say
from harness.text import clean

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="samebits")
def cli() -> None:
    """Integer conformance of GPUs: the same program on every device, compared bit for bit with exact arithmetic."""


_expecting = click.option(
    "--expectations",
    type=PATH,
    metavar="FILE|DIR",
    help="Known faults; default: those that samebits ships. An empty folder: none.",
)


def _judging(command: Any) -> Any:
    """The options of every command that judges the gate."""
    for option in reversed(
        [
            click.option("--require", type=click.Choice(["pass"]), help="Exit 1 unless the gate says PASS."),
            _expecting,
            click.option("--junit", type=PATH, metavar="FILE", help="Write JUnit XML too."),
            click.option("--allow-fixes", is_flag=True, help="A fixed fault that is still expected does not exit 1."),
        ]
    ):
        command = option(command)
    return command


def _running(command: Any) -> Any:
    """The options that `gate` and `run` share."""
    for option in reversed(
        [
            click.option("--device", "devices", multiple=True, metavar="SEL", help="Device selector; repeat it."),
            click.option(
                "--case", "cases", multiple=True, metavar="SEL", help="Case id, prefix*, or run key; repeat it."
            ),
            click.option(
                "--preset",
                default="quick",
                show_default=True,
                metavar="|".join(presets.VERSION),
                help="Or NAME@VERSION, to pin the list of cases.",
            ),
            click.option(
                "--shard", metavar="I/N", help="Only part I of N of all run keys; `matrix` puts them together."
            ),
            click.option("--out", type=PATH, default=lambda: state_folder("records"), help="Folder for records."),
            click.option(
                "--resume",
                is_flag=False,
                flag_value="last",
                metavar="RECORD|GATE_RUN",
                help="Go on with an interrupted run: with its own command, and this.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            click.option("--require-hardware", is_flag=True, help="Refuse software devices."),
            click.option("--timeout", type=click.FloatRange(1), metavar="SECONDS", help="Budget of each run phase."),
            click.option(
                "--time",
                "soak_seconds",
                type=click.FloatRange(1),
                metavar="SECONDS",
                help="End a soak after, with the family of kernels that is under way then.",
            ),
            click.option(
                "--workers", type=click.IntRange(1, 64), metavar="N", help="Of a software device; else one a core."
            ),
            click.option(
                "--optimiser",
                type=click.Choice(["on", "off"]),
                default="on",
                help="Off: devices compile without optimisation; what cannot is unsupported.",
            ),
            click.option("--identify", is_flag=True, help="Keep UUIDs and PCI addresses in records."),
        ]
    ):
        command = option(command)
    return command


@cli.command()
@_running
@_judging
def gate(**options: Any) -> None:
    """Run every device (or the selected ones), compare all bits, and judge the gate."""
    _execute(options, judge=True)


@cli.command()
@_running
@_judging
def run(**options: Any) -> None:
    """Run selected devices or cases: as `gate`, but says nothing of a gate. The command that repeats a failure."""
    if not options["devices"] and not options["cases"]:
        if options["resume"]:
            raise UsageError("--resume goes on with a run's own command: give its --device and --case again too")
        raise UsageError("name what to run with --device or --case, or run everything with `samebits gate`")
    _execute(options, judge=False)


def _execute(given: dict[str, Any], *, judge: bool) -> None:
    from harness import expectations, gate, matrix, report
    from harness.lane import Budgets
    from harness.report.junit import check_path, write_junit
    from harness.selections import Shard

    if given["junit"]:
        check_path(given["junit"])
    known = expectations.load(given["expectations"])  # refused before anything runs
    preset = presets.pinned(given["preset"])
    budgets = Budgets(compile=given["timeout"], run=given["timeout"]) if given["timeout"] else Budgets()
    options = gate.Options(
        preset=preset,
        out=given["out"],
        cases=given["cases"],
        devices=given["devices"],
        require_hardware=given["require_hardware"],
        resume=given["resume"],
        budgets=budgets,
        identify=given["identify"],
        soak_seconds=given["soak_seconds"],
        shard=None if given["shard"] is None else Shard.parse(given["shard"]),
        optimiser_off=given["optimiser"] == "off",
        workers=given["workers"],
        known=known,
    )
    outcome = gate.execute(options, say)
    runs = expectations.apply(outcome.runs(), known)
    ran = {run.header.device.id for run in runs}
    # Of devices that nobody asked for nothing is said, unless all were asked for.
    others = [d for d in outcome.devices if d.id not in ran] if judge and not given["devices"] else []
    verdict = matrix.judge(runs, others, outcome.missing, outcome.interrupted, given["allow_fixes"])
    if given["as_json"]:
        print_json(verdict.plain())
    else:
        report.print_gate(verdict, runs, preset in presets.REDUCED, judge)
    codes = [3] * bool(outcome.missing) + [4] * outcome.interrupted
    if given["junit"]:
        try:
            write_junit(given["junit"], verdict, runs, outcome.missing)
        except SamebitsError as e:  # the verdict stands, and so do the records
            say(f"samebits: {e}")
            codes.append(e.exit_code)
    if not judge:  # the gate's verdict names them
        for sentence in outcome.missing:
            say(f"missing: {sentence}")
    say(f"records: {options.out}")
    sys.exit(verdict.exit_code(given["require"] == "pass", codes))


@cli.command("matrix")
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="DIR...")
@click.option("--format", "form", type=click.Choice(["terminal", "md", "csv", "json"]), help="terminal unless given.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@_judging
def matrix_(folders: Sequence[Path], form: str | None, as_json: bool, **given: Any) -> None:
    """Roll records up into one matrix, and judge the gate over their union."""
    from harness import expectations, matrix, report, shards, store
    from harness.report.junit import check_path, write_junit

    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} do not go together: give one of them")
    if given["junit"]:
        check_path(given["junit"])
    runs = expectations.apply(shards.with_lost(store.collect(folders)), expectations.load(given["expectations"]))
    verdict = matrix.judge(runs, allow_fixes=given["allow_fixes"])
    if given["junit"]:
        write_junit(given["junit"], verdict, runs)
    if as_json or form == "json":
        print_json(verdict.plain())
    elif form == "md":
        click.echo(report.to_markdown(verdict, runs), nl=False)
    elif form == "csv":
        click.echo(report.to_csv(runs), nl=False)
    else:
        report.print_gate(verdict, runs, any(run.header.preset in presets.REDUCED for run in runs))
    sys.exit(verdict.exit_code(given["require"] == "pass"))


@cli.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@_expecting
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(old: Path, new: Path, expectations: Path | None, as_json: bool) -> None:
    """Compare two records, or folders of them: what was fixed, what regressed, and what had changed. Exit 1 on a regression."""
    from harness import diff as compared
    from harness import expectations as faults
    from harness import shards, store
    from harness.report.diff import print_diff

    known = faults.load(expectations)
    before, after = (shards.with_lost(store.collect([path])) for path in (old, new))
    found = compared.compare(before, faults.apply(after, known))
    if as_json:
        print_json(found.plain())
    else:
        print_diff(found)
    sys.exit(found.exit_code())


@cli.command()
@click.option(
    "--device", "selectors", multiple=True, metavar="SEL", help="Only these; one that matches nothing is an error."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def devices(selectors: Sequence[str], as_json: bool) -> None:
    """List every driver of this machine: what works, and what does not and why."""
    from harness import devices as found
    from harness import doctor, groups, report

    listed = groups.discovered(selectors, groups.load())
    missing = found.expected(listed)
    if selectors:
        listed = found.select(listed, selectors)
    if as_json:
        print_json([d.summary() for d in listed])
    else:
        report.print_devices(listed)
    for sentence in missing:
        say(sentence)
    if not any(d.ok for d in listed):
        say(f"no device at all; {doctor.install_advice()}")
    sys.exit(3 if missing or not any(d.ok for d in listed) else 0)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def doctor(as_json: bool) -> None:
    """Tell what this machine has: loaders, search paths, ICD files, variables, versions, permissions and the mend."""
    from harness import doctor as examined
    from harness import report

    sections = examined.report()
    if as_json:
        print_json({section.title: section.rows for section in sections})
    else:
        report.print_sections(sections)


@cli.command()
@click.option("--preset", metavar="|".join(presets.VERSION), help="Only the cases of this preset.")
@click.option("--case", "selectors", multiple=True, metavar="SEL", help="Only these.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def cases(preset: str | None, selectors: Sequence[str], as_json: bool) -> None:
    """List case ids, and why each exists."""
    from harness import kernels
    from harness.cases import select

    listed = presets.cases(presets.pinned(preset)) if preset else presets.all_cases()
    if selectors:
        listed = select(listed, selectors)
    if as_json:
        print_json(
            [
                {
                    "id": c.id,
                    "kernel": c.kernel,
                    "schedules": kernels.base(c.kernel).schedules,
                    "reason": c.reason,
                    "presets": presets.holding(c),
                    "version": c.version,
                }
                for c in listed
            ]
        )
        return
    for case in listed:
        click.echo(f"{case.id}\n    {case.reason} [{', '.join(presets.holding(case)) or 'self-test'}]")


@cli.command()
@click.argument("record", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print header, results and footer as JSON.")
def show(record: Path, as_json: bool) -> None:
    """Show one record or journal: what ran where, and what came out."""
    from harness import report, store

    found = store.load(record)
    if as_json:
        print_json({"header": found.header, "results": found.results, "voids": found.voids, "footer": found.footer})
    else:
        report.print_run(found)


for command in (profile, forward, generate, reference, bench, fetch_model, inspect):
    cli.add_command(command)


def _interrupt(*_: object) -> NoReturn:
    """An ended run is sealed too. Not by SIGINT, which a shell's background job ignores."""
    raise KeyboardInterrupt


def main() -> NoReturn:
    """The `samebits` command: errors as one line each, and their exit codes."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in ("stdout", "stderr"):  # closed by the caller: as if sent to nowhere
        if getattr(sys, stream) is None:
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as e:
        if isinstance(e, BrokenPipeError):
            _die_of_the_pipe()
        code = _unwritable(e)
    sys.exit(code)


def _die_of_the_pipe() -> NoReturn:
    """The reader of a pipe has seen enough: end as every other filter does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)


def _run() -> int:
    """The exit code; BrokenPipeError where nobody reads the output any more."""
    code: object
    output = sys.stdout
    try:
        code = cli.main(prog_name="samebits", standalone_mode=False)
    except SystemExit as e:
        if sys.stdout is not output:  # click makes exit code 1 of a broken pipe, and keeps the rest from being flushed
            raise BrokenPipeError from None
        code = e.code
    except SamebitsError as e:
        say(f"samebits: {e}")
        code = e.exit_code
    except click.exceptions.NoArgsIsHelpError as e:
        say(e.format_message())
        code = 2
    except click.ClickException as e:
        message = clean(e.format_message(), 600).rstrip(".")
        command = ctx.command_path if isinstance(e, click.UsageError) and (ctx := e.ctx) else "samebits"
        say(f"samebits: {message}{'' if message.endswith(('?', ')')) else ';'} see `{command} --help`")
        code = 2
    except (click.Abort, KeyboardInterrupt):
        say("samebits: interrupted")
        code = 4
    except BrokenPipeError:
        raise
    except OSError as e:
        if e.filename is not None or e.errno not in (errno.ENOSPC, errno.EIO):
            return _internal(e)
        code = _unwritable(e)
    except Exception as e:
        return _internal(e)
    return code if isinstance(code, int) else 0


def _internal(e: Exception) -> int:
    if os.environ.get("SAMEBITS_DEBUG"):
        traceback.print_exception(e)
    say(f"samebits: internal error: {type(e).__name__}: {e}; please report it (SAMEBITS_DEBUG=1 shows where)")
    return 5


def _unwritable(e: OSError) -> int:
    """Standard output cannot be written to, as on a full disk; what was left in its buffer is given up."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    say(f"samebits: standard output cannot be written: {e.strerror}; send it elsewhere")
    return 2


if __name__ == "__main__":
    main()
