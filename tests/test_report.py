"""What a user reads: every failure with its window and command, and no word of a stranger that a terminal or page obeys."""

import csv
import dataclasses
import io
import json
import re
import runpy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import ROOT
from record_maker import DEVICE, RUNS, header, result

from harness import matrix, report, store, table
from harness.profiles import PROFILES
from harness.records import Footer, Run, Void
from harness.report import fast_paths
from harness.schedules import NAMES
from harness.verdicts import TABLE, Difference, Result

HOSTILE = (
    "=cmd|'/c calc'!A1 [red]x[/red] \x1b[31m\x9b2J\u202e\n| `code` <script> [a](http://evil.example) :bomb: @everyone"
)


def run_of(*results: Result, name: str = "NVIDIA Test", voids: tuple[Void, ...] = (), **device: Any) -> Run:
    """A record as read back."""
    described = msgspec.structs.replace(DEVICE, name=name, **device)
    made = msgspec.structs.replace(header(), device=described)
    return Run(made, results, voids, Footer(made.started, {}, True, None), None, Path("x.jsonl.gz"), "0" * 64)


def printed(runs: list[Run], capsys: pytest.CaptureFixture[str], **more: Any) -> str:
    """The terminal's report, as a pipe gets it."""
    report.print_gate(matrix.judge(runs, **more), runs, reduced=True)
    return capsys.readouterr().out


WRONG = result(
    RUNS[1],
    "mismatch",
    digest="b" * 64,
    detail="1 of 9 wrong",
    difference=Difference([0, 4], 1, 0, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, -55, 6], {"a": [7, 8]}),
    repeat=f"samebits run --device vulkan:lvp:0 --case '{RUNS[1]}'",
)


def test_a_failure_shows_its_run_key_window_marks_operands_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Enough to see what is wrong, and to do it again."""
    out = printed([run_of(result(), WRONG)], capsys)
    assert f"MISMATCH vulkan:lvp:0 {RUNS[1]}" in out and "first at [0, 4], 1 in all" in out
    expected, actual, marks = (
        next(x for x in out.splitlines() if word in x) for word in ("  expected", "  actual", "^")
    )
    assert actual.index("-55") == marks.index("^^^") and expected[: marks.index("^^^") + 3].endswith("5")
    assert "a: 7, 8" in out and f"repeat: {WRONG.repeat}" in out


def test_a_piped_report_has_no_colour_and_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A log keeps whole run keys."""
    out = printed([run_of(WRONG)], capsys)
    assert "\x1b" not in out and RUNS[1] in out


def test_the_report_says_gate_what_is_missing_and_that_it_was_reduced(capsys: pytest.CaptureFixture[str]) -> None:
    """A reduced run shouts that it is one."""
    out = printed([run_of(result())], capsys, missing=["expected device lavapipe is missing"])
    assert "gate: OPEN" in out and "REDUCED" in out and "missing for PASS: expected device lavapipe is missing" in out


