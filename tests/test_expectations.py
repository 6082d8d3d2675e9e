"""Expectations: what an entry fits, what a result becomes under it, and that a rotten entry is refused."""

from datetime import date
from pathlib import Path

import msgspec
import pytest

from harness import expectations, folders
from harness.devices import Device, without_optimiser
from harness.errors import InputRefused, UsageError
from harness.expectations import Known
from harness.records import Run, run_parts
from harness.verdicts import Result

STRUCK = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0;schedule=reverse;variant=base"
TODAY = date(2026, 1, 15)
DEVICE = Device("opencl:pocl:0", "opencl", "pocl", vendor="Example", name="Fine Card 9", driver="Mesa 22.3.6 (LLVM 15)")
ENTRY = {
    "name": "'one'",
    "vendor": "'example'",
    "runs": f"'{STRUCK}'",
    "verdict": "'mismatch'",
    "reason": "'a lost carry'",
    "since": "2025-11-30",
}


def written(folder: Path, *changes: dict[str, str | None], name: str = "faults.toml") -> Path:
    """A file with an entry for each of `changes` to ENTRY; None takes a key away."""
    texts = []
    for change in changes or ({},):
        lines = [f"{key} = {value}" for key, value in (ENTRY | change).items() if value is not None]
        texts.append("\n".join(["[[expect]]", *lines]))
    path = folder / name
    path.write_text("\n".join(texts))
    return path


def loaded(folder: Path, *changes: dict[str, str | None]) -> list[Known]:
    """The entries of such a file, as on TODAY."""
    return expectations.load(written(folder, *changes), TODAY)


def result(verdict: str, run: str = STRUCK, role: str = "case") -> Result:
    """A result of that run key."""
    parts = run_parts(run)
    assert parts
    return Result(run, *parts, verdict, "0" * 64, "1" * 64, role, detail="1 of 323 wrong")


def seen(known: list[Known], *results: Result, device: Device = DEVICE) -> list[Result]:
    """What becomes of results on a device."""
    header = type("Header", (), {"device": device})()
    run = Run(header, results, (), None, None, Path("record"), None)
    return list(expectations.apply([run], known)[0].results)


def test_a_known_fault_is_waived_and_says_what_it_was_and_why(tmp_path: Path) -> None:
    """The reason and the link stand beside it, and what the device did."""
    (waived,) = seen(loaded(tmp_path, {"link": "'https://example.org/1'"}), result("mismatch"))
    assert (waived.verdict, waived.was) == ("waived", "mismatch")
    assert waived.detail == "one: a lost carry; https://example.org/1; 1 of 323 wrong"


def test_a_match_where_a_fault_was_expected_is_a_fix_that_names_the_entry(tmp_path: Path) -> None:
    """So that nobody has to look for what to remove."""
    (fix,) = seen(loaded(tmp_path), result("match"))
    assert (fix.verdict, fix.was) == ("fix", "mismatch")
    assert fix.detail == "mismatch was expected: remove 'one' from faults.toml (a lost carry)"


@pytest.mark.parametrize(
    "verdict", ["crash", "nondeterministic", "unsupported", "not-run", "informational", "compiled"]
)
def test_a_fault_of_another_kind_and_what_says_nothing_stay_as_they_are(tmp_path: Path, verdict: str) -> None:
    """An entry covers the fault that it names, and what did not run is never a fix."""
    assert seen(loaded(tmp_path), result(verdict)) == [result(verdict)]


def test_a_twin_that_mismatches_is_neither_waived_nor_fixed_but_its_crash_can_be_known(tmp_path: Path) -> None:
    """The known-bad twin has to mismatch; a compiler that dies of the kernel dies of the twin too."""
    twin = result("mismatch", role="known-bad")
    assert seen(loaded(tmp_path), twin) == [twin]
    crash = result("crash", role="known-bad")
    assert seen(loaded(tmp_path, {"verdict": "'crash'"}), crash)[0].verdict == "waived"


