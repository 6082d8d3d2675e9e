"""Fast forms of kernels beside their scalar twins: what a device advertises, and what it got right, are two columns."""

from collections.abc import Sequence

from harness import table as tables
from harness.kernels import KERNELS
from harness.records import Run

HEAD = ("device", "fast form", "advertised", "verdicts", "scalar twin's verdicts")


def rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """One a device and fast form that it was asked for: the device, the form, `yes` where the device advertises the unit."""
    table = tables.pivot(runs, by_kernel=True)
    if table.empty:
        return []
    features = {tables.row_name(run): run.header.device.features for run in runs}
    found: list[tuple[str, ...]] = []
    for device, cells in table.iterrows():
        for kernel in KERNELS:
            form = f"{kernel.name} {kernel.variant}"
            if kernel.unit and cells.get(form, "no data") != "no data":
                advertised = "yes" if kernel.unit in features[device] else "no"
                found.append((device, form, advertised, cells[form], cells.get(f"{kernel.name} base", "no data")))
    return found
