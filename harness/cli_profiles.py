"""The commands of profiles: parse, call, print, exit code. Part of `cli.py`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.errors import SamebitsError, UsageError
from harness.terminal import print_json, say
from harness.text import clean

if TYPE_CHECKING:
    from harness.forward import Mismatch
    from harness.memory import Memory
    from harness.profiles import Profile
    from harness.runners import Runner, Stage
    from harness.vocabulary import Vocabulary

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


@dataclass(frozen=True)
class _Asked:
    """What `forward` and `generate` are asked for: the options of both, and the ids that stand for the text."""

    model: str
    name: str
    tokens: str | None
    prompt: str | None
    chat: bool
    selectors: Sequence[str]
    schedule: str | None
    variant: str | None
    resident: int | None
    as_json: bool

    @cached_property
    def profile(self) -> "Profile":
        from harness import profiles

        return profiles.find(self.name)

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        """That of the model's file; InputRefused where it has none that is covered."""
        from harness import gguf_read, vocabulary

        if self.model.startswith("nel-mini:"):
            raise UsageError(f"--prompt is for model files: {clean(self.model)} has no vocabulary; give --tokens")
        return vocabulary.read(gguf_read.opened(Path(self.model)))

    @cached_property
    def ids(self) -> list[int]:
        """The token ids; UsageError and InputRefused."""
        if self.tokens is not None and self.prompt is not None:
            raise UsageError("--tokens and --prompt do not go together: give one of them")
        if self.chat and self.prompt is None:
            raise UsageError("--chat is for a --prompt, which becomes a user's message")
        if self.prompt is not None:
            return self._encoded(self.prompt)
        if self.tokens is None:
            raise UsageError("nothing to run on: give --tokens 1,2,3 or --prompt TEXT")
        return _ids(self.tokens)

    def _encoded(self, prompt: str) -> list[int]:
        if not prompt:
            raise UsageError("--prompt is empty: give it one character or more")
        try:
            prompt.encode()
        except UnicodeEncodeError as e:  # Python keeps bytes of a command line that are no UTF-8 as lone surrogates
            raise UsageError(f"--prompt is no UTF-8 at character {e.start}; give it in UTF-8") from None
        return self.vocabulary.encode(self.vocabulary.conversation(prompt) if self.chat else prompt)

    def text(self, ids: Sequence[int]) -> str | None:
        """The text of new tokens; None where the model has no vocabulary that is covered."""
        try:
            return self.vocabulary.decode(ids)
        except SamebitsError:
            return None

    def devices(self, count: int = 0) -> "tuple[list[Runner], dict[str, Memory]]":
        """What runs it, and what that takes of each device: refused, or printed, before anything runs."""
        from harness import runners

        found = runners.runners(
            self.selectors,
            self.profile,
            self.model,
            self.schedule,
            self.variant,
            self.resident,
            tokens=self.ids,
            count=count,
        )
        estimates = {}
        for device in found:
            if isinstance(device, runners.DeviceRunner):
                estimates[device.id] = device.prepare(self.ids, count)
                say(f"{device.id}: memory {estimates[device.id]}")
        return found, estimates

    def head(self, model_sha256: str | None, estimates: "dict[str, Memory]") -> dict[str, Any]:
        """How the JSON object of both commands begins."""
        return {
            "profile": self.profile.name,
            "profile_id": self.profile.profile_id,
            "model_sha256": model_sha256,
            "tokens": self.ids,
            "contracts": _contracts(self.selectors),
            "memory": {id_: memory.plain() for id_, memory in estimates.items()},
        }

    def repeated(self) -> str:
        """Arguments that repeat a pass, without its devices: the ids, whatever text they came from."""
        arguments = [self.model, "--profile", self.name, "--tokens", ",".join(map(str, self.ids))]
        options = (("--schedule", self.schedule), ("--variant", self.variant), ("--resident-bytes", self.resident))
        for option, value in options:
            arguments += [] if value is None else [option, str(value)]
        return shlex.join(arguments)


