"""Kernels' programs on the host, started once and asked for one dispatch after another; `cuda_host.cpp` is their side."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SERVED = 16
"""Programs that stay started."""


@dataclass(frozen=True)
class Program:
    """A kernel's executable."""

    path: Path


class Served:
    """The programs that are running. One is started when it is first dispatched; of too many the one longest unused ends.

    `folder` takes what a program prints itself, `environment` is what it runs with.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._said, self._environment = folder / "served", environment
        self._running: dict[Path, subprocess.Popen[bytes]] = {}

    def dispatch(self, program: Program, words: Sequence[object], logs: Sequence[Path]) -> list[tuple[int, Path]]:
        """The ends of a request's jobs, one for each of `logs`: exit code, or minus a signal, and the file that it printed to.

        Where the program itself ended, its own end alone.
        """
        server = self._running.pop(program.path, None) or self._start(program.path)
        self._running[program.path] = server
        if len(self._running) > SERVED:
            self._end(next(iter(self._running)))
        assert server.stdin and server.stdout
        with suppress(BrokenPipeError):
            server.stdin.write(" ".join(map(str, words)).encode() + b"\n")
            server.stdin.flush()
        if answer := server.stdout.readline():
            return list(zip(map(int, answer.split()), logs, strict=True))
        return [(self._end(program.path) or 1, self._said)]

    def _start(self, path: Path) -> subprocess.Popen[bytes]:
        with self._said.open("wb") as out:
            return subprocess.Popen(
                [str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=self._environment
            )

    def _end(self, path: Path) -> int:
        server = self._running.pop(path)
        with suppress(BrokenPipeError):
            server.communicate()  # it ends with its standard input
        return server.returncode

    def close(self) -> None:
        """End them all."""
        for path in list(self._running):
            self._end(path)
