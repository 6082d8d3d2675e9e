"""The reference worker: requests as JSON lines on standard input, answers as JSON lines on standard output.

    {"op": "compute", "id": I, "kernel": "gemm_i32", "dims": {"m": 1, "n": 1, "k": 1},
     "inputs": {"a": PATH, "b": PATH}, "options": {}, "out": PATH}
    -> {"id": I, "digest": D, "element": "i32", "dims": [1, 1], "leaves_type": 0, "input_digests": {...}, "seconds": S}
    -> {"id": I, "error": "RangeContract", "detail": "one line"}

Inputs and output are raw little-endian values, row-major. The weights of a profile kernel may be a tensor of a model
file instead: {"gguf": PATH, "tensor": NAME}. "options" may be left out where a kernel has none. A refused request gets
its error line and the next one goes on.
"""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from cpu_ref.digest import BYTES, tensor_digest, tensor_size
from cpu_ref.errors import Refused, RequestRefused, WeightsRefused
from cpu_ref.gemm import Gemm, gemm_i8, gemm_i32, gemm_i32_i64
from cpu_ref.gguf_parser import Gguf
from cpu_ref.integers import read_signed, write_residues, write_signed
from cpu_ref.layers import LAYERS, Layer
from cpu_ref.limbs import FUNCTIONS, limbs
from cpu_ref.linear import linear
from cpu_ref.nel_mini_kernels import OPERATIONS, Operation
from cpu_ref.probe import PROBES
from cpu_ref.probe import compute as compute_probe
from cpu_ref.probe_memory import ARGUMENTS, WAYS, arguments, heap, words
from cpu_ref.weights import Q4_0, Q4_1, Q8_0, BlockType

MAX_OUTPUTS = 1 << 26
"""Output elements of one request at most: each is a Python int on its way, and memory has an end."""

Data = bytes | memoryview


@dataclass(frozen=True)
class Computed:
    """An output tensor, and the digests of the inputs as they were read."""

    element: str
    dims: tuple[int, ...]
    data: bytes
    leaves_type: int
    input_digests: dict[str, str]


Compute = Callable[..., Computed]
"""Dimensions by name and the inputs of a request to its answer; options come by keyword."""


@dataclass(frozen=True)
class Kernel:
    """What can be asked for: the names of its dimensions, those of its output, what computes it, its options' values."""

    dims: tuple[str, ...]
    output: tuple[str, ...]
    compute: Compute
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def serve(requests: Iterable[bytes], answers: BinaryIO) -> None:
    """Answer each request line; returns at the end of `requests`."""
    for line in requests:
        answers.write(json.dumps(answer(line)).encode("ascii") + b"\n")
        answers.flush()