def _asked(given: dict[str, Any]) -> _Asked:
    from harness import models

    return _Asked(**given | {"model": models.named(given["model"])})


def _passing(command: Any) -> Any:
    """The options of `_Asked`."""
    for option in reversed(
        [
            click.argument("model"),
            click.option("--profile", "name", required=True, metavar="NAME", help="See `samebits profile list`."),
            click.option("--tokens", metavar="ID,ID,...", help="Token ids."),
            click.option("--prompt", metavar="TEXT", help="Text, as tokens of the model's own vocabulary."),
            click.option("--chat", is_flag=True, help="The prompt is a user's message, put into the model's template."),
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
def forward(stages: bool, **given: Any) -> None:
    """Run a profile's forward pass on MODEL (a GGUF file, nel-mini:published or nel-mini:stress), and print digests.

    Exit 1 on the first wrong bit where several devices are compared: it names stage, element, expected and actual.
    """
    from harness import forward as passes

    asked = _asked(given)
    chosen, ids = asked.profile, asked.ids
    devices, estimates = asked.devices()

    def seen(device: str, stage: "Stage") -> None:
        if passes.is_layer(chosen, stage.name) or stage.name in ("embed", "logits"):
            say(f"{device}: {stage.name}")

    done, mismatches = passes.forward(devices, ids, seen, stages)
    result = asked.head(done[0].finished.model_sha256, estimates)
    result["devices"] = [p.plain(chosen, stages) for p in done]
    if asked.as_json:
        print_json(result)
    else:
        _print_head(result)
        for p in done:
            click.echo(f"{p.id}: {p.finished.seconds:.1f} s")
            for stage, digest in p.stages.items():
                if stages or passes.is_layer(chosen, stage) or stage in ("embed", "hidden", "logits"):
                    click.echo(f"  {stage:16} {digest}")
            click.echo(f"  {'greedy':16} {','.join(map(str, p.finished.greedy))}")
    _judge(chosen, mismatches, repeat=f"forward {asked.repeated()}")


@click.command()
@_passing
@click.option("-n", "count", type=click.IntRange(min=1), required=True, metavar="N", help="New tokens.")
def generate(count: int, **given: Any) -> None:
    """Continue --tokens or --prompt by N greedy choices, token by token with a KV cache; several devices are compared.

    The text of the new tokens is printed too, where the model's vocabulary is one that samebits reads.
    """
    from harness import forward as passes

    asked = _asked(given)
    chosen, ids = asked.profile, asked.ids
    devices, estimates = asked.devices(count)
    made, mismatches = passes.generate(devices, ids, count, lambda device, token: say(f"{device}: {token}"))
    result = asked.head(next(iter(made.values())).model_sha256, estimates)
    result["devices"] = [
        {"id": id_, "greedy": run.greedy, "text": asked.text(run.greedy), "seconds": run.seconds}
        for id_, run in made.items()
    ]
    if asked.as_json:
        print_json(result)
    else:
        _print_head(result)
        for row in result["devices"]:
            click.echo(f"{row['id']}: {row['seconds']:.1f} s\n  {','.join(map(str, row['greedy']))}")
            if row["text"] is not None:
                click.echo(f"  {row['text']!r}")
    _judge(chosen, mismatches, repeat=f"generate {asked.repeated()} -n {count}")


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


def _judge(chosen: "Profile", mismatches: "Sequence[Mismatch]", repeat: str) -> None:
    for mismatch in mismatches:
        operation = chosen.operation(mismatch.stage)
        say(f"samebits: mismatch: {mismatch}{f' (op {operation})' if operation else ''}")
        devices = "".join(f" --device {id_}" for id_ in dict.fromkeys((mismatch.against, mismatch.device)))
        say(f"repeat it: samebits {repeat}{devices}")
    sys.exit(1 if mismatches else 0)
