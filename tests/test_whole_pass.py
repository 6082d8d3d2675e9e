"""Whole passes as cases, on a tiny model: gates over a mock device whose sessions compute exactly, and all that goes wrong."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_device import ExactDevice
from mock_gates import gate_on, mock_device
from whole_passes import ENTRY, FEW, FORWARD, IDS, NAMES_OF_KERNELS, TINY, TREE, broken, gate_of, passes, session

from cpu_ref import dyadic_q16 as reference
from harness import (
    cases,
    device_session,
    devices,
    gate,
    kernels,
    matrix,
    models,
    presets,
    profiles,
    runners,
    selections,
    table,
    whole_pass,
)
from harness.cases import parse_case
from harness.device_session import Step
from harness.errors import DeviceFailed, InputRefused, UsageError
from harness.families import whole
from harness.goldens import derive
from harness.reference import Reference
from harness.report.junit import write_junit
from harness.schedules import NAMES
from harness.selections import Shard
from harness.tasks import tasks


def test_a_pass_that_is_right_matches_under_every_schedule(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held to both implementations by the digests of all stages; the second time neither is asked again."""
    outcome = gate_of(here, monkeypatch, TINY)
    found = passes(outcome)
    assert list(found) == list(NAMES)
    stages = list(reference.run(reference.load(str(tiny_model)), IDS))
    for r in found.values():
        assert r.verdict == "match" and r.digest == r.expected == r.second and r.digest
        assert r.elements == sum(len(values) for _, _, values in stages)
    monkeypatch.setattr(whole_pass, "stages_by", None)
    assert passes(gate_of(here, monkeypatch, TINY)).keys() == found.keys()
    runs = outcome.runs()
    assert table.pivot(runs)["dyadic-q16"].iloc[0].endswith("whole passes of 3 tokens match")
    write_junit(here / "x.xml", matrix.judge(runs), runs)
    assert FORWARD in (here / "x.xml").read_text()


def test_its_kernels_are_checked_with_it(tiny_model: Path) -> None:
    """Self-test and known-bad twin of each, under the schedules of the pass where the kernel has them: a gate rests on them."""
    found = tasks(selections.of_selectors([TREE]), "opencl")
    assert {t.case.kernel for t in found if t.role == "self-test"} == NAMES_OF_KERNELS
    assert {t.case.kernel for t in found if t.role == "known-bad"} == NAMES_OF_KERNELS
    orders = {t.case.kernel: {r.schedule for r in t.runs} for t in found if t.role == "self-test"}
    assert orders["linear_q8_0"] == {"tree"} and orders["gate"] == {"forward"}
    planned = found[-1].planned("opencl")[0]
    assert (
        planned.kernel_hash != tasks(selections.of_selectors([FORWARD]), "opencl")[-1].planned("opencl")[0].kernel_hash
    )


def test_a_pass_calls_no_kernel_that_its_entry_does_not_name(tiny_model: Path) -> None:
    """Else the kernel hash and the checks would miss it. And every operation of the profile is named."""
    module = whole_pass.passes.find(profiles.find("dyadic-q16"))
    assert module
    device = ExactDevice()
    list(module.OnDevice(device, module.load(str(tiny_model))).run(IDS, module.Cache(3)))
    assert {step.entry.name for s in device.submissions for step in s.steps} <= NAMES_OF_KERNELS
    assert {k for there in profiles.find("dyadic-q16").operations.values() for k in there} <= NAMES_OF_KERNELS