def test_what_is_advertised_and_what_is_right_are_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A driver may advertise a packed dot product that is wrong; its scalar twin stands beside it."""
    case = "gemm_i8;m=1;n=1;k=1;dist=full;seed=0"
    run = f"{case};schedule=forward;variant="
    right = msgspec.structs.replace(result(run + "base"), case=case)
    wrong = msgspec.structs.replace(result(run + "dot4", "mismatch"), case=case, variant="dot4")
    runs = [run_of(right, wrong, features=["dot4-s8-unit"]), run_of(right, id="opencl:b:0")]
    cells = ["vulkan:lvp:0", "gemm_i8 dot4", "yes", "1 mismatch of 1", "1 match"]
    assert fast_paths.rows(runs) == [tuple(cells)]
    assert "  ".join(cells[1:4]) in " ".join(printed(runs, capsys).split()).replace(" yes ", "  yes  ")
    assert "| " + " | ".join(cells) + " |" in report.to_markdown(matrix.judge(runs), runs)
    absent = msgspec.structs.replace(right, variant="dot4", verdict="unsupported")
    assert fast_paths.rows([run_of(right, absent)])[0][2:4] == ("no", "1 unsupported")


def controls(*digests: str) -> list[Result]:
    """The control under as many schedules, with these digests."""
    case = "gemm_f32;m=1;n=1;k=2;dist=magnitudes;seed=0"
    return [
        msgspec.structs.replace(
            result(f"{case};schedule={schedule};variant=base", "informational", digest=digest * 64, expected=None),
            case=case,
            schedule=schedule,
        )
        for schedule, digest in zip(NAMES, digests, strict=False)
    ]


@pytest.mark.parametrize(("digests", "said"), [("abcde", "diverged (5 digests)"), ("aabba", "diverged (2 digests)")])
def test_the_control_shows_its_digests_on_each_device(
    digests: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the terminal, in Markdown and in JSON; another device's digests are not counted in."""
    runs = [run_of(result(), *controls(*digests)), run_of(result(), *controls(*"fffff"), id="opencl:b:0")]
    gate = matrix.judge(runs)
    assert [d["control"] for d in gate.plain()["devices"]] == [said, "no power"]
    for text in (printed(runs, capsys), report.to_markdown(gate, runs)):
        lines = [x.rstrip(" |") for x in text.splitlines() if "the control has" not in x]
        cells = [x for x in lines if x.endswith((said, "no power"))]
        assert ["lvp" in x for x in cells] == [True, False] and "opencl:b" in cells[1]


def test_a_control_without_power_is_said_and_never_green(capsys: pytest.CaptureFixture[str]) -> None:
    """All match, but nothing shows that the schedules reorder: the row says so, in another colour."""
    runs = [run_of(result(), *controls(*"aaaaa"))]
    assert "1 match; the control has no power" in " ".join(printed(runs, capsys).split())
    row = matrix.judge(runs).rows[0]
    styles = [
        str(report._device_table([r], "verdicts", report._counts).columns[-1]._cells[0].style)
        for r in (row, matrix.Row(DEVICE, {"match": 1}))
    ]
    assert styles == [report.STYLES["orange"], report.STYLES["green"]]


def test_a_control_that_crashed_shows_that_instead() -> None:
    """Digests of the other schedules do not hide it."""
    broken = msgspec.structs.replace(controls(*"a")[0], verdict="crash", digest=None)
    assert list(table.pivot([run_of(*controls(*"abcde"), broken)])["control"]) == ["1 crash of 6"]


NEL = [kernel for kernels in PROFILES["nel-mini-w8a8"].operations.values() for kernel in kernels]


@pytest.mark.parametrize(
    ("words", "cell"),
    [
        ({}, "11 of 11 operations match"),
        ({"nel_mix": ["match", "unsupported"]}, "11 of 11 operations match"),
        ({"nel_mix": ["unsupported"]}, "unsupported in mix; 10 of 11 operations match"),
        ({"nel_mix": []}, "10 of 11 operations match"),
        ({"nel_mix": ["match", "mismatch"]}, "mismatch in mix; 10 of 11 operations match"),
        (
            {"nel_rope": ["waived"], "nel_mix": ["crash", "match"], "nel_act": ["crash"]},
            "crash in mix, act; waived in rope; 8 of 11 operations match",
        ),
        ({kernel: ["compiled"] for kernel in NEL}, "11 of 11 operations compiled"),
    ],
)
def test_a_profiles_cell_counts_operations_and_names_those_with_a_fault(words: dict[str, list[str]], cell: str) -> None:
    """In every table: an operation is worth its worst verdict, the worst first."""
    named = {kernel: words.get(kernel, ["match"]) for kernel in NEL}
    made = [
        msgspec.structs.replace(result(), case=f"{kernel};m=1;seed={i}", verdict=verdict)
        for kernel, verdicts in named.items()
        for i, verdict in enumerate(verdicts)
    ]
    assert list(table.pivot([run_of(*made, *controls(*"ab"))])["nel-mini-w8a8"]) == [cell]
    assert f"| {cell} |" in report.readme_table([run_of(*made)])


