"""Shards: one preset over several commands or machines, and which of them never came back.

A run key's shard is a function of the key alone, so every device and every machine cut alike. The checks of each kernel
are done in every shard.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness import presets, selections
from harness.errors import InputRefused, UsageError
from harness.records import Planned, Run, unit
from harness.selections import Shard
from harness.tasks import language_of, tasks


def absent(runs: Sequence[Run]) -> list[tuple[Run, Shard]]:
    """The shards that no run of `runs` did, each with a run that did another one of the same preset on the same device."""
    groups: dict[tuple[object, ...], dict[Shard, Run]] = defaultdict(dict)
    for run in runs:
        shard = _shard(run)
        if shard:
            h = run.header
            key = (unit(h.device), h.preset, h.preset_version, h.options.get("cases"), shard.count)
            groups[key][shard] = run
    return [
        (next(iter(done.values())), Shard(number, shard.count))
        for done in groups.values()
        for shard in [next(iter(done))]
        for number in range(1, shard.count + 1)
        if Shard(number, shard.count) not in done
    ]


def with_lost(runs: Sequence[Run]) -> list[Run]:
    """`runs`, and for each lost shard a run of which nothing was done: what it had to do is `not-run`."""
    return [*runs, *(_lost(run, shard) for run, shard in absent(runs))]


def _shard(run: Run) -> Shard | None:
    text = run.header.options.get("shard")
    try:
        return None if text is None else Shard.parse(str(text))
    except UsageError as e:
        raise InputRefused(f"record {run.path}: {e}; leave it out") from None


def _lost(run: Run, shard: Shard) -> Run:
    planned = _planned(run, shard)
    header = msgspec.structs.replace(
        run.header,
        run_id=f"lost shard {shard} of {run.header.run_id}",
        parent=None,
        planned=planned,
        options=run.header.options | {"shard": str(shard)},
    )
    detail = f"no record of shard {shard}"
    return dataclasses.replace(
        run,
        header=header,
        results=tuple(p.not_run(detail) for p in planned),
        voids=(),
        footer=None,
        under_way=(),
        path=Path(f"no-record-of-shard-{shard.number}-of-{shard.count}"),
        sha256=None,
    )


def _planned(run: Run, shard: Shard) -> list[Planned]:
    """What the shard had to do; nothing where this samebits does not know the list: another version of the preset,
    or an API that is not there. The run is incomplete all the same."""
    h = run.header
    if presets.VERSION.get(h.preset) != h.preset_version:
        return []
    try:
        wanted = selections.chosen(h.preset, str(h.options.get("cases", "")).split(), shard)
        language = language_of(h.device)
    except (UsageError, KeyError):
        return []
    return [p for task in tasks(wanted, language) for p in task.planned(language)]
