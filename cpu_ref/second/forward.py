"""`python -m cpu_ref.second.forward`: forward passes by the second implementation. The protocol is `cpu_ref.forward`'s."""

import hashlib
import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from cpu_ref.second.errors import Refused, RequestRefused, TokensRefused


class Server:
    """Answers requests one after the other and keeps the model of the last."""

    def __init__(self) -> None:
        self.key: tuple[str, str] | None = None
        self.module: Any = None
        self.model: Any = None
        self.greedy: list[int] = []

    def answers(self, line: bytes) -> Iterator[dict[str, Any]]:
        """The answers to one line, an error as the last where there is one."""
        try:
            yield from self._serve(line)
        except Refused as e:
            yield {"error": type(e).__name__, "detail": str(e)}
        except MemoryError:
            yield {"error": "RequestRefused", "detail": "out of memory; ask for fewer tokens"}
        except Exception as e:
            traceback.print_exc()
            yield {"error": "InternalError", "detail": f"{type(e).__name__}: {e}"}

    def _serve(self, line: bytes) -> Iterator[dict[str, Any]]:
        begin = time.perf_counter()
        try:
            request = json.loads(line)
            work = {"forward": self._forward, "generate": self._generate}[request["op"]]
            tokens, key = list(request["tokens"]), (str(request["profile"]), str(request["model"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RequestRefused("a request holds op (forward or generate), profile, model and tokens") from None
        if any(type(token) is not int for token in tokens):
            raise TokensRefused("tokens must be a list of whole numbers")
        self._open(*key)
        yield {"model_sha256": self.model.sha256, "layers": self.model.layers}
        yield from work(request, tokens)
        yield {"greedy": self.greedy, "seconds": round(time.perf_counter() - begin, 3)}

    def _open(self, profile: str, source: str) -> None:
        if self.key == (profile, source):
            return
        name = "cpu_ref.second." + profile.replace("-", "_")
        try:
            module = import_module(name)
        except ModuleNotFoundError as e:
            if e.name != name and e.name is not None and not name.startswith(e.name):
                raise
            raise RequestRefused(f"unknown profile {profile!r}") from None
        if getattr(module, "NAME", None) != profile:
            raise RequestRefused(f"unknown profile {profile!r}")
        self.module, self.model, self.key = module, module.load(source), (profile, source)

    def _forward(self, request: dict[str, Any], tokens: list[int]) -> Iterator[dict[str, Any]]:
        folder = request.get("folder")
        for number, (name, values) in enumerate(self.module.run(self.model, tokens)):
            data = values.astype("<i8").tobytes()
            if name == "greedy":
                self.greedy = values.tolist()
            header = f"i64[{','.join(map(str, values.shape))}]\0"
            file = f"{number}.i64" if folder else None
            if folder and file:
                try:
                    with open(os.path.join(folder, file), "wb") as out:
                        out.write(data)
                except OSError as e:
                    raise RequestRefused(f"stage {name} cannot be written ({e.strerror})") from None
            digest = hashlib.sha256(header.encode() + data).hexdigest()
            yield {"stage": name, "dims": values.shape, "digest": digest, "file": file}

    def _generate(self, request: dict[str, Any], tokens: list[int]) -> Iterator[dict[str, Any]]:
        count = request.get("count")
        if type(count) is not int or count < 1:
            raise RequestRefused(f"count {count!r}: it must be a whole number of 1 or more")
        if len(tokens) + count > self.model.context:
            fault = f"{len(tokens)} tokens and {count} new ones"
            raise TokensRefused(f"{fault}: this model's context holds {self.model.context}")
        cache, known = self.module.Cache(), list(tokens)
        while len(known) < len(tokens) + count:
            last = deque(self.module.run(self.model, known[len(cache) :], cache), maxlen=1)
            known.append(int(last[0][1][-1]))
            yield {"token": known[-1]}
        self.greedy = known[len(tokens) :]


def main() -> int:
    """Serve standard input until its end; the exit code."""
    server = Server()
    try:
        for line in sys.stdin.buffer:
            for answer in server.answers(line):
                sys.stdout.write(json.dumps(answer) + "\n")
                sys.stdout.flush()
    except BrokenPipeError:  # the parent is gone: leave nothing for the interpreter to flush into the closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