def test_a_kernel_of_two_operations_counts_for_both() -> None:
    """`gate` of dyadic-q16 makes silu too."""
    made = msgspec.structs.replace(result(), case="gate;m=1;n=1;dist=full;seed=0")
    assert list(table.pivot([run_of(made)])["dyadic-q16"]) == ["2 of 11 operations match"]


def test_a_void_device_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """And counts nothing."""
    out = printed([run_of(result(), voids=(Void("the nonce did not come back"),))], capsys)
    assert "gate: VOID" in out and "VOID vulkan:lvp:0: the nonce did not come back" in out


def test_a_device_without_a_run_is_a_row_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Not an absence."""
    broken = msgspec.structs.replace(DEVICE, id="vulkan:bad", status="crash", phase="load", reason="signal 11")
    out = printed([run_of(result())], capsys, others=[broken])
    row = next(line for line in out.splitlines() if line.startswith("vulkan:bad"))
    assert "crash (load)" in row and "signal 11" in row


def test_no_word_of_a_driver_reaches_the_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, direction marks and line ends go; brackets and colons stay what they are."""
    run = run_of(result(), result(RUNS[1], "crash", detail=HOSTILE, digest=None), name=HOSTILE[:60], id="opencl:x:0")
    out = printed([run], capsys)
    report.print_run(run)
    out += capsys.readouterr().out
    assert not set(out) & set("\x1b\x9b\u202e") and "[red]x[/red]" in out and ":bomb:" in out and "opencl:x:0" in out


def test_no_word_of_a_driver_leaves_its_markdown_cell() -> None:
    """No cell end, tag, link, code or mention; the table keeps its columns."""
    runs = [run_of(result(), name=HOSTILE)]
    text = report.to_markdown(matrix.judge(runs), runs)
    row = next(line for line in text.splitlines() if "cmd" in line)
    columns = row.replace("\\|", "").strip("|").split("|")
    assert len(columns) == 7 and "<script" not in row.replace("\\<", "") and "](" not in row.replace("\\]", "")
    assert "`" not in row.replace("\\`", "") and "@" not in row and "://" not in row


def test_markdown_shows_date_driver_and_counts_of_each_device_and_the_gate() -> None:
    """What a published table must say."""
    runs = [run_of(result(), WRONG)]
    text = report.to_markdown(matrix.judge(runs), runs)
    assert (
        runs[0].header.started[:10] in text and "| 1.2 |" in text and "1 mismatch" in text and "gate: **FAIL**" in text
    )


def test_csv_has_a_line_for_each_run_key_and_no_formula() -> None:
    """A spreadsheet may open it."""
    runs = [run_of(result(), WRONG, name=HOSTILE)]
    lines = list(csv.DictReader(io.StringIO(report.to_csv(runs))))
    assert [line["verdict"] for line in lines] == ["match", "mismatch"] and {line["run"] for line in lines} == set(
        RUNS[:2]
    )
    assert all(line["name"].startswith("'=cmd") and "\n" not in line["name"] for line in lines)


def test_csv_of_nothing_is_empty() -> None:
    """No record, no line, no traceback."""
    assert report.to_csv([]).strip() in ("", '""')


