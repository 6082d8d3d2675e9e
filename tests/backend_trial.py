"""A driver's trial, in a process of its own: `python backend_trial.py API [products]` prints what came of it as JSON.

The program is as small as can be: c[i] = 3 a[i] + params[1] for i < params[0], and the nonce into the receipt.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import backends, kernels
from harness.cases import Case
from harness.errors import DeviceFault, Unsupported
from harness.kernels import GUARD_WORDS, Buffer, Kernel, Language, Pass, Tensor
from harness.worker import constants_of

COUNT = 1000
NONCE = 0xDEADBEEF
GUARD = b"\xce\xfa\xde\xc0" * GUARD_WORDS
OPENCL = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void triple(
    __global const uint *params, __global const uint *a, __global const uint *order,
    __global uint *scratch, __global uint *c, __global uint *receipt) {
    const uint i = get_global_id(0);
    if (i == 0u) { receipt[0] = NONCE; }
    if (i < params[0]) { c[i] = a[i] * 3u + params[1]; }
}
"""
WGSL = """
override NONCE: u32 = 0u;
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<u32>;
@group(0) @binding(4) var<storage, read_write> c: array<u32>;
@group(0) @binding(5) var<storage, read_write> receipt: array<u32>;
@compute @workgroup_size(64)
fn triple(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x == 0u) { receipt[0] = NONCE; }
    if (id.x < params[0]) { c[id.x] = a[id.x] * 3u + params[1]; }
}
"""
SOURCES = {"opencl": OPENCL, "wgsl": WGSL}
KERNEL = Kernel(
    name="trial",
    variant="base",
    stem="trial",
    shape=("n",),
    inputs=(Tensor("a", "u32", ("n",)),),
    output=Tensor("c", "u32", ("n",)),
    entries=("triple",),
    passes=lambda case, schedule: (),
    purpose="trial",
    distributions=(),
    generate=lambda case: {},
)
BUFFERS = (
    Buffer("params", "params", 8),
    Buffer("a", "input", COUNT),
    Buffer("order", "input", 0),
    Buffer("scratch", "scratch", 4),
    Buffer("c", "output", COUNT),
    Buffer("receipt", "receipt", 4),
)


def main(api: str, multiply: bool) -> dict[str, Any]:
    """Probe, open, compile, bind, run twice with the same handles, and every refusal."""
    module = backends.load(api)
    result: dict[str, Any] = {"reports": module.probe(), "refused": {}}
    if not result["reports"]:
        return result
    device = module.open_device(0)
    text = SOURCES[module.LANGUAGE]
    program = device.compile(KERNEL, text, {"NONCE": NONCE})
    if api == "opencl":
        import pyopencl as cl

        said = program.build.get_build_info(device.device, cl.program_build_info.OPTIONS)
        result["options"] = [option for option in said.split() if option == "-cl-opt-disable"]
    a = np.arange(COUNT, dtype="<u4") * np.uint32(0x01234567)
    bound = device.bind(BUFFERS, {"a": a.tobytes()})
    result["runs"] = []
    for sentinel in (0xA5A5A5A5, 0x5A5A5A5A):
        word = sentinel.to_bytes(4, "little")
        fill = {b.name: word * b.words + GUARD for b in BUFFERS if b.writable}
        # The second pass overwrites the first half, so it must come second and with its own arguments.
        passes = [
            Pass("triple", (16, 1, 1), (64, 1, 1), (COUNT - 1, 7)),
            Pass("triple", (8, 1, 1), (64, 1, 1), (500, 8)),
        ]
        out = device.run(program, bound, passes, fill)
        wanted = a * np.uint32(3) + np.uint32(7)
        wanted[:500] += np.uint32(1)
        result["runs"].append(
            {
                "right": out["c"][: 4 * COUNT - 4] == wanted[:-1].tobytes(),
                "last_untouched": out["c"][4 * COUNT - 4 : 4 * COUNT] == word,
                "guard_kept": out["c"][4 * COUNT :] == GUARD,
                "receipt": out["receipt"][:8].hex(),
            }
        )
    result["products"] = products(device, module.LANGUAGE) if multiply else {}
    result["artefacts"] = sorted(device.artefacts(program))
    huge = 1 << 40
    refused: dict[str, Callable[[], Any]] = {
        "syntax": lambda: device.compile(KERNEL, "broken !!", {"NONCE": 0}),
        "name": lambda: device.compile(
            KERNEL, text.replace("a[i]", "b[i]").replace("a[id.x]", "b[id.x]"), {"NONCE": 0}
        ),
        "entry": lambda: device.compile(KERNEL, text.replace("triple", "other"), {"NONCE": 0}),
        "size": lambda: device.bind([Buffer("params", "params", huge)], {}),
    }
    for name, call in refused.items():
        try:
            call()
        except DeviceFault as fault:
            result["refused"][name] = [type(fault).__name__, str(fault)]
    device.close()
    return result


def products(device: Any, language: Language) -> dict[str, list[int] | str]:
    """By each form of gemm_i8 that the device has: the first of `packed_words` times each of them, or what is unsupported."""
    case = Case("gemm_i8", (("m", 1), ("n", 8), ("k", 4)), "packed_words", 0)
    data = {name: array.tobytes() for name, array in kernels.base("gemm_i8").generate(case).items()}
    found: dict[str, list[int] | str] = {}
    for kernel in kernels.variants("gemm_i8", language):
        if set(kernel.needs.get(language, ())) <= set(device.report.features):
            plan = kernel.plan(case, "forward")
            program = device.compile(kernel, kernels.source(kernel, language), constants_of("forward", NONCE, False))
            fill = {b.name: bytes(4 * b.words) for b in plan.buffers if b.writable}
            try:
                out = device.run(program, device.bind(plan.buffers, data), plan.passes, fill)
            except Unsupported as fault:
                found[kernel.variant] = str(fault)
                continue
            found[kernel.variant] = np.frombuffer(out["c"], "<i4", 8).tolist()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:] == ["products"])))
