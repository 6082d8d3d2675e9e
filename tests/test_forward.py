"""`samebits forward` and `generate`: the workers behind them, what they print, how a wrong bit is named, bad input."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from click.testing import CliRunner
from command import samebits
from gguf_bytes import Q4_1

from harness import forward, models, runners
from harness.cli_profiles import forward as forward_command
from harness.cli_profiles import generate as generate_command
from harness.digest import digest_array
from harness.errors import DeviceFailed, InputRefused, InternalError
from harness.profiles import find
from harness.runners import Finished, ReferenceRunner, Stage

DYADIC = find("dyadic-q16")
WORKERS = ["cpu_ref.forward", "cpu_ref.second.forward"]


@pytest.fixture
def model(tmp_path):
    """A tiny qwen2 model with biases."""
    return tiny.write(tmp_path / "tiny.gguf", "qwen2", None, tiny.tensors(Q4_1, biases=True))


def talk(module, *lines):
    """Answers of a worker that ends well and prints nothing else."""
    text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    done = subprocess.run([sys.executable, "-m", module], input=text, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("module", WORKERS)
def test_a_worker_answers_stage_by_stage_and_leaves_files(module, model, tmp_path):
    """Model, stages in order with their files, choices; then the next request on the same model."""
    folder = tmp_path / "stages"
    folder.mkdir()
    request = {"op": "forward", "profile": "dyadic-q16", "model": str(model), "tokens": [1, 2], "folder": str(folder)}
    answers = talk(module, request, request | {"folder": None})
    whole, plain = answers[: len(answers) // 2], answers[len(answers) // 2 :]
    assert whole[0].keys() == {"model_sha256", "layers"} and whole[0]["layers"] == 2
    assert whole[-1].keys() == {"greedy", "seconds"}
    stages = whole[1:-1]
    assert [s["stage"] for s in stages][:3] == ["embed", "l0.attn_norm", "l0.q"]
    for stage in stages:
        values = np.fromfile(folder / stage["file"], "<i8").reshape(stage["dims"])
        assert digest_array(values) == stage["digest"]
    assert stages[-1]["stage"] == "greedy" and values.tolist() == whole[-1]["greedy"]
    assert [s | {"file": None} for s in stages] == plain[1:-1]


@pytest.mark.parametrize("module", WORKERS)
def test_a_worker_generates_with_a_cache_what_whole_passes_choose(module, model):
    """Each token as it is chosen; the same as feeding everything again each time."""
    base = {"profile": "dyadic-q16", "model": str(model)}
    answers = talk(module, base | {"op": "generate", "tokens": [7, 8], "count": 5})
    tokens = [a["token"] for a in answers[1:-1]]
    assert tokens == answers[-1]["greedy"]
    again = talk(module, base | {"op": "forward", "tokens": [7, 8, *tokens[:-1]]})
    assert again[-1]["greedy"][1:] == tokens


BAD_REQUESTS = [
    (b"{", "RequestRefused"),
    (b"[1]", "RequestRefused"),
    (b"\xff", "RequestRefused"),
    (b"[" * 100_000, "RequestRefused"),
    ({"op": "train"}, "RequestRefused"),
    ({"op": ["forward"]}, "RequestRefused"),
    ({"profile": "dyadic-q17"}, "RequestRefused"),
    ({"profile": "worker"}, "RequestRefused"),
    ({"profile": "../x"}, "RequestRefused"),
    ({"profile": "a.b"}, "RequestRefused"),
    ({"model": "absent.gguf"}, "GgufRefused"),
    ({"tokens": []}, "TokensRefused"),
    ({"tokens": [1.0]}, "TokensRefused"),
    ({"tokens": [True]}, "TokensRefused"),
    ({"tokens": [40]}, "TokensRefused"),
    ({"folder": "absent/folder"}, "RequestRefused"),
    ({"op": "generate"}, "RequestRefused"),
    ({"op": "generate", "count": 0}, "RequestRefused"),
    ({"op": "generate", "count": 24}, "TokensRefused"),
]


@pytest.mark.parametrize("module", WORKERS)
def test_each_bad_request_is_refused_in_one_line_and_the_next_goes_on(module, model):
    """All in one session, a good request last."""
    good = {"op": "forward", "profile": "dyadic-q16", "model": str(model), "tokens": [1]}
    lines = [bad if isinstance(bad, bytes) else good | bad for bad, _ in BAD_REQUESTS]
    answers = talk(module, *lines, good)
    refused = [a for a in answers if "error" in a]
    assert [a["error"] for a in refused] == [name for _, name in BAD_REQUESTS]
    assert all("\n" not in a["detail"] for a in refused)
    assert answers[-1].keys() == {"greedy", "seconds"}


@pytest.mark.parametrize("module", WORKERS)
def test_a_worker_loads_nothing_of_the_harness_and_the_second_nothing_of_the_reference(module):
    """Looked up in the loaded modules, the profile's included."""
    profile = "cpu_ref.second.dyadic_q16" if "second" in module else "cpu_ref.dyadic_q16"
    code = f"import {module}, {profile}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in loaded if m.split(".")[0] in ("harness", "msgspec", "gguf")]
    if "second" in module:
        assert not [m for m in loaded if m.startswith("cpu_ref.") and not m.startswith("cpu_ref.second")]
        assert "mpmath" not in loaded
    else:
        assert not [m for m in loaded if m.startswith("cpu_ref.second")]
        assert "numpy" not in loaded


