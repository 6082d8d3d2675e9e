"""Ids, selectors and presets."""

from dataclasses import replace

import pytest

from harness import kernels, presets
from harness.cases import _also, parse_case, select
from harness.errors import UsageError
from harness.families import probe_rows
from harness.kernels import KERNELS, Kernel, find
from harness.schedules import NAMES, accumulators


@pytest.mark.parametrize("case", presets.all_cases(), ids=lambda c: c.id)
def test_every_id_parses_back_to_its_case_and_has_a_reason(case) -> None:  # type: ignore[no-untyped-def]
    """One string is id and selector."""
    assert parse_case(case.id).version == case.version
    assert case.reason


@pytest.mark.parametrize(
    "text",
    [
        "nothing;m=1",
        "gemm_i32",
        "gemm_i32;m=1;n=1;k=1;dist=full",
        "gemm_i32;m=0;n=1;k=1;dist=full;seed=0",
        "gemm_i32;m=1;n=1;k=x;dist=full;seed=0",
        "gemm_i32;n=1;m=1;k=1;dist=full;seed=0",
        "gemm_i32;m=1;m=1;n=1;k=1;dist=full;seed=0",
        "gemm_i32;m=1;n=1;k=1;dist=nope;seed=0",
        "linear_q8_0;m=1;n=1;k=33;dist=full;seed=0",
        "",
    ],
)
def test_a_malformed_id_is_refused_in_one_line(text: str) -> None:
    """The message names the id."""
    with pytest.raises(UsageError) as error:
        parse_case(text)
    assert "\n" not in str(error.value)


def test_a_selector_that_matches_nothing_is_an_error() -> None:
    """No silent empty selection."""
    with pytest.raises(UsageError, match="no case matches"):
        select(presets.cases("quick"), ["gemm_i64*"])


def test_a_prefix_selects_in_preset_order_without_doubles() -> None:
    """Options repeat; a case comes once."""
    cases = presets.cases("quick")
    found = select(cases, ["linear_q8_0*", "linear_q8_0;m=1*"])
    assert [c.id for c in found] == [c.id for c in cases if c.kernel == "linear_q8_0"]


def test_presets_grow_and_stay_distinct() -> None:
    """`full` holds `quick`; no case stands twice."""
    ids = {p: [c.id for c in presets.cases(p)] for p in presets.VERSION}
    assert set(ids["quick"]) < set(ids["full"])
    assert all(len(set(v)) == len(v) for v in ids.values())


@pytest.mark.parametrize("schedule", NAMES)
@pytest.mark.parametrize("k", [1, 7, 8, 31, 32, 33, 100, 1000])
def test_every_schedule_adds_every_term_exactly_once(schedule: str, k: int) -> None:
    """The index maps are permutations of 0..K-1."""
    assert sorted(i for part in accumulators(schedule, k, seed=3) for i in part) == list(range(k))


def test_the_shuffled_order_is_fixed_by_the_seed_and_not_ascending() -> None:
    """The schedule differs from `forward`, and not from itself."""
    first, again, other = (next(accumulators("tiled_shuffled", 999, seed=s)) for s in (1, 1, 2))
    assert first == again != other and first != sorted(first)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.variant}")
def test_every_plan_stays_inside_the_dispatch_limits_and_covers_the_output(kernel) -> None:  # type: ignore[no-untyped-def]
    """No dimension over 65,535 workgroups; no workgroup at all only in the case that tries that.

    Kernels that reduce have more than one entry point only under split-K.
    """
    for case in (c for c in presets.all_cases() if c.kernel == kernel.name):
        for schedule in kernel.schedules:
            plan = kernel.plan(case, schedule)
            assert all(0 < g <= 65_535 for p in plan.passes for g in p.groups) or case.dist == "nothing"
            if kernel.reduces:
                assert (len({p.entry for p in plan.passes}) > 1) == (schedule == "split_k")
                assert plan.receipts == (tuple(range(len(kernel.entries))) if schedule == "split_k" else (0,))
            written = {p.entry for p in plan.passes if min(p.groups) > 0}
            assert plan.receipts == tuple(i for i, entry in enumerate(kernel.entries) if entry in written)


def test_the_version_of_a_probe_s_case_is_over_its_rows_and_its_operations(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """One operand changed, or two operations in another order: another version, and no number was raised."""
    case = parse_case("probe_div;rows=2;dist=overflow;seed=0")
    before = case.version
    monkeypatch.setattr(probe_rows, "table", lambda kernel, distribution: ((2, (1, 1, 0, 0)), (3, (1, 2, 0, 0))))
    _also.cache_clear()
    other_rows = case.version
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "KERNELS", [_reordered(k) if k.name == "probe_div" else k for k in KERNELS])
    _also.cache_clear()
    other_order = case.version
    monkeypatch.undo()
    _also.cache_clear()
    assert case.version == before and len({before, other_rows, other_order}) == 3


def _reordered(kernel: Kernel) -> Kernel:
    assert kernel.probe
    return replace(kernel, probe=replace(kernel.probe, operations=kernel.probe.operations[::-1]))


def test_an_unknown_variant_is_refused() -> None:
    """The catalogue has no silent default."""
    with pytest.raises(UsageError, match="no variant"):
        find("gemm_i32", "magic")
