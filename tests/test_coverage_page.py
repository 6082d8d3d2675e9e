"""docs/coverage.md: up to date, whole, and true of what there is."""

import re

import pytest

from harness import coverage
from harness.families import probe_rows
from harness.selections import of_selectors

FAULTS = probe_rows.faults()


def test_the_page_is_what_its_table_gives() -> None:
    """`python -m harness.coverage` writes it again."""
    assert coverage.PAGE.read_text("utf-8") == coverage.page()


def test_every_known_fault_stands_in_the_table_once_and_no_other() -> None:
    """The ids of docs/integer-faults.md, in their order."""
    listed = re.findall(r"^\| (B\d+) \|", (coverage.PAGE.parent / "integer-faults.md").read_text("utf-8"), re.M)
    assert len(listed) > 80
    assert [fault["id"] for fault in FAULTS] == listed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f["id"])
def test_a_fault_has_run_keys_that_exist_or_a_reason(fault) -> None:  # type: ignore[no-untyped-def]
    """Not both; what has run keys is planted by a test."""
    assert bool(fault.get("rows") or fault.get("case") or fault.get("runs")) != bool(fault.get("reason"))
    assert ("rows" in fault or "case" in fault) == ("imitation" in fault)
    assert ("imitation" in fault) + ("planted_by" in fault) + ("reason" in fault) == 1
    for run in [*fault.get("runs", []), *coverage._case(fault)]:
        assert of_selectors([run])