def spoiled(label: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One bit of an activation, deep in the second layer."""
    if label == "l1.mix":
        wrong = inputs["v"].copy()
        wrong[0] ^= 1 << 14
        return inputs | {"v": wrong}
    return inputs


def test_a_wrong_pass_names_layer_operation_element_and_both_values(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the command that repeats it alone."""
    monkeypatch.setattr(runners, "Session", session(spoiled))
    outcome = gate_of(here, monkeypatch)
    r = passes(outcome)["forward"]
    right = {name: values for name, _, values in reference.run(reference.load(str(tiny_model)), IDS)}
    assert r.verdict == "mismatch" and r.digest != r.expected and r.detail
    assert r.detail.startswith("layer 1, op mix, l1.mix[0, 0] = ")
    assert f", expected {right['l1.mix'][0]}; " in r.detail and f"= {right['l1.mix'][0]}," not in r.detail
    command = "samebits forward tiny.gguf --profile dyadic-q16 --tokens 11,39,0 --schedule forward --device reference"
    assert r.detail.endswith(f"{command} --device mock:match:0")
    assert r.repeat == f"samebits run --device mock:match:0 --case '{FORWARD}'"
    assert matrix.judge(outcome.runs()).gate == "FAIL"


def test_a_pass_that_is_wrong_once_is_not_deterministic(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done again to name the first wrong bit is right then."""
    once = iter([spoiled])
    monkeypatch.setattr(runners, "Session", lambda *given: session(next(once, None))(*given))
    r = passes(gate_of(here, monkeypatch))["forward"]
    assert r.verdict == "nondeterministic" and r.detail and r.detail.startswith("l1.mix was wrong, and right when")


@pytest.mark.parametrize(
    "verdict",
    ["crash", "timeout", "device-lost", "compile-error", "launch-error", "unsupported", "sanitizer", "mismatch"],
)
def test_a_device_that_ends_a_pass_gets_the_verdict_on_how(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    """The next pass has its own chance."""
    sessions = iter([broken(DeviceFailed("mock:match:0: l1.q: it ended", verdict, "run")), session()])
    monkeypatch.setattr(runners, "Session", lambda *given: next(sessions)(*given))
    found = passes(gate_of(here, monkeypatch, FORWARD, TREE))
    assert (found["forward"].verdict, found["forward"].phase) == (verdict, "run")
    assert found["forward"].detail == "mock:match:0: l1.q: it ended" and found["tree"].verdict == "match"


def test_three_losses_set_the_device_aside(tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for kernels."""
    monkeypatch.setattr(runners, "Session", broken(*[DeviceFailed("it crashed", "crash", "run")] * 3))
    found = passes(gate_of(here, monkeypatch, TINY))
    assert [r.verdict for r in found.values()] == ["crash"] * 3 + ["not-run"] * 2
    assert "set aside after 3 losses" in str(found["tree"].detail)


def test_a_nonce_that_does_not_come_back_makes_the_run_void(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a kernel that was compiled in this run."""
    monkeypatch.setattr(runners, "Session", broken(DeviceFailed("the compiled nonce did not come back", "void", "run")))
    outcome = gate_of(here, monkeypatch)
    assert matrix.judge(outcome.runs()).gate == "VOID" and passes(outcome)["forward"].verdict == "not-run"


def test_where_reference_and_second_disagree_all_runs_are_void(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what is right then; and it is not kept."""
    honest = whole_pass.stages_by

    def lying(runner: runners.ReferenceRunner, *given: Any) -> dict[str, str]:
        return honest(runner, *given) | ({"l1.x": "a" * 64} if runner.id == "second" else {})

    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(here / "own"))
    monkeypatch.setattr(whole_pass, "stages_by", lying)
    outcome = gate_of(here, monkeypatch)
    (run,) = outcome.runs()
    assert run.voids[0].everywhere and "reference's l1.x" in run.voids[0].reason
    kept = [path.parent.name for path in (here / "own").rglob("expected.json")]
    assert matrix.judge([run]).gate == "VOID" and kept and parse_case(TINY).version not in kept


def test_a_golden_digest_holds_the_reference(tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of kernels: a changed answer of the same case version is no answer."""
    case = parse_case(TINY)
    golden = {TINY: {"version": case.version, "digest": "b" * 64}}
    monkeypatch.setattr("harness.reference.load_goldens", lambda: golden)
    (wrong,) = derive([case], cached=True, check=False, write=False, tell=lambda line: None)
    assert "committed golden digest " + "b" * 64 in wrong


def test_a_device_that_is_too_small_does_not_support_it(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the estimate, before anything runs."""

    def refuse(*_: object) -> None:
        raise InputRefused("mock:match:0: too large: the pass takes 2 GiB")

    monkeypatch.setattr(runners.memory, "check", refuse)
    monkeypatch.setattr(runners, "Session", broken())
    r = passes(gate_of(here, monkeypatch))["forward"]
    assert (r.verdict, r.detail) == ("unsupported", "mock:match:0: too large: the pass takes 2 GiB")


def test_a_device_that_only_compiles_runs_no_pass(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "Session", broken())
    outcome = gate_on(["compile-only"], here, monkeypatch, cases=[FORWARD])
    assert passes(outcome)["forward"].verdict == "unsupported"


def test_a_missing_model_is_refused_before_anything_runs(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the mend, as for cases on single tensors of it."""
    tiny_model.unlink()
    with pytest.raises(InputRefused, match=r"tiny.gguf.*samebits fetch-model"):
        gate_of(here, monkeypatch)
    assert not list(here.rglob("*.jsonl*"))


def test_an_interrupted_run_goes_on_with_the_passes_that_it_lacks(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is carried over, and no pass is done twice."""
    begun = list[str]()

    def interrupting(label: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        begun.extend([label] if label == "embed" else [])
        if len(begun) == 2:
            raise KeyboardInterrupt
        return inputs

    monkeypatch.setattr(runners, "Session", session(interrupting))
    first = gate_of(here, monkeypatch, FORWARD, TREE)
    assert first.interrupted and [r.verdict for r in passes(first).values()] == ["match", "not-run"]
    again = gate_of(here, monkeypatch, FORWARD, TREE, resume=first.gate_run)
    assert [r.verdict for r in passes(again).values()] == ["match", "match"] and len(begun) == 3


def test_a_pass_that_writes_nothing_does_not_show_what_an_earlier_one_wrote(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The passes of a device share a session; its weights stay in it, and nothing else."""
    opened = list[ExactDevice]()

    class Idle(ExactDevice):
        def compute(self, step: Step) -> None:
            if step.label != "greedy" or self.schedule != "tree":
                super().compute(step)

    @contextmanager
    def idle(*_: object) -> Iterator[ExactDevice]:
        opened.append(Idle())
        yield opened[-1]

    monkeypatch.setattr(runners, "Session", idle)
    found = passes(gate_of(here, monkeypatch, TINY))
    assert [r.verdict for r in found.values()] == ["match"] * 4 + ["mismatch"] and list(found)[-1] == "tree"
    assert "greedy[0] = -1229782938247303442, expected" in str(found["tree"].detail)
    assert len(opened) == 2  # the second to name the element
    sent = [name for submission in opened[0].submissions for name in submission.uploads]
    assert {sent.count(name) for name in sent if "@" in name} == {1}  # parts of matrices


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("pass_dyadic_q16;t=5;dist=document;seed=0;model=tiny", "the document's vector is t=4, seed=0"),
        ("pass_dyadic_q16;t=4;dist=document;seed=1;model=tiny", "the document's vector is t=4, seed=0"),
        ("pass_dyadic_q16;t=513;dist=licence;seed=0;model=tiny", "t is at most 512"),
        ("pass_dyadic_q16;t=4;dist=licence;seed=0", "a whole pass has model= and no tensor="),
        ("pass_dyadic_q16;t=4;dist=licence;seed=0;model=tiny;tensor=x", "a whole pass has model= and no tensor="),
        ("pass_dyadic_q16;t=4;dist=licence;seed=0;model=huge", "unknown model 'huge'"),
        ("pass_dyadic_q16;t=4;dist=full;seed=0;model=tiny", "no distribution 'full'"),
        (f"{TINY};schedule=forward;variant=int64", "kernel 'pass_dyadic_q16' has no variant 'int64'; it has base"),
    ],
)
def test_what_is_no_pass_is_refused(tiny_model: Path, case: str, said: str) -> None:
    """One line."""
    with pytest.raises(UsageError, match=said):
        selections.of_selectors([case])


def test_full_holds_two_passes_and_soak_takes_other_prompts() -> None:
    """No two of the first 500 rounds of a soak have the same 4 tokens in the same place; other presets have none."""
    held = {p: [c for c in presets.cases(p) if c.kernel in kernels.WHOLE] for p in presets.VERSION}
    assert [(c.dims["t"], c.dist) for c in held["full"]] == [(4, "document"), (28, "licence")]
    assert not held["tiny"] and not held["quick"] and [c.seed for c in held["soak"]] == [1]
    licence = json.loads((Path(__file__).parent / "data/licence-512.json").read_text())["ids"]
    rounds = [next(c for c in whole.cases("soak", seed)) for seed in range(1, 500)]
    assert [whole.tokens(c) for c in rounds] == [licence[seed : seed + 4] for seed in range(1, 500)]
    assert whole.tokens(held["full"][1]) == licence[:28] and whole.tokens(held["full"][0]) == [504, 1108, 282, 15328]
    assert presets.holding(held["full"][0]) == ["full"]


def test_a_round_of_a_soak_begins_with_the_reference_of_its_pass(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes minutes: beside the other families, though the device does it last."""
    gemm = parse_case("gemm_i32;m=17;n=19;k=23;dist=full;seed=0")
    monkeypatch.setattr(presets, "soak_rounds", lambda: iter([[gemm, parse_case(TINY)]]))
    monkeypatch.setattr(selections, "chosen", lambda *_: [])  # no round here has a case of another model
    monkeypatch.setattr(devices, "discover", lambda **_: [mock_device("match")])
    monkeypatch.setitem(kernels.WHOLE, ENTRY.name, FEW)
    asked, answer = list[str](), Reference._answer
    monkeypatch.setattr(Reference, "_answer", lambda self, case: asked.append(case.id) or answer(self, case))
    outcome = gate.execute(gate.Options("soak", here / "out"), lambda _: None)
    assert asked[0] == TINY and len(set(asked)) == len(asked) > 2
    assert [r.verdict for r in outcome.runs()[-1].results if r.case == TINY] == ["match"] * len(NAMES)


def test_a_case_version_is_of_profile_model_and_tokens(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id names the model, but not which bytes, nor which words of the licence."""
    case = parse_case(TINY)
    body = whole.identity(case)
    assert body["tokens"] == "11,39,0" and body["model"] == models.MODELS["tiny"].sha256
    assert body["profile"] == profiles.find("dyadic-q16").profile_id
    before = case.version
    for name in body:
        changed = body | {name: "other"}
        monkeypatch.setattr(whole, "identity", lambda _, changed=changed: changed)
        cases._also.cache_clear()
        assert case.version != before
    cases._also.cache_clear()


def test_a_shard_holds_a_part_of_the_passes(tiny_model: Path) -> None:
    """By the run key's hash, as of kernels."""
    shards = [selections.chosen("full", [TINY], Shard(n, 3)) for n in (1, 2, 3)]
    found = [str(run) for (selection,) in shards for run in selection.runs("cuda")]
    assert sorted(found) == sorted(f"{TINY};schedule={schedule};variant=base" for schedule in NAMES)
    assert all(len(selection.runs("cuda")) < len(NAMES) for (selection,) in shards)


def test_a_pass_waits_for_no_lock(tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate holds it. A real session, on a mock that cannot compute all of a pass."""
    monkeypatch.setattr(runners, "Session", device_session.Session)
    monkeypatch.setattr(device_session, "device_lock", None)
    r = passes(gate_of(here, monkeypatch))["forward"]
    assert r.verdict == "unsupported" and r.phase == "compile" and "embedding_q8_0" in str(r.detail)


def test_one_process_of_each_implementation_answers_all_passes_on_a_model(
    tiny_model: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of a pass is to load the model and to build its matrices."""
    started, honest = list[Any](), runners.subprocess.Popen

    def counted(*given: Any, **options: Any) -> Any:
        started.append(honest(*given, **options))
        return started[-1]

    monkeypatch.setattr(runners.subprocess, "Popen", counted)
    three, two = parse_case(TINY), parse_case(TINY.replace("t=3", "t=2"))
    with Reference(cached=False) as asked:
        answers = [asked.expected(case).digest for case in (three, two)]
        assert len(started) == 2 and all(process.poll() is None for process in started)
    assert answers[0] != answers[1] and all(process.poll() is not None for process in started)
