"""Shards: together they are the whole preset, and one that never came back is `not-run`."""

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from command import samebits

from harness import selections, shards, store
from harness.errors import InputRefused, UsageError
from harness.selections import Shard

CASES = "gemm_i32;m=17*"
HELD = ["gemm_i32;m=17;n=19;k=23;dist=full;seed=0;schedule=tree;variant=base"]
"""What of CASES is in shard 2/3."""


def test_every_run_key_is_in_exactly_one_shard() -> None:
    """For any number of shards, in every language."""
    for language in ("wgsl", "opencl"):
        whole = [r for s in selections.chosen("tiny") for r in s.runs(language)]
        for count in (1, 2, 7):
            parts = [selections.chosen("tiny", shard=Shard(number, count)) for number in range(1, count + 1)]
            assert sorted(map(str, whole)) == sorted(str(r) for part in parts for s in part for r in s.runs(language))


def test_a_run_key_keeps_its_shard_for_years() -> None:
    """Machines and versions have to cut alike, so the cut is pinned."""
    held = [str(r) for s in selections.chosen("tiny", [CASES], Shard(2, 3)) for r in s.runs("opencl")]
    assert held == HELD


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/257", "1/2/3", "-1/2", "1/ 2"])
def test_what_is_no_shard_is_a_usage_error(text: str) -> None:
    """One line, with the mend."""
    with pytest.raises(UsageError, match="write I/N"):
        Shard.parse(text)


def test_soak_is_not_sharded() -> None:
    """It makes its own seeds, until a number of elements is reached."""
    with pytest.raises(UsageError, match="soak"):
        selections.chosen("soak", shard=Shard(1, 2))


def test_shards_put_together_are_the_whole_and_a_lost_one_is_not_run(tmp_path: Path) -> None:
    """The header names the shard; the matrix knows what the others had to do."""
    for number in (1, 2, 3):
        out = tmp_path / "records" / str(number)
        ran = samebits(tmp_path, "run", "--preset", "tiny", "--case", CASES, "--shard", f"{number}/3", "--out", out)
        assert ran.returncode == 0, ran.stderr
    whole = samebits(tmp_path, "matrix", tmp_path / "records", "--json")
    assert whole.returncode == 0
    gate = json.loads(whole.stdout)
    assert gate["devices"][0]["counts"] == {"match": 7} and not [m for m in gate["missing"] if "shard" in m]

    kept = [tmp_path / "records" / "1", tmp_path / "records" / "3"]
    lost = samebits(tmp_path, "matrix", *kept, "--json")
    gate = json.loads(lost.stdout)
    counts = gate["devices"][0]["counts"]
    assert lost.returncode == 4 and gate["gate"] == "OPEN" and not gate["complete"]
    assert sum(counts.values()) == 7 and counts["not-run"] == len(HELD)
    assert {f["detail"] for f in gate["failures"]} == {"no record of shard 2/3"} and len(gate["records"]) == 2
    assert any("mock:match:0: the run is incomplete" in m or "not-run" in m for m in gate["missing"])

    compared = samebits(tmp_path, "diff", tmp_path / "records", tmp_path / "records" / "1", "--json")
    assert compared.returncode == 4 and set(json.loads(compared.stdout)["counts"]) == {"NOT-RUN"}


def test_one_shard_alone_is_complete_where_it_runs_and_the_gate_lists_the_others(tmp_path: Path) -> None:
    """The other shards may be under way elsewhere."""
    ran = samebits(
        tmp_path, "gate", "--device", "mock", "--preset", "tiny", "--case", CASES, "--shard", "1/2", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    assert "shard 2/2 of preset tiny on mock:match:0" in json.loads(ran.stdout)["missing"]


def test_a_record_that_names_no_possible_shard_is_refused(tmp_path: Path) -> None:
    """A shard of a billion would be a list of a billion."""
    samebits(tmp_path, "run", "--preset", "tiny", "--case", CASES, "--shard", "1/2", "--out", tmp_path / "records")
    (run,) = store.collect([tmp_path / "records"])
    run.header.options["shard"] = "1/1000000000"
    with pytest.raises(InputRefused, match="write I/N"):
        shards.with_lost([run])


def test_of_another_version_of_a_preset_the_list_is_not_known_but_it_is_incomplete(tmp_path: Path) -> None:
    """Records of an older samebits cannot be filled up."""
    samebits(tmp_path, "run", "--preset", "tiny", "--case", CASES, "--shard", "1/2", "--out", tmp_path / "records")
    (run,) = store.collect([tmp_path / "records"])
    old = dataclasses.replace(run, header=msgspec.structs.replace(run.header, preset_version="0"))
    _, lost = shards.with_lost([old])
    assert not lost.complete and not lost.results
