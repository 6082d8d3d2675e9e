"""The second implementation's worker. Same protocol as `python -m cpu_ref`, read and answered by code of its own."""

import hashlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cpu_ref.second.errors import Refused, RequestRefused, WeightsRefused
from cpu_ref.second.gemm import gemm_i32, gemm_i32_i64
from cpu_ref.second.gguf_tensor import block_bytes, block_tensor
from cpu_ref.second.layers import LAYERS, Layer
from cpu_ref.second.limbs import limbs
from cpu_ref.second.linear import linear_exact
from cpu_ref.second.nel_mini_kernels import OPERATIONS
from cpu_ref.second.probe import PROBES
from cpu_ref.second.probe import compute as compute_probe
from cpu_ref.second.probe_memory import arguments, heap, words

MAX_OUTPUTS = 1 << 26
_TYPES = {"i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "u8": "u1", "u32": "<u4"}

Array = npt.NDArray[Any]
Answer = tuple[dict[str, str], str, Array, int]
"""Input digests, element type, output and how many true values leave the type."""

Kernel = tuple[tuple[str, ...], Callable[..., Answer]]
"""The names of its dimensions, and what answers: called with the inputs, the dimensions in that order, and the options."""


def digest(element: str, array: Array) -> str:
    """SHA-256 of header, zero byte and values of a little-endian array."""
    header = f"{element}[{','.join(map(str, array.shape))}]\0"
    return hashlib.sha256(header.encode() + array.tobytes()).hexdigest()


def answer(line: bytes) -> dict[str, Any]:
    """The answer to one request line."""
    identity: Any = None
    try:
        try:
            request = json.loads(line)
            identity = request.get("id")
        except (ValueError, RecursionError, AttributeError):
            raise RequestRefused("the request is no JSON object; send one object a line") from None
        started = time.perf_counter()
        inputs, element, out, leaves = _compute(request)
        _save(request, out)
        return {
            "id": identity,
            "digest": digest(element, out),
            "element": element,
            "dims": list(out.shape),
            "leaves_type": leaves,
            "input_digests": inputs,
            "seconds": round(time.perf_counter() - started, 6),
        }
    except Refused as e:
        return {"id": identity, "error": type(e).__name__, "detail": str(e)}
    except MemoryError:
        return {"id": identity, "error": "RequestRefused", "detail": "out of memory; ask for a smaller case"}
    except Exception as e:
        traceback.print_exc()
        return {"id": identity, "error": "InternalError", "detail": f"{type(e).__name__}: {e}"}


def main() -> int:
    """Answer the lines of standard input until its end; the exit code."""
    try:
        for line in sys.stdin.buffer:
            sys.stdout.write(json.dumps(answer(line)) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:  # the parent is gone: leave nothing for the interpreter to flush into the closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _compute(request: dict[str, Any]) -> Answer:
    kernel, dims, inputs = request.get("kernel"), request.get("dims"), request.get("inputs")
    if request.get("op") != "compute" or not isinstance(kernel, str) or kernel not in KERNELS:
        raise RequestRefused(f"unknown op {request.get('op')!r} or kernel {kernel!r}")
    names, answered_by = KERNELS[kernel]
    if not isinstance(dims, dict) or set(dims) != set(names) or not isinstance(inputs, dict):
        raise RequestRefused(f"'dims' must hold {', '.join(names)}, 'inputs' paths by name")
    if not all(type(d) is int and d > 0 for d in dims.values()):
        raise RequestRefused(f"dims {dims}: each is a whole number of 1 or more")
    _path(request, "out")
    options = request.get("options", {})
    if options and (kernel not in (*LAYERS, "probe_words") or not isinstance(options, dict)):
        raise RequestRefused(f"options {options!r}: {kernel} has none")
    return answered_by(inputs, *(dims[d] for d in names), **options)


def _bounded(m: int, n: int) -> None:
    if m * n > MAX_OUTPUTS:
        raise RequestRefused(f"{m} x {n} outputs: at most {MAX_OUTPUTS}")


def _gemm(element: str, out: str, product: Callable[[Array, Array], tuple[Array, int]]) -> Kernel:
    def answered_by(inputs: dict[str, Any], m: int, n: int, k: int) -> Answer:
        _bounded(m, n)
        a, b = _load(inputs, "a", element, (m, k)), _load(inputs, "b", element, (k, n))
        c, leaves = product(a, b)
        return {"a": digest(element, a), "b": digest(element, b)}, out, c.astype(_TYPES[out]), leaves

    return ("m", "n", "k"), answered_by


def _linear(kind: str) -> Kernel:
    def answered_by(inputs: dict[str, Any], m: int, n: int, k: int) -> Answer:
        _bounded(m, n)
        w, name = _weights(inputs, kind, n, k)
        x, bias = _load(inputs, "x", "i64", (m, k)), _load(inputs, "bias", "i64", (n,))
        digests = {"w": digest("u8", w), "x": digest("i64", x), "bias": digest("i64", bias)}
        return digests, "i64", linear_exact(kind, w, x, bias, name).astype("<i8"), 0

    return ("m", "n", "k"), answered_by


def _limbs(inputs: dict[str, Any], n: int) -> Answer:
    _bounded(n, 1)
    a, b, shift = (
        _load(inputs, "a", "i32", (n, 4)),
        _load(inputs, "b", "i32", (n, 4)),
        _load(inputs, "shift", "i32", (n,)),
    )
    digests = {"a": digest("i32", a), "b": digest("i32", b), "shift": digest("i32", shift)}
    return digests, "i32", limbs(a, b, shift).astype("<i4"), 0


def _layer(layer: Layer) -> Kernel:
    """One operation of dyadic-q16 on whole tensors."""

    def answered_by(inputs: dict[str, Any], *sizes: int, **options: str) -> Answer:
        dims = dict(zip(layer.dims, sizes, strict=True))
        _bounded(math.prod(dims[d] for d in layer.output), 1)
        tensors = layer.inputs(dims)
        arrays = {name: _load(inputs, name, element, shape) for name, (element, shape) in tensors.items()}
        digests = {name: digest(tensors[name][0], array) for name, array in arrays.items()}
        return digests, "i64", layer.answer(dims, arrays, options).astype("<i8"), 0

    return layer.dims, answered_by


def _probe(name: str) -> Kernel:
    """Rows of small operations on `width` operand words each."""
    width, operations = PROBES[name]

    def answered_by(inputs: dict[str, Any], rows: int) -> Answer:
        _bounded(rows, 4)
        ops, operands = _load(inputs, "ops", "i32", (rows,)), _load(inputs, "operands", "i32", (rows, width))
        results = compute_probe(list(operations.values()), ops, operands)
        return {"ops": digest("i32", ops), "operands": digest("i32", operands)}, "i32", results, 0

    return ("rows",), answered_by


def _words(inputs: dict[str, Any], n: int, way: str = "page") -> Answer:
    given = _load(inputs, "given", "i32", (n,))
    if way not in ("page", "wrapped", "unaligned"):
        raise RequestRefused(f"way {way!r}: there are page, wrapped, unaligned")
    return {"given": digest("i32", given)}, "i32", words(given, way), 0


def _heap(inputs: dict[str, Any], size: int, n: int) -> Answer:
    places = _load(inputs, "places", "i32", (n,))
    return {"places": digest("i32", places)}, "i32", heap(places), 0


def _arguments(inputs: dict[str, Any], n: int) -> Answer:
    columns = {f"x{j}": _load(inputs, f"x{j}", "i32", (n,)) for j in range(12)}
    return {name: digest("i32", x) for name, x in columns.items()}, "i32", arguments(list(columns.values())), 0


def _path(fields: dict[str, Any], name: str) -> str:
    path = fields.get(name)
    if not isinstance(path, str) or not path or "\0" in path:
        raise RequestRefused(f"{name!r} must be a path")
    try:
        os.fsencode(path)
    except ValueError:
        raise RequestRefused(f"{name!r} must be a path") from None
    return path


def _load(inputs: dict[str, Any], name: str, element: str, dims: tuple[int, ...]) -> Array:
    path = _path(inputs, name)
    if not os.path.isfile(path):
        raise RequestRefused(f"input {name!r}: {os.path.basename(path)!r} is no file")
    kind, there = np.dtype(_TYPES[element]), os.path.getsize(path)
    if there != math.prod(dims) * kind.itemsize:
        raise RequestRefused(f"input {name!r} is {there} bytes; {element}{list(dims)} takes another number")
    try:
        return np.fromfile(path, kind).reshape(dims)
    except OSError as e:
        raise RequestRefused(f"input {name!r}: cannot be read ({e.strerror})") from None


def _weights(inputs: dict[str, Any], kind: str, n: int, k: int) -> tuple[Array, str]:
    """u8[n, row bytes] from a file of raw bytes or out of a model, and the name to blame."""
    if k % 32:
        raise WeightsRefused(f"a row of {k} weights: {kind} rows are multiples of 32")
    source = inputs.get("w")
    if not isinstance(source, dict):
        return _load(inputs, "w", "u8", (n, k // 32 * block_bytes(kind))), "w"
    name = source.get("tensor")
    if not isinstance(name, str):
        raise RequestRefused("'tensor' must be a tensor's name")
    dims, data = block_tensor(_path(source, "gguf"), name, kind)
    if dims != (k, n):
        raise WeightsRefused(f"{name} has dimensions {list(dims)}, the case wants {[k, n]}")
    return data.reshape(n, -1), name


def _operation(name: str) -> Kernel:
    names, tensors, compute = OPERATIONS[name]

    def answered_by(inputs: dict[str, Any], *extents: int) -> Answer:
        sizes = dict(zip(names, extents, strict=True))
        _bounded(*extents[:2])
        loaded, digests = {}, {}
        for tensor, (element, dims) in tensors.items():
            raw = _load(inputs, tensor, element, tuple(d if isinstance(d, int) else sizes[d] for d in dims))
            loaded[tensor], digests[tensor] = raw.astype(np.int64), digest(element, raw)
        return digests, "i32", compute(sizes, **loaded).astype("<i4"), 0

    return names, answered_by


KERNELS: dict[str, Kernel] = {
    "gemm_i32": _gemm("i32", "i32", gemm_i32),
    "gemm_i32_i64": _gemm("i32", "i64", gemm_i32_i64),
    "gemm_i8": _gemm("i8", "i32", gemm_i32),
    "limbs": (("n",), _limbs),
    "linear_q8_0": _linear("Q8_0"),
    "linear_q4_1": _linear("Q4_1"),
    "linear_q4_0": _linear("Q4_0"),
    **{name: _operation(name) for name in OPERATIONS},
    **{name: _layer(layer) for name, layer in LAYERS.items()},
    **{name: _probe(name) for name in PROBES},
    "probe_words": (("n",), _words),
    "probe_heap": (("words", "n"), _heap),
    "probe_arguments": (("n",), _arguments),
}


def _save(request: dict[str, Any], out: Array) -> None:
    try:
        with open(_path(request, "out"), "wb") as file:
            file.write(out.tobytes())
    except OSError as e:
        raise RequestRefused(f"'out' cannot be written ({e.strerror})") from None