@pytest.mark.parametrize("word", TABLE)
def test_every_verdict_can_be_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In all forms."""
    runs = [run_of(result(verdict=word, was="mismatch", phase="run"))]
    out = printed(runs, capsys)
    report.print_run(runs[0])
    assert word in out and word in capsys.readouterr().out
    assert word in report.to_markdown(matrix.judge(runs), runs) and word in report.to_csv(runs)


def test_the_json_object_has_what_is_promised() -> None:
    """Names of the object and of a device; other programs read them."""
    gate = json.loads(msgspec.json.encode(matrix.judge([run_of(result(), WRONG)]).plain()))
    assert {"gate", "missing", "preset", "complete", "devices", "failures", "records"} <= set(gate)
    assert {"id", "api", "kind", "vendor", "name", "driver", "status", "counts"} <= set(gate["devices"][0])
    (failure,) = gate["failures"]
    assert failure["run"] == RUNS[1] and failure["device"] == "vulkan:lvp:0" and failure["repeat"] == WRONG.repeat
    assert gate["devices"][0]["counts"] == {"match": 1, "mismatch": 1} and gate["records"] == ["x.jsonl.gz"]


def test_the_readmes_table_shows_each_device_under_its_largest_preset_by_family() -> None:
    """The worst verdict first; what a device was not asked is `no data`."""

    def of(name: str, preset: str, *results: Result) -> Run:
        made = run_of(*results, id=name, api=name.partition(":")[0])
        told = msgspec.structs.replace(made.header, preset=preset, preset_version="3", run_id=f"{name} {preset}")
        begin = datetime.fromisoformat(told.started)
        footer = Footer((begin + timedelta(seconds=93.7)).isoformat(), {}, True, None)
        return dataclasses.replace(made, header=told, footer=footer)

    other = result("linear_q8_0;m=1;n=1;k=32;dist=full;seed=0;schedule=tree;variant=base")
    other = msgspec.structs.replace(other, case=other.run.partition(";schedule")[0])
    text = report.readme_table(
        [
            of("opencl:b:0", "quick", WRONG),
            of("opencl:b:0", "full", result(), other, *controls(*"abacd")),
            of("vulkan:a:0", "tiny", result(), WRONG, result(RUNS[2], "known-bad", role="known-bad")),
        ]
    )
    head, _, first, second = text.splitlines()
    assert head == "| device | name | driver | date | preset | seconds | gemm | control | linear | dyadic-q16 |"
    assert first.startswith("| vulkan:a:0, hardware |") and first.endswith(
        "| tiny 3 | tiny 93 | 1 mismatch, 1 match | no data | no data | no data |"
    )
    cells = "| full 3 | quick 93; full 93 | 1 match | diverged (4 digests) | 1 match | 1 of 11 operations match |"
    assert second.endswith(cells) and "1.2" in second


def test_the_readmes_table_calls_a_void_run_void() -> None:
    """Its results count for nothing."""
    assert "| VOID |" in report.readme_table([run_of(result(), voids=(Void("the twin matched"),))])


def test_the_readmes_table_does_not_call_a_selection_a_preset() -> None:
    """A record of chosen cases is a part, whatever preset they were chosen from."""
    run = run_of(result())
    assert "part of" not in report.readme_table([run])
    header = msgspec.structs.replace(run.header, options={"cases": RUNS[0]})
    assert "| part of tiny " in report.readme_table([dataclasses.replace(run, header=header)])


@pytest.mark.parametrize("ended", ["", "2001-01-01T00:00:00", "2001-01-01T00:00:00Z", "soon"])
def test_an_end_that_makes_no_sense_has_no_seconds(ended: str) -> None:
    """Before the start, without a zone, or no time at all: other tools may have written the record."""
    assert dataclasses.replace(run_of(result()), footer=Footer(ended, {}, True, None)).seconds is None
    assert dataclasses.replace(run_of(result()), footer=None).seconds is None


def test_the_readme_holds_what_the_committed_records_generate() -> None:
    """Else run `scripts/readme_matrix.py`. Every record names a date and a driver, and no user, host or folder."""
    script = runpy.run_path(str(ROOT / "scripts/readme_matrix.py"))
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"<!-- matrix:begin -->\n(.*)<!-- matrix:end -->\n", readme, re.DOTALL)
    assert block == script["generated"]()
    records = store.collect([ROOT / "matrices/runs"])
    assert len({run.header.device.id for run in records}) >= 10
    for run in records:
        assert run.header.started and run.header.device.driver and not run.header.identified
        text = str(run.header) + str(run.results)
        assert not re.search(r"/(tmp|home|root|usr|work)/", text), run.path
