"""The life of a driver's fault, told from the command line: a test for each command that a user would type."""

import json
import subprocess
from pathlib import Path

from command import samebits
from junitparser import JUnitXml, Skipped

CASE = "gemm_i32;m=17;n=19;k=23*"
RUN = "gemm_i32;m=17;n=19;k=23;dist=full;seed=0;schedule=reverse;variant=base"
ENTRY = f"""
[[expect]]
name = "card-reverse"
device = "mock:card:*"
driver = ">=2"
runs = "{RUN}"
verdict = "mismatch"
reason = "the compiler loses a bit under reverse"
link = "https://example.org/bug/1"
since = 2020-01-01
"""


def counts(ran: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Verdicts of the one device."""
    found: dict[str, int] = json.loads(ran.stdout)["devices"][0]["counts"]
    return found


def test_a_fault_from_its_first_day_to_its_last(tmp_path: Path) -> None:
    """Unknown, regression, expected, waived, driver update, fix, entry removed, green."""
    known, none = tmp_path / "known", tmp_path / "none"
    known.mkdir()
    none.mkdir()

    def gate(driver: str, expectations: Path, *more: object) -> subprocess.CompletedProcess[str]:
        out = tmp_path / driver.replace("~", "-")
        selected = ["gate", "--device", "mock", "--preset", "tiny", "--case", CASE, "--out", out, "--json"]
        return samebits(tmp_path, *selected, "--expectations", expectations, *more, mock=f"card={driver}")

    def diff(old: str, new: str, expectations: Path) -> tuple[int, list[dict[str, object]]]:
        command = ["diff", tmp_path / old, tmp_path / new, "--expectations", expectations, "--json"]
        ran = samebits(tmp_path, *command)
        return ran.returncode, json.loads(ran.stdout)["changes"]

    # The fault is unknown, for it is not there yet.
    good = gate("match~1", none)
    assert good.returncode == 0 and counts(good) == {"match": 7}, good.stderr

    # A driver comes with it: the gate fails, and the diff says since when.
    bad = gate("mismatch~2", none)
    assert bad.returncode == 1 and json.loads(bad.stdout)["gate"] == "FAIL"
    code, (change,) = diff("match-1", "mismatch-2", none)
    assert (code, change["word"], change["run"]) == (1, "REGRESSION", RUN)
    assert change["changed"] == ["driver mock 1 -> mock 2"]

    # It gets an entry with a reason. The records are the same: now it is waived, and no evidence.
    (known / "mock.toml").write_text(ENTRY)
    junit = tmp_path / "junit.xml"
    waived = samebits(tmp_path, "matrix", tmp_path / "mismatch-2", "--expectations", known, "--junit", junit, "--json")
    verdict = json.loads(waived.stdout)
    assert waived.returncode == 0 and verdict["gate"] == "OPEN" and verdict["failures"] == []
    assert counts(waived) == {"match": 6, "waived": 1}
    assert verdict["waived"][0]["was"] == "mismatch" and "loses a bit" in verdict["waived"][0]["detail"]
    assert f"evidence of mock:card:0: waived (was mismatch): case {RUN}" in verdict["missing"]
    (skipped,) = [c for suite in JUnitXml.fromfile(str(junit)) for c in suite if c.result]
    assert skipped.name == RUN and isinstance(skipped.result[0], Skipped)
    assert "the compiler loses a bit under reverse" in skipped.result[0].message
    assert "https://example.org/bug/1" in skipped.result[0].message
    table = samebits(tmp_path, "matrix", tmp_path / "mismatch-2", "--expectations", known)
    assert "1 waived of 5" in table.stdout and "WAIVED (was mismatch) mock:card:0" in table.stdout
    code, (change,) = diff("match-1", "mismatch-2", known)
    assert (code, change["word"]) == (0, "KNOWN")

    # Another driver mends it: that is a fix, and exit 1 until the entry goes.
    fixed = gate("match~3", known)
    assert fixed.returncode == 1 and counts(fixed) == {"fix": 1, "match": 6}
    assert "remove 'card-reverse' from mock.toml" in json.loads(fixed.stdout)["failures"][0]["detail"]
    allowed = samebits(tmp_path, "matrix", tmp_path / "match-3", "--expectations", known, "--allow-fixes")
    assert allowed.returncode == 0 and "gate: OPEN" in allowed.stdout
    code, (change,) = diff("mismatch-2", "match-3", known)
    assert (code, change["word"], change["changed"]) == (0, "FIX", ["driver mock 2 -> mock 3"])

    # The entry goes.
    (known / "mock.toml").unlink()
    green = samebits(tmp_path, "matrix", tmp_path / "match-3", "--expectations", known, "--junit", junit, "--json")
    assert green.returncode == 0 and counts(green) == {"match": 7}
    assert not [c for suite in JUnitXml.fromfile(str(junit)) for c in suite if c.result]
