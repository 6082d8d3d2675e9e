"""Records of whole passes: what the gate asks of them, and how the README shows them."""

import dataclasses
from pathlib import Path

import msgspec
from record_maker import DEVICE, header, result

from harness import matrix, report
from harness.records import Footer, Run
from harness.verdicts import Result

FORWARD, TREE = (
    f"pass_dyadic_q16;t=3;dist=licence;seed=2;model=tiny;schedule={schedule};variant=base"
    for schedule in ("forward", "tree")
)


def run_of(*results: Result, preset: str = "full", cases: str = "", name: str = "vulkan:a:0") -> Run:
    described = msgspec.structs.replace(DEVICE, id=name)
    made = msgspec.structs.replace(
        header(), device=described, preset=preset, run_id=f"{name} {preset}", options={"cases": cases} if cases else {}
    )
    return Run(made, results, (), Footer(made.started, {}, True, None), (), Path("x.jsonl.gz"), "0" * 64)


def of(run: str, verdict: str = "match") -> Result:
    return msgspec.structs.replace(result(run, verdict), case=run.partition(";schedule=")[0])


def test_a_match_without_the_checks_of_its_kernels_is_no_evidence() -> None:
    """The gate asks for them by name."""
    said = [s for s in matrix.judge([run_of(of(FORWARD))]).missing if "known-bad twin" in s]
    assert "rmsnorm" in said[0] and "pass_dyadic_q16" not in said[0]


def test_the_readme_shows_a_whole_preset_and_the_passes_of_a_part_beside_it() -> None:
    """A few selected cases of `full` do not hide what a device did of `quick`."""
    gemm = "gemm_i32;m=1;n=1;k=1;dist=full;seed=0;schedule=tree;variant=base"
    quick = run_of(of(gemm), preset="quick")
    part = run_of(of(FORWARD), of(TREE, "mismatch"), cases=FORWARD)
    head, _, row = report.readme_table([quick, part]).splitlines()
    assert head == "| device | name | driver | date | preset | seconds | gemm | whole | dyadic-q16 |"
    assert row.endswith(
        "| quick 1 | quick 0; part of full 0 | 1 match | 1 mismatch, 1 match | mismatch in whole passes of 3 tokens |"
    )
    spoilt = dataclasses.replace(part, results=(of(FORWARD),))
    assert report.readme_table([spoilt]).splitlines()[-1].endswith("| 1 match | whole passes of 3 tokens match |")
    entire = run_of(of(gemm), of(FORWARD))
    assert (
        report.readme_table([entire, quick, part])
        .splitlines()[-1]
        .endswith("| full 1 | full 0; quick 0 | 1 match | 1 mismatch, 1 match | mismatch in whole passes of 3 tokens |")
    )
