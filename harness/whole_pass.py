"""Whole forward passes as cases: what reference and second say of one, and what a device makes of it.

A device has a pass to itself and does it once: see "Profiles" in docs/design.md. Passes on one model share a session, up to
the first fault. Compared are the digests of all stages, so that a wrong bit shows which later stages round away; where one is
wrong the pass is done again, to name the first wrong element.
"""

import time
from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any

import numpy as np

from harness import kernels, passes
from harness.cases import Case, RunKey
from harness.digest import digest_bytes
from harness.errors import DeviceFailed, Incomplete, InputRefused, InternalError
from harness.families.whole import tokens
from harness.findings import Findings
from harness.forward import forward
from harness.lane import Budgets
from harness.models import verified
from harness.process import one_line
from harness.profiles import Profile, find
from harness.runners import DeviceRunner, ReferenceRunner, Stage
from harness.tasks import Task
from harness.verdicts import Result


def profile_of(case: Case) -> Profile:
    """The profile whose pass it is."""
    whole = kernels.base(case.kernel).whole
    assert whole
    return find(whole.profile)


def canonical(digests: Iterable[str]) -> tuple[bytes, list[int]]:
    """Digests of stages as the tensor u8[stages, 32] that the output of a whole pass is: its bytes and dimensions."""
    raw = [bytes.fromhex(digest) for digest in digests]
    return b"".join(raw), [len(raw), 32]


def reference_runner(implementation: str, case: Case) -> ReferenceRunner:
    """`reference` or `second` on a case's profile and model; it keeps its process for the next case of these."""
    return ReferenceRunner(implementation, profile_of(case), _model(case), keep=True)


def stages_by(runner: ReferenceRunner, case: Case, stop: Event) -> dict[str, str]:
    """Digests by stage, in the document's order.

    Raises InternalError where it refuses the case, Incomplete once `stop` is set.
    """
    found = dict[str, str]()

    def seen(stage: Stage) -> None:
        if stop.is_set():
            raise Incomplete(f"{case.id}: interrupted")
        found[stage.name] = stage.digest

    try:
        runner.forward(tokens(case), None, seen)
    except InputRefused as e:
        raise InternalError(f"{case.id}: {e}") from None
    return found


def _model(case: Case) -> str:
    assert case.model
    return str(verified(case.model))


class WholePasses:
    """The whole passes of one device's run, one after another."""

    def __init__(self, findings: Findings, budgets: Budgets) -> None:
        self.findings, self.budgets = findings, budgets
        self._runners: dict[tuple[str, str | None, str], DeviceRunner] = {}

    def work(self, todo: Sequence[Task]) -> None:
        """Do them, until the device is set aside."""
        try:
            for task in todo:
                for run in task.runs:
                    if not self.findings.set_aside:
                        self.findings.journal.started(str(run))
                        self.findings.keep(self._done(task, run))
        finally:
            for runner in self._runners.values():
                runner.close()

    def _done(self, task: Task, run: RunKey) -> Result:
        findings, seconds = self.findings, {"run": 0.0}
        if findings.compile_only:
            return findings.result(
                task, run, "unsupported", detail="a whole pass is run, and this device only compiles"
            )
        runner = self._runner(task.case, run)
        try:
            runner.prepare(tokens(task.case))
        except InputRefused as e:
            return findings.result(task, run, "unsupported", detail=one_line(str(e)))
        stages: list[Stage] = []
        begin = time.perf_counter()
        try:
            runner.forward(tokens(task.case), None, stages.append, every=True)
        except DeviceFailed as e:
            return self._failed(task, run, e)
        finally:
            seconds["run"] = time.perf_counter() - begin
            findings.spent(seconds)
        try:
            expected, right = findings.right(task)
        except InternalError as e:
            return findings.result(task, run, "not-run", detail=str(e))
        raw, dims = canonical(stage.digest for stage in stages)
        more: dict[str, Any] = {
            "digest": digest_bytes(expected.element, dims, raw),
            "expected": expected.digest,
            "second": expected.second,
            "elements": sum(int(np.prod(stage.dims)) for stage in stages),
            "inputs": expected.inputs,
            "seconds": seconds | {"reference": expected.seconds},
        }
        if raw == right:
            return findings.result(task, run, "match", **more)
        wrong = next((s.name for n, s in enumerate(stages) if raw[32 * n :][:32] != right[32 * n :][:32]), "a stage")
        runner.close()
        verdict, detail = self._named(task, runner, wrong)
        return findings.result(task, run, verdict, detail=detail, **more)

    def _runner(self, case: Case, run: RunKey) -> DeviceRunner:
        """The device on a case's profile and model; one for all its schedules, so that the session may stay open."""
        key = case.kernel, case.model, run.variant
        if key not in self._runners:
            profile = profile_of(case)
            module = passes.find(profile)
            assert module
            self._runners[key] = DeviceRunner(
                self.findings.device,
                profile,
                module,
                _model(case),
                run.schedule,
                run.variant,
                budgets=self.budgets,
                locked=True,
                keep=True,
            )
        self._runners[key].schedule = run.schedule
        return self._runners[key]

    def _failed(self, task: Task, run: RunKey, e: DeviceFailed) -> Result:
        """A device that ended the pass. Three of these set it aside, as losses of a lane's worker do."""
        detail = one_line(str(e))
        if e.verdict == "void":
            self.findings.void(f"{run}: {detail}")
            return self.findings.result(task, run, "not-run", detail=detail)
        if e.verdict in ("crash", "timeout", "device-lost"):
            self.findings.lost(f"{e.verdict} in {e.phase}")
        return self.findings.result(task, run, e.verdict, phase=e.phase, detail=detail)

    def _named(self, task: Task, runner: DeviceRunner, wrong: str) -> tuple[str, str]:
        """The first wrong element of a pass whose stage `wrong` was the first wrong one, by doing it again."""
        ids, profile = tokens(task.case), runner.profile
        repeat = (
            f"samebits forward {verified(task.case.model or '').name} --profile {profile.name}"
            f" --tokens {','.join(map(str, ids))} --schedule {runner.schedule} --device reference --device {runner.id}"
        )
        second = ReferenceRunner("second", profile, runner.model)
        try:
            _, mismatches = forward([second, runner], ids, lambda device, stage: None, every=True)
        except DeviceFailed as e:
            return "mismatch", f"{wrong} is wrong; done again: {one_line(str(e))}; {repeat}"
        if not mismatches:
            return "nondeterministic", f"{wrong} was wrong, and right when the pass was done again; {repeat}"
        first = mismatches[0]
        layer = first.stage.partition(".")[0][1:] if "." in first.stage else "none"
        place = list(first.element) if first.element else ""
        return "mismatch", (
            f"layer {layer}, op {profile.operation(first.stage)}, {first.stage}{place} = {first.actual},"
            f" expected {first.expected}; {repeat}"
        )