def test_forward_prints_the_promised_object(model, tmp_path):
    """Reference and second in the order given, with stages; the text form names the same digests."""
    arguments = ["forward", model, "--profile", "dyadic-q16", "--tokens", "1,2,3"]
    both = [*arguments, "--device", "second", "--device", "reference"]
    done = samebits(tmp_path, *both, "--json", "--stages")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == ["profile", "profile_id", "model_sha256", "tokens", "contracts", "memory", "devices"]
    assert (result["profile"], result["profile_id"], result["tokens"]) == ("dyadic-q16", DYADIC.profile_id, [1, 2, 3])
    assert result["contracts"] == "checked"
    second, reference = result["devices"]
    assert (second["id"], reference["id"]) == ("second", "reference")
    keys = ["id", "embed", "layers", "hidden", "logits", "greedy", "seconds", "stages"]
    assert list(second) == list(reference) == keys
    assert {k: second[k] for k in keys if k not in ("id", "seconds")} == {
        k: reference[k] for k in keys if k not in ("id", "seconds")
    }
    assert second["layers"] == [second["stages"]["l0.x"], second["stages"]["l1.x"]]
    assert len(second["greedy"]) == 3
    assert len(second["stages"]) == 2 * 17 + 4
    text = samebits(tmp_path, *arguments, "--device", "second")
    assert text.returncode == 0
    assert "contracts: unchecked\n" in text.stdout
    assert second["layers"][1] in text.stdout and second["stages"]["l0.q"] not in text.stdout
    assert "second: l1.x\n" in text.stderr


def test_generate_prints_the_tokens_of_each_device(model, tmp_path):
    """JSON and text."""
    arguments = ["generate", model, "--profile", "dyadic-q16", "--tokens", "7,8", "-n", "4"]
    done = samebits(tmp_path, *arguments, "--device", "reference", "--device", "second", "--json")
    assert done.returncode == 0, done.stderr
    first, other = json.loads(done.stdout)["devices"]
    assert first["greedy"] == other["greedy"] and len(first["greedy"]) == 4
    text = samebits(tmp_path, *arguments, "--device", "second")
    assert ",".join(map(str, first["greedy"])) in text.stdout


