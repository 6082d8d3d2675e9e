"""In the place of a `Session`: the reference's operations on named tensors, and what was submitted."""

from collections.abc import Callable

import numpy as np

from cpu_ref.layers import LAYERS
from cpu_ref.linear import linear
from cpu_ref.weights import BLOCK_TYPES
from harness import kernels
from harness.device_session import Step, Submission
from harness.digest import numpy_type


class ExactDevice:
    """`spoil(label, inputs)` may change the inputs of a step, by the kernel's names."""

    def __init__(self, spoil: Callable[[str, dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None) -> None:
        self.schedule = "forward"
        self.spoil = spoil or (lambda label, inputs: inputs)
        self.tensors: dict[str, bytearray] = {}
        self.submissions: list[Submission] = []

    def entry(self, kernel):
        return kernels.base(kernel)

    def order(self, entry):
        return "forward"

    def submit(self, submission):
        self.submissions.append(submission)
        for name in submission.free:
            del self.tensors[name]
        for name, size in submission.allocate.items():
            self.tensors[name] = bytearray(b"\xee" * size)
        for name, content in submission.uploads.items():
            if callable(content):
                raw = np.ascontiguousarray(content()).tobytes()
            else:
                raw = content.file.read_bytes()[content.start : content.start + content.size]
            assert len(raw) <= len(self.tensors[name])
            self.tensors[name][: len(raw)] = raw
        for step in submission.steps:
            self.compute(step)
        return {fetch.label: bytes(self.tensors[fetch.name][: fetch.size]) for fetch in submission.fetches}

    def compute(self, step: Step):
        names = [name for name, _ in step.arguments]
        if step.entry.name == "kv_append":
            for p in step.passes:
                w, source, target = p.params
                rows, size = p.groups[1], 8 * w
                moved = self.tensors[names[0]][source * size : (source + rows) * size]
                self.tensors[names[1]][target * size : (target + rows) * size] = moved
            return
        inputs = {
            tensor.name: np.frombuffer(self.tensors[name], numpy_type(tensor.element))
            for tensor, name in zip(step.entry.inputs, names, strict=False)
        }
        output = self.tensors[names[-1]]
        made = self.made(step, self.spoil(step.label, inputs))
        output[: made.nbytes] = made.tobytes()

    def made(self, step, inputs):
        """The output; of a matrix in parts, the rows of this one beside those that stand there."""
        p = step.passes[0].params
        if step.entry.name.startswith("linear_"):
            m, n, k = p[:3]
            kind = BLOCK_TYPES[step.entry.name.removeprefix("linear_").upper()]
            first = p[5] if len(p) > 5 else 0
            row = kind.row_bytes(k)
            rows = min(n - first, inputs["w"].size // row)
            x, bias = inputs["x"][: m * k].tolist(), inputs["bias"][first : first + rows].tolist()
            part = linear(kind, inputs["w"][: rows * row].tobytes(), x, k, bias=bias)
            whole = np.frombuffer(self.tensors[step.arguments[-1][0]], "<i8")[: m * n].reshape(m, n).copy()
            whole[:, first : first + rows] = np.array(part).reshape(m, rows)
            return whole
        op = LAYERS[step.entry.name]
        dims, options, sized = self.dims(step), {}, {}
        if step.entry.name == "rope":
            options = {"pairing": step.entry.options["pairing"][p[3]]}
        if "w" in inputs:
            kind = BLOCK_TYPES[step.entry.name.removeprefix("embedding_").upper()]
            dims["v"] = inputs["w"].size // kind.row_bytes(dims["k"])
            inputs["w"] = inputs["w"][: dims["v"] * kind.row_bytes(dims["k"])]
        dims["pairs"] = dims.get("hd", 0) // 2
        for name, (_, shape) in op.inputs.items():
            count = int(np.prod([d if isinstance(d, int) else dims.get(d, 0) for d in shape]))
            sized[name] = inputs[name].tobytes() if name == "w" else inputs[name][:count].tolist()
        made = op.compute({d: dims[d] for d in step.entry.shape}, sized, **options)
        return np.array(made, "<i8")

    def dims(self, step):
        """The kernel's shape, out of its run-time arguments."""
        p = step.passes[0].params
        if step.entry.name in ("scores", "mix"):
            return {"t": p[0], "s": p[1], "h": p[2], "kv": p[2] // p[3], "hd": p[4]}
        if step.entry.name == "softmax":
            return {"t": p[0], "s": p[1], "h": p[2]}
        if step.entry.name == "rope":
            return {"t": p[0], "h": p[1], "hd": p[2]}
        if step.entry.name.startswith("embedding"):
            return {"t": p[0], "k": p[1]}
        return {"m": p[0], "n": p[1]}
