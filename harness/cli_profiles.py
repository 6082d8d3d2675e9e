"""The commands of profiles: parse, call, print, exit code. Part of `cli.py`."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from harness.errors import UsageError
from harness.terminal import print_json, say

if TYPE_CHECKING:
    from harness.forward import Mismatch
    from harness.profiles import Profile

MOST_TOKENS = 1 << 20
"""Ids on a command line at most."""


@click.group()
def profile() -> None:
    """Profiles: the frozen integer programs that models are run by."""


@profile.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_(as_json: bool) -> None:
    """List the profiles and their ids."""
    from harness.profiles import PROFILES

    if as_json:
        print_json([{"name": p.name, "profile_id": p.profile_id} for p in PROFILES.values()])
        return
    for p in PROFILES.values():
        click.echo(f"{p.profile_id}  {p.name}")


@profile.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(name: str, as_json: bool) -> None:
    """Show what defines a profile and what computes it."""
    from harness.profiles import find

    found = find(name)
    if as_json:
        print_json(found.plain())
        return
    click.echo(
        f"{found.name}\nprofile_id  {found.profile_id}\ndocument    {found.document.name}\nform        {found.form.name}"
    )
    for table, digest in found.tables.items():
        click.echo(f"table       {table:6} {digest}")
    for operation, kernels in found.operations.items():
        click.echo(f"operation   {operation:10} {', '.join(kernels) or 'no kernel yet'}")
    for implementation, module in found.plain()["implementations"].items():
        click.echo(f"{implementation:11} {module}")


@profile.command("verify")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def verify(name: str, as_json: bool) -> None:
    """Make a profile's tables anew, and check everything against its committed form. Exit 1 where anything differs."""
    from harness import profiles

    checks = []
    for check in profiles.verify(profiles.find(name)):
        checks.append(check)
        if not as_json:
            click.echo(f"{'WRONG' if check.fault else 'ok':6} {check.what}{': ' + check.fault if check.fault else ''}")
    if as_json:
        print_json([{"what": check.what, "ok": not check.fault, "fault": check.fault} for check in checks])
    sys.exit(1 if any(check.fault for check in checks) else 0)


@profile.command("roots")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def roots(name: str, as_json: bool) -> None:
    """Print the published hashes that a profile's document defines, made anew."""
    from harness.profiles import find

    made = find(name).roots()
    if as_json:
        print_json(made)
        return
    for root, digest in made.items():
        click.echo(f"{root:20} {digest}")