def test_a_known_crash_does_not_excuse_the_end_of_the_worker(tmp_path: Path) -> None:
    """A shutdown result names the run key that happened to come last."""
    end = result("crash", role="shutdown")
    assert seen(loaded(tmp_path, {"verdict": "'crash'"}), end) == [end]


def test_two_entries_may_name_different_faults_of_one_run_key(tmp_path: Path) -> None:
    """As when a driver's crash became a mismatch."""
    known = loaded(tmp_path, {}, {"name": "'two'", "verdict": "'crash'"})
    assert [r.was for r in seen(known, result("mismatch"), result("crash"))] == ["mismatch", "crash"]


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"vendor": "'other'"}, False),
        ({"api": "'opencl'"}, True),
        ({"api": "'vulkan'"}, False),
        ({"device": "'opencl:pocl:0'"}, True),
        ({"device": "'opencl:po*'"}, True),
        ({"device": "'opencl:po'"}, False),
        ({"device": "'fine card'"}, True),
        ({"device": "'other card'"}, False),
        ({"driver": "'>=22.3,<22.4'"}, True),
        ({"driver": "'<22.3.6'"}, False),
        ({"driver": "'>22.3.6'"}, False),
        ({"driver": "'>=9'"}, True),
    ],
)
def test_every_device_key_that_is_named_must_fit(tmp_path: Path, change: dict[str, str], fits: bool) -> None:
    """Driver versions compare as numbers: 22 comes after 9."""
    assert seen(loaded(tmp_path, change), result("mismatch"))[0].verdict == ("waived" if fits else "mismatch")


def test_a_driver_range_fits_no_driver_without_a_number(tmp_path: Path) -> None:
    """What cannot be compared is not covered."""
    device = msgspec.structs.replace(DEVICE, driver="nightly")
    assert seen(loaded(tmp_path, {"driver": "'>=0'"}), result("mismatch"), device=device)[0].verdict == "mismatch"


@pytest.mark.parametrize(
    ("driver", "number"),
    [
        ("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", "22.3.6"),
        ("4.5 (Core Profile) Mesa 22.3.6", "22.3.6"),
        ("OpenGL ES 3.2 Mesa 24.0.9-0ubuntu0.1", "24.0.9"),
        ("4.6.0 NVIDIA 550.54.14", "550.54.14"),
        ("550.54.14 (CUDA 12.4)", "550.54.14"),
        ("SwiftShader driver 5.0.0", "5.0.0"),
        ("Intel(R) OpenCL 2026.22.10.0.01_160000", "2026.22.10.0.1"),
    ],
)
def test_a_range_is_over_the_driver_s_number_and_not_over_that_of_opengl(
    tmp_path: Path, driver: str, number: str
) -> None:
    """Else `<23` would fit every Mesa by OpenGL, for 4.5 is less."""
    device = msgspec.structs.replace(DEVICE, driver=driver)
    known = loaded(tmp_path, {"driver": f"'=={number}'"})
    assert seen(known, result("mismatch"), device=device)[0].verdict == "waived"


