"""Kernels that try memory and limits: indices, extents of dispatches, large buffers, many arguments.

They run two ways, with the optimiser and without: operands written into the text have no meaning for them.
"""

import numpy as np
import numpy.typing as npt

from cpu_ref.probe_memory import ARGUMENTS, BASE, WAYS
from harness.cases import Case
from harness.inputs import random_words
from harness.plans import MAX_GROUPS, Kernel, Language, Pass, Probe, Tensor

LANES = 64
PITCH = 0x1234567
"""An odd step of indices: products with it pass 2^32 after 225 words."""

EXTENTS = {
    "nothing": "one row of workgroups, then a dispatch of no workgroup that would spoil it",
    "line": "one row of workgroups: the last words of a tensor of odd size",
    "spread": "workgroups in three dimensions",
    "limit": "exactly 65,535 workgroups in one dimension, what every WebGPU device takes",
    "past": "more than 65,535 workgroups, in two dimensions",
}
"""Distribution -> why it exists."""

REFUSED: dict[str, tuple[Language, ...]] = {"nothing": ("cuda",)}
"""CUDA takes no grid of nothing."""


def _words(name: str, n: int) -> npt.NDArray[np.int32]:
    return (random_words(name, n) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)


def _given(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    return {"given": _words(f"{case.id}/given", case.dims["n"])}


def _extent(case: Case) -> tuple[int, int, int]:
    """Workgroups that hold n lanes at least."""
    groups = -(-case.dims["n"] // LANES)
    if case.dist == "past":
        return MAX_GROUPS, -(-groups // MAX_GROUPS), 1
    if case.dist == "spread":
        return 7, 5, -(-groups // 35)
    return groups, 1, 1


def _words_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: n, way, workgroups in x and y, base, pitch."""
    x, y, z = _extent(case)
    way = WAYS.index(dict(case.extra).get("way", WAYS[0]))
    params = (case.dims["n"], way, x, y, BASE, PITCH)
    made = Pass("probe", (x, y, z), (LANES, 1, 1), params)
    return (made, Pass("never", (0, 1, 1), (LANES, 1, 1), params)) if case.dist == "nothing" else (made,)


def _places(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """`places` i32[n]: the heap's ends, powers of two and their neighbours, others at random; each once."""
    size, n = case.dims["words"], case.dims["n"]
    powers = [at for k in range(32) for at in (1 << k, (1 << k) - 1, (1 << k) + 1)]
    edges = [0, size - 1, size - 2, size // 2, size // 3, *reversed(powers)]
    others = (random_words(f"{case.id}/places", 4 * n + 8) % np.uint64(size)).tolist()
    found = list(dict.fromkeys(at for at in [*edges, *others] if 0 <= at < size))[:n]
    return {"places": np.array(found, np.uint32).view(np.int32)}


def _heap_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: n."""
    n = case.dims["n"]
    return tuple(Pass(entry, (-(-n // LANES), 1, 1), (LANES, 1, 1), (n,)) for entry in ("store", "load"))


def _more_places_than_words(case: Case) -> str:
    return "" if case.dims["n"] <= case.dims["words"] < 1 << 32 else "n is at most words, and words below 2^32"


def _arguments(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    return {name: _words(f"{case.id}/{name}", case.dims["n"]) for name in ARGUMENTS}


def _arguments_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: n."""
    n = case.dims["n"]
    return (Pass("probe", (-(-n // LANES), 1, 1), (LANES, 1, 1), (n,)),)


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="probe_words",
        variant="base",
        stem="probe_words",
        shape=("n",),
        inputs=(Tensor("given", "i32", ("n",)),),
        output=Tensor("found", "i32", ("n",)),
        entries=("probe", "never"),
        passes=_words_passes,
        purpose="words reached by guarded, wrapping and unaligned indices, in dispatches of any extent",
        distributions=tuple(EXTENTS),
        generate=_given,
        schedules=("forward",),
        reduces=None,
        options={"way": WAYS},
        probe=Probe((), undefined_in=REFUSED),
    ),
    Kernel(
        name="probe_heap",
        variant="base",
        stem="probe_heap",
        shape=("words", "n"),
        inputs=(Tensor("places", "i32", ("n",)),),
        output=Tensor("found", "i32", ("n",)),
        entries=("store", "load"),
        passes=_heap_passes,
        purpose="a few words of a large buffer, at the limits of bindings and of 32 bits",
        distributions=("places",),
        generate=_places,
        schedules=("forward",),
        reduces=None,
        heap=lambda case: case.dims["words"],
        refused=_more_places_than_words,
    ),
    Kernel(
        name="probe_arguments",
        variant="base",
        stem="probe_arguments",
        shape=("n",),
        inputs=tuple(Tensor(name, "i32", ("n",)) for name in ARGUMENTS),
        output=Tensor("y", "i32", ("n",)),
        entries=("probe",),
        passes=_arguments_passes,
        purpose="a kernel of fifteen arguments",
        distributions=("full",),
        generate=_arguments,
        schedules=("forward",),
        reduces=None,
    ),
)


def _of_words(n: int, extent: str, seed: int, way: str) -> Case:
    return Case("probe_words", (("n", n),), extent, seed, (("way", way),), EXTENTS[extent])


def _of_heap(words: int, seed: int, reason: str) -> Case:
    return Case("probe_heap", (("words", words), ("n", 96)), "places", seed, reason=reason)


HEAPS = [
    (2**25, "128 MiB: the binding limit that every WebGPU device has"),
    (2**25 + 1, "one word over 128 MiB"),
    (2**29 - 1, "indices of bytes up to 2^31"),
    (2**29 + 2**20, "indices of bytes past 2^31"),
    (2**30 + 2**20, "indices of bytes past 2^32"),
]
"""Words of a heap, and why. What a device cannot bind is unsupported, with both numbers."""


def cases(preset: str, seed: int) -> list[Case]:
    """Large buffers and dispatches stand in `full` and `soak`."""
    found = [_of_words(n, "line", seed, way) for way in WAYS for n in (1, 4, 1023, 1024, 4097)]
    found += [_of_words(1025, "spread", seed, "wrapped"), _of_words(2239, "nothing", seed, "page")]
    found.append(_of_heap(2**12 + 1, seed, "a small heap"))
    found.append(
        Case("probe_arguments", (("n", 131),), "full", seed, reason="twelve inputs, told apart by their weights")
    )
    if preset == "tiny":
        return [c for c in found if c.kernel != "probe_words" or c.dims["n"] in (1, 1023, 1025, 2239)]
    if preset != "quick":
        found += [
            _of_words(64 * MAX_GROUPS, "limit", seed, "page"),
            _of_words(64 * 65_536 + 1, "past", seed, "wrapped"),
        ]
        found += [_of_heap(words, seed, reason) for words, reason in HEAPS]
    return found


SELF_TESTS = {
    "probe_words": _of_words(67, "line", 0, "unaligned"),
    "probe_heap": Case("probe_heap", (("words", 300), ("n", 20)), "places", 0, reason="known answer"),
    "probe_arguments": Case("probe_arguments", (("n", 5),), "full", 0, reason="known answer"),
}
