"""`python -m cpu_ref.forward`: whole forward passes of a profile. Requests as JSON lines on standard input.

    {"op": "forward", "profile": NAME, "model": SOURCE, "tokens": [1, 2], "folder": PATH or null}
    -> {"model_sha256": D or null, "layers": 2}
    -> {"stage": "l0.q", "dims": [2, 4, 16], "digest": D, "file": "7.i64" or null}      each stage, in order
    -> {"greedy": [7, 9], "seconds": S}                                                 the last line: one id a row

    {"op": "generate", "profile": NAME, "model": SOURCE, "tokens": [1, 2], "count": 3}
    -> {"model_sha256": D or null, "layers": 2}
    -> {"token": 7}                                                                     each as it is chosen
    -> {"greedy": [7, 9, 4], "seconds": S}

    -> {"error": "RangeContract", "detail": "one line"}      in place of what would follow; the next request goes on

A profile NAME is the module `cpu_ref.NAME` with `_` for `-`; SOURCE is what its `load` takes. With a folder, each stage is
written there as little-endian i64, row-major. The last model stays loaded, and its matrices built.
"""

import json
import os
import re
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from cpu_ref.digest import tensor_digest
from cpu_ref.errors import Refused, RequestRefused, TokensRefused
from cpu_ref.integers import write_signed


def main() -> int:
    """Serve standard input until its end; the exit code."""
    try:
        for line in sys.stdin.buffer:
            for answer in answers(line):
                print(json.dumps(answer), flush=True)
    except BrokenPipeError:  # the parent is gone: leave nothing for the interpreter to flush into the closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def answers(line: bytes) -> Iterator[dict[str, Any]]:
    """The answers to one request line. Only a fault of the reference itself prints a traceback, to standard error."""
    try:
        yield from _serve(line)
    except Refused as e:
        yield {"error": type(e).__name__, "detail": str(e)}
    except MemoryError:
        yield {"error": "RequestRefused", "detail": "out of memory; ask for fewer tokens"}
    except Exception as e:
        traceback.print_exc()
        yield {"error": "InternalError", "detail": f"{type(e).__name__}: {e}"}


def _serve(line: bytes) -> Iterator[dict[str, Any]]:
    started = time.perf_counter()
    try:
        request = json.loads(line)
        op, profile, source, tokens = (request[name] for name in ("op", "profile", "model", "tokens"))
    except (ValueError, RecursionError, TypeError, KeyError):
        raise RequestRefused("a request is a JSON object with op, profile, model and tokens") from None
    if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
        raise TokensRefused("tokens must be a list of whole numbers")
    if op not in ("forward", "generate") or not isinstance(source, str):
        raise RequestRefused(f"op {op!r} of model {source!r}: there are 'forward' and 'generate' of a path or a name")
    module = find(profile)
    model = _load(module, source)
    yield {"model_sha256": model.sha256, "layers": model.layers}
    steps = (
        _forward(module, model, tokens, request.get("folder"))
        if op == "forward"
        else _generate(module, model, tokens, request.get("count"))
    )
    greedy = yield from steps
    yield {"greedy": greedy, "seconds": round(time.perf_counter() - started, 3)}


def find(profile: Any) -> ModuleType:
    """The module of a profile; RequestRefused where there is none."""
    if isinstance(profile, str) and re.fullmatch(r"[a-z0-9-]+", profile):
        name = f"cpu_ref.{profile.replace('-', '_')}"
        try:
            module = import_module(name)
        except ModuleNotFoundError as e:
            if e.name != name:
                raise
        else:
            if getattr(module, "NAME", None) == profile:
                return module
    raise RequestRefused(f"unknown profile {profile!r}")


@lru_cache(maxsize=1)
def _load(module: ModuleType, source: str) -> Any:
    return module.load(source)


def _forward(
    module: ModuleType, model: Any, tokens: list[int], folder: str | None
) -> Generator[dict[str, Any], None, list[int]]:
    values: list[int] = []
    for number, (name, dims, values) in enumerate(module.run(model, tokens)):
        data = write_signed(values, 8)
        file = f"{number}.i64" if folder else None
        if folder and file:
            try:
                (Path(folder) / file).write_bytes(data)
            except OSError as e:
                raise RequestRefused(f"stage {name} cannot be written ({e.strerror})") from None
        yield {"stage": name, "dims": dims, "digest": tensor_digest("i64", dims, data), "file": file}
    return values


def _generate(
    module: ModuleType, model: Any, tokens: list[int], count: Any
) -> Generator[dict[str, Any], None, list[int]]:
    if type(count) is not int or count < 1:
        raise RequestRefused(f"count {count!r}: it must be a whole number of 1 or more")
    if len(tokens) + count > model.context:
        raise TokensRefused(f"{len(tokens)} tokens and {count} new ones: this model's context holds {model.context}")
    cache, feed, chosen = module.Cache(), tokens, list[int]()
    for _ in range(count):
        *_, (_, _, greedy) = module.run(model, feed, cache)
        feed = [greedy[-1]]
        chosen += feed
        yield {"token": feed[0]}
    return chosen


if __name__ == "__main__":
    sys.exit(main())