class Wrong:
    """The second implementation with one value changed, or one stage left out, reshaped or made up."""

    id = "wrong"

    def __init__(self, model, stage, place=None, fault="value"):
        self.inner, self.stage, self.place, self.fault = (
            ReferenceRunner("second", DYADIC, str(model)),
            stage,
            place,
            fault,
        )

    def forward(self, tokens, folder, seen, every=False):
        def spoil(stage):
            if stage.name != self.stage:
                seen(stage)
            elif self.fault == "value":
                values = stage.values()
                values[self.place] += 1
                values.astype("<i8").tofile(stage.file)
                seen(Stage(stage.name, stage.dims, digest_array(values), stage.file))
            elif self.fault == "claim":
                seen(Stage(stage.name, stage.dims, "0" * 64, stage.file))
            elif self.fault == "shape":
                values = stage.values().reshape(-1)
                seen(Stage(stage.name, values.shape, digest_array(values), stage.file))
            elif self.fault == "name":
                seen(Stage(stage.name + "x", stage.dims, stage.digest, stage.file))

        return self.inner.forward(tokens, folder, spoil)

    def generate(self, tokens, count, seen):
        made = self.inner.generate(tokens, count, seen)
        return Finished(made.model_sha256, [*made.greedy[:-1], made.greedy[-1] ^ 1], made.seconds)


@pytest.mark.parametrize(
    ("stage", "place", "fault", "message"),
    [
        ("l1.softmax", (2, 1, 0), "value", r"wrong: l1.softmax\[2, 1, 0\] = (\d+), expected (\d+)"),
        ("logits", (0, 39), "value", r"wrong: logits\[0, 39\] = (-?\d+), expected (-?\d+)"),
        ("l0.q", None, "missing", "wrong: l0.q = none, expected a stage"),
        ("l0.q", None, "shape", r"wrong: l0.q = \[128\], expected dimensions \[2, 4, 16\]"),
        ("l0.q", None, "name", "wrong: l0.qx = a stage, expected no such stage"),
    ],
)
def test_the_first_wrong_bit_is_named_by_stage_and_element(model, stage, place, fault, message):
    """The reference is the yardstick although it stands last; the device's other stages are shown all the same."""
    devices = [Wrong(model, stage, place, fault), ReferenceRunner("reference", DYADIC, str(model))]
    passes, mismatches = forward.forward(devices, [1, 2], lambda *_: None)
    assert [p.id for p in passes] == ["wrong", "reference"]
    (mismatch,) = mismatches
    match = re.fullmatch(message, str(mismatch))
    assert match, str(mismatch)
    if fault == "value":
        assert int(match[1]) == int(match[2]) + 1
        differing = [n for n in passes[0].stages if passes[0].stages[n] != passes[1].stages[n]]
        assert differing == [stage]


def test_a_runner_whose_digest_is_not_its_files_is_no_runner(model):
    """Claims are not believed."""
    devices = [ReferenceRunner("reference", DYADIC, str(model)), Wrong(model, "l0.k", None, "claim")]
    with pytest.raises(InternalError, match=r"stage l0\.k: its file has digest"):
        forward.forward(devices, [1, 2], lambda *_: None)


@pytest.mark.parametrize("command", ["forward", "generate"])
def test_a_mismatch_exits_1_with_one_line(model, monkeypatch, command):
    """The commands, on a device that is wrong."""
    wrong = [ReferenceRunner("reference", DYADIC, str(model)), Wrong(model, "l0.x", (1, 3))]
    monkeypatch.setattr(runners, "runners", lambda *_, **__: wrong)
    arguments = [
        str(model),
        "--profile",
        "dyadic-q16",
        "--tokens",
        "1,2",
        *(["-n", "3"] if command == "generate" else []),
    ]
    done = CliRunner().invoke(forward_command if command == "forward" else generate_command, arguments)
    lines = [line for line in done.stderr.splitlines() if line.startswith("samebits:")]
    place = "l0.x[1, 3]" if command == "forward" else "greedy[2]"
    assert (done.exit_code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"samebits: mismatch: wrong: {place} = ")
    assert lines[0].endswith("(op residual)" if command == "forward" else "(op greedy)")
    repeat = f"repeat it: samebits {command} {' '.join(arguments)} --device reference --device wrong"
    assert repeat in done.stderr.splitlines()


def test_a_file_that_changes_between_two_devices_is_noticed():
    """Two SHA-256 of one model."""
    with pytest.raises(InputRefused, match="changed while the devices read it"):
        forward._one_model([Finished("a", [], 0.0), Finished("b", [], 0.0)])