@pytest.mark.parametrize(
    ("runs", "fits"),
    [
        ("gemm_i32;*", True),
        ("*;schedule=reverse", True),
        ("*;schedule=reverse;variant=base", True),
        ("gemm_i32;*;schedule=tree", False),
        ("gemm_i32;*;variant=fast", False),
        ("linear_q8_0;*", False),
        (STRUCK.partition(";schedule")[0], True),
    ],
)
def test_a_selector_names_ids_prefixes_schedules_and_variants(tmp_path: Path, runs: str, fits: bool) -> None:
    """The grammar of --case."""
    assert seen(loaded(tmp_path, {"runs": f"'{runs}'"}), result("mismatch"))[0].verdict == (
        "waived" if fits else "mismatch"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vendr": "'x'"}, "unknown field `vendr`"),
        ({"reason": None}, "missing required field `reason`"),
        ({"reason": "''"}, "reason is empty"),
        ({"verdict": "'match'"}, "'match' is no fault"),
        ({"verdict": "'waived'"}, "'waived' is no fault"),
        ({"vendor": None}, "it would fit every device"),
        ({"api": "'glide'"}, "no API 'glide'"),
        ({"driver": "'about 3'"}, "is no version range"),
        ({"runs": "'gemm_i32;m=17;*;schedule=sideways'"}, "no schedule 'sideways'"),
        ({"runs": "'gemm_i32;*;variant=slow'"}, "no variant 'slow'"),
        ({"runs": "'conv_i32;*'"}, "matches no run key"),
        ({"runs": "'gemm_i32;m=3;n=3;k=3;dist=full;seed=1'"}, "matches no run key"),
        ({"api": "'cuda'", "runs": "'gemm_i32;*;variant=fast'"}, "matches no run key"),
        ({"until": "2026-01-14"}, "expired on 2026-01-14"),
        ({"until": "2025-01-01"}, "is before since"),
        ({"since": "2026-01-16"}, "in the future"),
        ({"since": "'yesterday'"}, "Invalid RFC3339"),
    ],
)
def test_an_entry_that_rots_is_refused_in_one_line_with_file_entry_and_mend(
    tmp_path: Path, change: dict[str, str | None], words: str
) -> None:
    """A silent entry would excuse what nobody knows of."""
    with pytest.raises(InputRefused) as refused:
        loaded(tmp_path, change)
    text = str(refused.value)
    assert words in text and "faults.toml, entry 'one': " in text and "; " in text and "\n" not in text


def test_the_last_day_of_an_entry_counts(tmp_path: Path) -> None:
    """`until` is the last day on which it holds."""
    assert loaded(tmp_path, {"until": TODAY.isoformat()})


def test_a_name_is_taken_once_over_all_files_of_a_folder(tmp_path: Path) -> None:
    """Names stand in reports."""
    written(tmp_path, name="a.toml")
    written(tmp_path, name="b.toml")
    with pytest.raises(InputRefused, match=r"b\.toml, entry 'one': the name is taken in a\.toml"):
        expectations.load(tmp_path, TODAY)


@pytest.mark.parametrize(
    "data",
    [b"expect = 1", b"expect = [1]", b"[expect", b"\xff", b"[[expected]]", b"x = " + b"[" * 100_000, bytes(1 << 21)],
)
def test_what_is_no_file_of_expectations_is_refused(tmp_path: Path, data: bytes) -> None:
    """No traceback whatever is in it."""
    path = tmp_path / "x.toml"
    path.write_bytes(data)
    with pytest.raises(InputRefused, match=r"x\.toml"):
        expectations.load(path)


def test_an_empty_folder_expects_nothing_and_a_missing_one_is_a_usage_error(tmp_path: Path) -> None:
    """Only what is there is read."""
    assert expectations.load(tmp_path) == []
    with pytest.raises(UsageError, match="no expectations at"):
        expectations.load(tmp_path / "nowhere")


def test_what_samebits_ships_is_well_formed() -> None:
    """The folder is there, in a checkout and in a wheel, and no entry has rotted."""
    assert folders.expectations_root().is_dir()
    expectations.load()


@pytest.mark.parametrize(("optimiser", "on", "off"), [("on", "waived", "mismatch"), ("off", "mismatch", "waived")])
def test_an_entry_may_speak_of_the_device_with_or_without_its_optimiser(
    tmp_path: Path, optimiser: str, on: str, off: str
) -> None:
    """A constant folder's fault goes with the optimiser, and its absence is no fix."""
    known = loaded(tmp_path, {"optimiser": f"'{optimiser}'"})
    assert seen(known, result("mismatch"))[0].verdict == on
    assert seen(known, result("mismatch"), device=without_optimiser(DEVICE))[0].verdict == off