def answer(line: bytes) -> dict[str, Any]:
    """The answer to one request line. Only a fault of the reference itself prints a traceback, to standard error."""
    identity: Any = None
    try:
        request = _parse(line)
        identity = request.get("id")
        started = time.perf_counter()
        result = _compute(request)
        _write(_text(request, "out"), result.data)
        return {
            "id": identity,
            "digest": tensor_digest(result.element, result.dims, result.data),
            "element": result.element,
            "dims": result.dims,
            "leaves_type": result.leaves_type,
            "input_digests": result.input_digests,
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
    """Serve standard input until its end; the exit code."""
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the parent is gone: leave nothing for the interpreter to flush into the closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise RequestRefused("the request is no JSON; send one object a line") from None
    if not isinstance(request, dict):
        raise RequestRefused("the request is no JSON object; send one object a line")
    return request


def _compute(request: dict[str, Any]) -> Computed:
    if request.get("op") != "compute":
        raise RequestRefused(f"unknown op {request.get('op')!r}; there is 'compute'")
    kernel = request.get("kernel")
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise RequestRefused(f"unknown kernel {kernel!r}; there are {', '.join(KERNELS)}")
    inputs = request.get("inputs")
    if not isinstance(inputs, dict):
        raise RequestRefused("'inputs' must be an object of paths by name")
    _text(request, "out")  # before the work, not after it
    dims, options = _dims(request, KERNELS[kernel]), _options(request, KERNELS[kernel])
    return KERNELS[kernel].compute(dims, inputs, **options)


def _dims(request: dict[str, Any], kernel: Kernel) -> dict[str, int]:
    dims = request.get("dims")
    if not isinstance(dims, dict) or dims.keys() != set(kernel.dims):
        raise RequestRefused(f"'dims' must hold {', '.join(kernel.dims)}")
    if any(type(d) is not int or d < 1 for d in dims.values()):
        raise RequestRefused(f"dims {dims}: each is a whole number of 1 or more")
    if math.prod(dims[d] for d in kernel.output) > MAX_OUTPUTS:
        outputs = " x ".join(str(dims[d]) for d in kernel.output)
        raise RequestRefused(f"{outputs} outputs; at most {MAX_OUTPUTS} in one request")
    return dims


def _options(request: dict[str, Any], kernel: Kernel) -> dict[str, str]:
    options = request.get("options", {})
    if not isinstance(options, dict) or options.keys() != kernel.options.keys():
        raise RequestRefused(f"'options' must hold {', '.join(kernel.options) or 'nothing'}")
    for name, values in kernel.options.items():
        if options[name] not in values:
            raise RequestRefused(f"option {name} is {' or '.join(values)}")
    return options


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    try:
        if isinstance(value, str) and value and b"\0" not in os.fsencode(value):
            return value
    except UnicodeEncodeError:
        pass
    raise RequestRefused(f"{name!r} must be a path")


def _read(inputs: dict[str, Any], name: str, element: str, dims: tuple[int, ...]) -> bytes:
    """The file of input `name`, which must hold exactly that tensor."""
    path, size = _text(inputs, name), tensor_size(element, dims)
    try:
        there = os.path.getsize(path) if os.path.isfile(path) else None
        if there is None:
            raise RequestRefused(f"input {name!r}: {os.path.basename(path)!r} is no file")
        if there != size:
            raise RequestRefused(f"input {name!r} is {there} bytes; {element}{list(dims)} takes {size}")
        with open(path, "rb") as file:
            return file.read()
    except OSError as e:
        raise RequestRefused(f"input {name!r}: {os.path.basename(path)!r} cannot be read ({e.strerror})") from None


def _write(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as e:
        raise RequestRefused(f"'out': {os.path.basename(path)!r} cannot be written ({e.strerror})") from None


def _gemm(element: str, out: str, product: Callable[[Data, Data, int, int, int], Gemm]) -> Kernel:
    """One integer gemm: A and B of `element`, C of `out`."""

    def compute(dims: dict[str, int], inputs: dict[str, Any]) -> Computed:
        m, n, k = (dims[d] for d in "mnk")
        a, b = _read(inputs, "a", element, (m, k)), _read(inputs, "b", element, (k, n))
        result = product(a, b, m, n, k)
        digests = {"a": tensor_digest(element, (m, k), a), "b": tensor_digest(element, (k, n), b)}
        return Computed(out, (m, n), result.c, result.leaves_type, digests)

    return Kernel(("m", "n", "k"), ("m", "n"), compute)


def _linear(kind: BlockType) -> Kernel:
    """Op 2 of dyadic-q16 on weights in blocks of one kind; the bias is an input, of zeros where there is none."""

    def compute(dims: dict[str, int], inputs: dict[str, Any]) -> Computed:
        m, n, k = (dims[d] for d in "mnk")
        row_bytes = kind.row_bytes(k)
        w: Data
        if isinstance(inputs.get("w"), dict):
            w, name = _tensor(inputs["w"], kind, n, k)
        else:
            w, name = _read(inputs, "w", "u8", (n, row_bytes)), "w"
        x, bias = _read(inputs, "x", "i64", (m, k)), _read(inputs, "bias", "i64", (n,))
        y = linear(kind, w, read_signed(x, 8), k, name, read_signed(bias, 8))
        digests = {
            "w": tensor_digest("u8", (n, row_bytes), w),
            "x": tensor_digest("i64", (m, k), x),
            "bias": tensor_digest("i64", (n,), bias),
        }
        return Computed("i64", (m, n), write_signed(y, 8), 0, digests)

    return Kernel(("m", "n", "k"), ("m", "n"), compute)


def _tensor(source: dict[str, Any], kind: BlockType, n: int, k: int) -> tuple[memoryview, str]:
    """Bytes and name of a model's tensor of n rows of k weights in blocks of `kind`."""
    path, name = _text(source, "gguf"), source.get("tensor")
    if not isinstance(name, str):
        raise RequestRefused("'tensor' must be a tensor's name")
    tensor = Gguf(path).tensor(name)
    if tensor.type != kind.name or tensor.dims != (k, n):
        raise WeightsRefused(f"{name} is {tensor.type} {list(tensor.dims)}, the case wants {kind.name} {[k, n]}")
    return tensor.data, name


def _limbs(dims: dict[str, int], inputs: dict[str, Any]) -> Computed:
    n = dims["n"]
    wide = {name: _read(inputs, name, "i32", (n, 4)) for name in ("a", "b")}
    shift = _read(inputs, "shift", "i32", (n,))
    a, b = ([int.from_bytes(data[i : i + 16], "little") for i in range(0, 16 * n, 16)] for data in wide.values())
    found = limbs(a, b, read_signed(shift, 4))
    digests = {name: tensor_digest("i32", (n, 4), data) for name, data in wide.items()}
    digests["shift"] = tensor_digest("i32", (n,), shift)
    data = b"".join(v.to_bytes(16, "little") for v in found)
    return Computed("i32", (len(FUNCTIONS), n, 4), data, 0, digests)


def _operation(op: Operation) -> Kernel:
    """A single operation of nel-mini-w8a8; its u32 table holds nothing beyond i32."""

    def compute(dims: dict[str, int], inputs: dict[str, Any]) -> Computed:
        tensors, digests = {}, {}
        for name, (element, extents) in op.inputs.items():
            shape = tuple(e if isinstance(e, int) else dims[e] for e in extents)
            data = _read(inputs, name, element, shape)
            tensors[name] = read_signed(data, BYTES[element])
            digests[name] = tensor_digest(element, shape, data)
        shape = tuple(e if isinstance(e, int) else dims[e] for e in op.output)
        return Computed("i32", shape, write_signed(op.compute(dims, tensors), 4), 0, digests)

    return Kernel(op.dims, tuple(e for e in op.output if isinstance(e, str)), compute)


def _layer(layer: Layer) -> Kernel:
    """A single operation of dyadic-q16; it takes an input of bytes as bytes."""

    def compute(dims: dict[str, int], inputs: dict[str, Any], **options: str) -> Computed:
        values: dict[str, Any] = {}
        digests = {}
        for name, (element, shape) in layer.tensors(dims).items():
            data = _read(inputs, name, element, shape)
            values[name] = data if element == "u8" else read_signed(data, BYTES[element])
            digests[name] = tensor_digest(element, shape, data)
        out = layer.compute(dims, values, **options)
        return Computed("i64", tuple(dims[d] for d in layer.output), write_signed(out, 8), 0, digests)

    return Kernel(layer.dims, layer.output, compute, layer.options)


def _probe(name: str) -> Kernel:
    """Rows of small operations: `ops` i32[rows] and `operands` i32[rows, width] to i32[rows, 4]."""
    width, operations = PROBES[name]

    def compute(dims: dict[str, int], inputs: dict[str, Any]) -> Computed:
        rows = dims["rows"]
        ops, operands = _read(inputs, "ops", "i32", (rows,)), _read(inputs, "operands", "i32", (rows, width))
        results = compute_probe(list(operations.values()), ops, operands, width)
        digests = {"ops": tensor_digest("i32", (rows,), ops)}
        digests["operands"] = tensor_digest("i32", (rows, width), operands)
        return Computed("i32", (rows, 4), results, 0, digests)

    return Kernel(("rows",), ("rows",), compute)


def _of_memory(names: tuple[str, ...], compute: Callable[..., list[int]]) -> Compute:
    """Inputs i32[n] of these names to i32[n]."""

    def computed(dims: dict[str, int], inputs: dict[str, Any], **chosen: str) -> Computed:
        n = dims["n"]
        data = {name: _read(inputs, name, "i32", (n,)) for name in names}
        values = {name: read_signed(content, 4) for name, content in data.items()}
        results = write_residues(compute(values, **chosen), 4)
        return Computed("i32", (n,), results, 0, {name: tensor_digest("i32", (n,), d) for name, d in data.items()})

    return computed


def _words(inputs: dict[str, list[int]], way: str) -> list[int]:
    return words(inputs["given"], way)


def _heap(inputs: dict[str, list[int]]) -> list[int]:
    return heap(inputs["places"])


KERNELS: dict[str, Kernel] = {
    "gemm_i32": _gemm("i32", "i32", gemm_i32),
    "gemm_i32_i64": _gemm("i32", "i64", gemm_i32_i64),
    "gemm_i8": _gemm("i8", "i32", gemm_i8),
    "limbs": Kernel(("n",), ("n",), _limbs),
    "linear_q8_0": _linear(Q8_0),
    "linear_q4_1": _linear(Q4_1),
    "linear_q4_0": _linear(Q4_0),
    **{name: _operation(op) for name, op in OPERATIONS.items()},
    **{name: _layer(layer) for name, layer in LAYERS.items()},
    **{name: _probe(name) for name in PROBES},
    "probe_words": Kernel(("n",), ("n",), _of_memory(("given",), _words), {"way": WAYS}),
    "probe_heap": Kernel(("words", "n"), ("n",), _of_memory(("places",), _heap)),
    "probe_arguments": Kernel(("n",), ("n",), _of_memory(ARGUMENTS, arguments)),
}
"""What can be asked for."""