def test_a_reference_that_dies_is_an_internal_error(model, monkeypatch):
    """A process that ends without an answer."""
    monkeypatch.setattr(runners, "python", lambda module: [sys.executable, "-c", "import sys; sys.stdin.read()"])
    with pytest.raises(InternalError, match="the second process ended without an answer"):
        ReferenceRunner("second", DYADIC, str(model)).forward([1], None, lambda _: None)


BAD_INPUT = {
    "no token": (["--tokens", ""], "--tokens is empty"),
    "no number": (["--tokens", "1,two"], "'two' is no token id"),
    "a negative id": (["--tokens", "-1"], "'-1' is no token id"),
    "a gap": (["--tokens", "1,,2"], "'' is no token id"),
    "an id outside the vocabulary": (["--tokens", "1,40"], "token 1 is 40: this model's ids go from 0 to 39"),
    "past the context": (["--tokens", ",".join("1" * 25)], "this model's context holds 24"),
    "an unknown schedule": (["--tokens", "1", "--schedule", "sideways"], "unknown schedule 'sideways'"),
    "a schedule without a device": (["--tokens", "1", "--schedule", "tree"], "--schedule tree is for devices"),
    "an unknown variant": (["--tokens", "1", "--variant", "x"], "kernels of dyadic-q16 have base, int64, fast"),
    "a variant without a device": (["--tokens", "1", "--variant", "int64"], "--variant int64 is for devices"),
    "resident bytes without a device": (
        ["--tokens", "1", "--resident-bytes", "0"],
        "--resident-bytes 0 is for devices",
    ),
    "a variant without that schedule": (
        ["--tokens", "1", "--device", "cpu", "--variant", "fast", "--schedule", "tree"],
        "variant fast has no schedule tree; it has forward, split_k",
    ),
    "native integers without that schedule": (
        ["--tokens", "1", "--device", "cpu", "--variant", "int64", "--schedule", "tree"],
        "variant int64 has no schedule tree; it has forward, split_k",
    ),
    "no profile": (["--tokens", "1", "--profile", "lut5"], "unknown profile 'lut5'; there are dyadic-q16"),
}


@pytest.mark.parametrize("fault", BAD_INPUT)
def test_bad_input_gives_one_line_and_exit_2(model, tmp_path, fault):
    """One fault each."""
    arguments, message = BAD_INPUT[fault]
    done = samebits(tmp_path, "forward", model, "--profile", "dyadic-q16", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("samebits: ") and message in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--tokens", "40", "-n", "1"], ["--tokens", "1", "-n", "24"], ["--tokens", "1", "-n", "0"]]
)
def test_bad_input_of_generate_gives_one_line_and_exit_2(model, tmp_path, arguments):
    """An id outside the vocabulary, one token past the context, no new token."""
    done = samebits(tmp_path, "generate", model, "--profile", "dyadic-q16", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_missing_or_foreign_file_gives_one_line_and_exit_2(tmp_path):
    """No such file, a folder, a text."""
    (tmp_path / "text.gguf").write_text("hello")
    for name, message in (
        ("absent.gguf", "no such file"),
        (".", "it is a folder"),
        ("text.gguf", "begins with b'hell'"),
    ):
        done = samebits(tmp_path, "forward", tmp_path / name, "--profile", "dyadic-q16", "--tokens", "1")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert message in done.stderr


def test_a_device_that_lacks_a_feature_has_not_failed() -> None:
    """1 is a finding; another device or variant mends this."""
    assert (DeviceFailed("", "unsupported").exit_code, DeviceFailed("", "crash").exit_code) == (2, 1)


def test_a_released_model_is_found_by_its_file_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `fetch-model` keeps it; a file of that name in the working folder comes first."""
    file = models.find("smollm2-135m-q4_1").file
    monkeypatch.setenv("SAMEBITS_MODELS", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    assert models.named(file) == file and models.named("x.gguf") == "x.gguf"
    (tmp_path / file).touch()
    assert models.named(file) == str(tmp_path / file)
    monkeypatch.chdir(tmp_path)
    assert models.named(file) == file