def _passing(command: Any) -> Any:
    """What `forward` and `generate` share."""
    for option in reversed(
        [
            click.argument("model"),
            click.option("--profile", "name", required=True, metavar="NAME", help="See `samebits profile list`."),
            click.option("--tokens", required=True, metavar="ID,ID,...", help="Token ids."),
            click.option(
                "--device",
                "selectors",
                multiple=True,
                default=["reference"],
                show_default=True,
                metavar="reference|second|SEL",
                help="Repeat it: several are compared, to the bit.",
            ),
            click.option("--schedule", metavar="NAME", help="The order of sums on devices; never part of the meaning."),
            click.option(
                "--variant", metavar="NAME", help="The form of kernels on devices where they have it: int64, fast."
            ),
            click.option(
                "--resident-bytes",
                "resident",
                type=click.IntRange(min=0),
                metavar="N",
                help="Weights that may stay on a device; the others are sent anew each time. 1 GiB unless given.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@_passing
@click.option("--stages", is_flag=True, help="Print the digest of every stage too.")
def forward(
    model: str,
    name: str,
    tokens: str,
    selectors: Sequence[str],
    schedule: str | None,
    variant: str | None,
    resident: int | None,
    as_json: bool,
    stages: bool,
) -> None:
    """Run a profile's forward pass on MODEL (a GGUF file, nel-mini:published or nel-mini:stress), and print digests.

    Exit 1 on the first wrong bit where several devices are compared: it names stage, element, expected and actual.
    """
    from harness import forward as passes
    from harness import profiles, runners

    chosen = profiles.find(name)
    ids = _ids(tokens)
    devices = runners.runners(selectors, chosen, model, schedule, variant, resident)

    def seen(device: str, stage: runners.Stage) -> None:
        if passes.is_layer(chosen, stage.name) or stage.name in ("embed", "logits"):
            say(f"{device}: {stage.name}")

    done, mismatches = passes.forward(devices, ids, seen)
    result = {
        "profile": chosen.name,
        "profile_id": chosen.profile_id,
        "model_sha256": done[0].finished.model_sha256,
        "tokens": ids,
        "contracts": _contracts(selectors),
        "devices": [p.plain(chosen, stages) for p in done],
    }
    if as_json:
        print_json(result)
    else:
        _print_head(result)
        for p in done:
            click.echo(f"{p.id}: {p.finished.seconds:.1f} s")
            for stage, digest in p.stages.items():
                if stages or passes.is_layer(chosen, stage) or stage in ("embed", "hidden", "logits"):
                    click.echo(f"  {stage:16} {digest}")
            click.echo(f"  {'greedy':16} {','.join(map(str, p.finished.greedy))}")
    _judge(chosen, mismatches, repeat=f"forward {_repeated(model, name, tokens, schedule, variant, resident)}")


@click.command()
@_passing
@click.option("-n", "count", type=click.IntRange(min=1), required=True, metavar="N", help="New tokens.")
def generate(
    model: str,
    name: str,
    tokens: str,
    selectors: Sequence[str],
    schedule: str | None,
    variant: str | None,
    resident: int | None,
    as_json: bool,
    count: int,
) -> None:
    """Continue --tokens by N greedy choices, token by token with a KV cache; several devices are compared."""
    from harness import forward as passes
    from harness import profiles, runners

    chosen = profiles.find(name)
    ids = _ids(tokens)
    devices = runners.runners(selectors, chosen, model, schedule, variant, resident)
    made, mismatches = passes.generate(devices, ids, count, lambda device, token: say(f"{device}: {token}"))
    result = {
        "profile": chosen.name,
        "profile_id": chosen.profile_id,
        "model_sha256": next(iter(made.values())).model_sha256,
        "tokens": ids,
        "contracts": _contracts(selectors),
        "devices": [{"id": id_, "greedy": run.greedy, "seconds": run.seconds} for id_, run in made.items()],
    }
    if as_json:
        print_json(result)
    else:
        _print_head(result)
        for id_, run in made.items():
            click.echo(f"{id_}: {run.seconds:.1f} s\n  {','.join(map(str, run.greedy))}")
    _judge(
        chosen, mismatches, repeat=f"generate {_repeated(model, name, tokens, schedule, variant, resident)} -n {count}"
    )


def _ids(text: str) -> list[int]:
    """The ids of `--tokens`; raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        raise UsageError("--tokens is empty: name one id or more, as in 1,2,3")
    if len(parts) > MOST_TOKENS:
        raise UsageError(f"--tokens holds {len(parts)} ids, at most {MOST_TOKENS}")
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 20):
            raise UsageError(f"--tokens: {part[:20]!r} is no token id; write whole numbers, as in 1,2,3")
    return [int(part) for part in parts]


def _contracts(selectors: Sequence[str]) -> str:
    """Whether range contracts were looked at: a device cannot see a broken one."""
    return "checked" if "reference" in selectors else "unchecked"


def _print_head(result: dict[str, Any]) -> None:
    click.echo(f"profile {result['profile']}  {result['profile_id']}")
    click.echo(f"model {result['model_sha256'] or 'of the profile'}")
    click.echo(f"contracts: {result['contracts']}")


def _repeated(
    model: str, name: str, tokens: str, schedule: str | None, variant: str | None, resident: int | None
) -> str:
    """Arguments that repeat a pass, without its devices."""
    arguments = [model, "--profile", name, "--tokens", tokens.replace(" ", "")]
    for option, value in (("--schedule", schedule), ("--variant", variant), ("--resident-bytes", resident)):
        arguments += [] if value is None else [option, str(value)]
    return shlex.join(arguments)


def _judge(chosen: "Profile", mismatches: "Sequence[Mismatch]", repeat: str) -> None:
    for mismatch in mismatches:
        operation = chosen.operation(mismatch.stage)
        say(f"samebits: mismatch: {mismatch}{f' (op {operation})' if operation else ''}")
        devices = "".join(f" --device {id_}" for id_ in dict.fromkeys((mismatch.against, mismatch.device)))
        say(f"repeat it: samebits {repeat}{devices}")
    sys.exit(1 if mismatches else 0)
