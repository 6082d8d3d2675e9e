"""The layer family: row operations of dyadic-q16 (norm, RoPE, gate, residual, greedy choice, KV cache) and their cases."""

from collections.abc import Callable, Mapping
from itertools import product

from harness import schedules
from harness.cases import Case
from harness.families import catches, layers_inputs, native, real_activations
from harness.plans import Kernel, Pass, Tensor, bands

Passes = Callable[[Case, str], tuple[Pass, ...]]

LANES = 64
ROWS = ("m", "n")
PAIRINGS = ("interleaved", "half")


def _element_passes(entry: str) -> Passes:
    """Passes of a kernel whose lanes make one element each. params: M, N, first row of the band."""

    def passes(case: Case, schedule: str) -> tuple[Pass, ...]:
        m, n = case.dims["m"], case.dims["n"]
        return tuple(
            Pass(entry, (-(-n // LANES), count, 1), (LANES, 1, 1), (m, n, start)) for start, count in bands(m, n, 1)
        )

    return passes


def _row_passes(entry: str, combined: int) -> Passes:
    """Passes of a kernel whose workgroups reduce one row each. params: M, N, first row of the band, part length.

    A workgroup of `combine` makes `combined` rows.
    """

    def passes(case: Case, schedule: str) -> tuple[Pass, ...]:
        m, n = case.dims["m"], case.dims["n"]
        part = schedules.part_length(n)
        parts = schedules.PARTS if schedule == "split_k" else 1
        found = [Pass(entry, (count, 1, parts), (LANES, 1, 1), (m, n, start, part)) for start, count in bands(m, n, 1)]
        if schedule == "split_k":
            for start, count in bands(m, n, combined):
                found.append(Pass("combine", (-(-count // combined), 1, 1), (LANES, 1, 1), (m, n, start, part)))
        return tuple(found)

    return passes


def _rope_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: T, H, head width, pairing, first token of the band. A lane turns one pair."""
    t, h, hd = (case.dims[d] for d in ("t", "h", "hd"))
    pairing = PAIRINGS.index(dict(case.extra).get("pairing", PAIRINGS[0]))
    return tuple(
        Pass("turn", (-(-hd // 64), count, h), (32, 1, 1), (t, h, hd, pairing, start))
        for start, count in bands(t, h * hd, 1)
    )


def _embedding_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: T, K, first token of the band. A lane makes one element."""
    t, k = case.dims["t"], case.dims["k"]
    return tuple(
        Pass("look_up", (-(-k // LANES), count, 1), (LANES, 1, 1), (t, k, start)) for start, count in bands(t, k, 1)
    )


def _append_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: W, first row of rows, first row of the cache. What passes the end of the cache goes in at its beginning."""
    t, past, w = (case.dims[d] for d in ("t", "past", "w"))
    return (*append_passes(t - past, w, 0, past), *append_passes(past, w, t - past, 0))


def append_passes(count: int, w: int, source: int, target: int) -> tuple[Pass, ...]:
    """Passes of kv_append: `count` rows of `w` elements, from row `source` of rows on, to row `target` of the cache."""
    return tuple(
        Pass("append", (-(-w // LANES), rows, 1), (LANES, 1, 1), (w, source + start, target + start))
        for start, rows in bands(count, w, 1)
    )


def _norm_scratch(case: Case) -> int:
    """The words of a 128-bit sum for each row and part."""
    return 4 * schedules.PARTS * case.dims["m"]


def _choice_scratch(case: Case) -> int:
    """A value's two words and its place for each row and part."""
    return 3 * schedules.PARTS * case.dims["m"]


def _inputs(case: Case) -> layers_inputs.Arrays:
    return real_activations.real_inputs(case) if case.dist == "real" else layers_inputs.layer_inputs(case)


def _layer(name: str, shape: tuple[str, ...], inputs: tuple[Tensor, ...], output: Tensor, **more: object) -> Kernel:
    return Kernel(
        name=name,
        variant="base",
        stem="embedding_blocks" if name.startswith("embedding") else name,
        shape=shape,
        inputs=inputs,
        output=output,
        distributions=(*layers_inputs.DISTRIBUTIONS[name], *(("real",) if name in real_activations.KERNELS else ())),
        generate=_inputs,
        **more,  # type: ignore[arg-type]
    )


_ELEMENTWISE: Mapping[str, object] = {"schedules": ("forward",), "reduces": None}


def _embedding(block: str, released: str) -> Kernel:
    return _layer(
        f"embedding_{block}",
        ("t", "v", "k"),
        (Tensor("ids", "i32", ("t",)), Tensor("w", "u8", ("v", f"{block}_row"))),
        Tensor("x", "i64", ("t", "k")),
        entries=("look_up",),
        passes=_embedding_passes,
        purpose=f"op 1 of dyadic-q16: rows of {released} bytes by token ids",
        preludes=("int64_limbs", f"block_{block}"),
        multiples={"k": 32},
        **_ELEMENTWISE,
    )


_BASE: tuple[Kernel, ...] = (
    _embedding("q8_0", "Q8_0"),
    _embedding("q4_1", "Q4_1"),
    _embedding("q4_0", "Q4_0"),
    _layer(
        "residual",
        ROWS,
        (Tensor("x", "i64", ROWS), Tensor("y", "i64", ROWS)),
        Tensor("z", "i64", ROWS),
        entries=("add",),
        passes=_element_passes("add"),
        purpose="op 10 of dyadic-q16: the sum of two rows, 64 bits in 32-bit limbs",
        preludes=("int64_limbs",),
        **_ELEMENTWISE,
    ),
    _layer(
        "gate",
        ROWS,
        (Tensor("gate", "i64", ROWS), Tensor("up", "i64", ROWS), Tensor("g", "i32", (32769,))),
        Tensor("h", "i64", ROWS),
        entries=("activate",),
        passes=_element_passes("activate"),
        purpose="ops 8 and 9 of dyadic-q16: SiLU by its table, times up",
        preludes=("int64_limbs",),
        **_ELEMENTWISE,
    ),
    _layer(
        "rmsnorm",
        ROWS,
        (Tensor("x", "i64", ROWS), Tensor("g", "i64", ("n",)), Tensor("eps32", "i64", (1,))),
        Tensor("y", "i64", ROWS),
        entries=("normalise", "combine"),
        passes=_row_passes("normalise", 1),
        purpose="op 3 of dyadic-q16: a sum of squares and a product of 128 bits, root and quotient digit by digit",
        preludes=("int64_limbs", "int128_limbs", "terms"),
        reduces="n",
        scratch=_norm_scratch,
    ),
    _layer(
        "rope",
        ("t", "h", "hd"),
        (Tensor("x", "i64", ("t", "h", "hd")), Tensor("c", "i32", ("t", "pairs")), Tensor("s", "i32", ("t", "pairs"))),
        Tensor("y", "i64", ("t", "h", "hd")),
        entries=("turn",),
        passes=_rope_passes,
        purpose="op 4 of dyadic-q16: pairs of a head turned by a table, neighbours or halves",
        preludes=("int64_limbs",),
        multiples={"hd": 2},
        options={"pairing": PAIRINGS},
        **_ELEMENTWISE,
    ),
    _layer(
        "argmax",
        ROWS,
        (Tensor("x", "i64", ROWS),),
        Tensor("i", "i64", ("m",)),
        entries=("choose", "combine"),
        passes=_row_passes("choose", LANES),
        purpose="the greedy choice of dyadic-q16: the largest of a row, the lowest place among equals",
        preludes=("int64_limbs", "terms"),
        reduces="n",
        scratch=_choice_scratch,
    ),
    _layer(
        "kv_append",
        ("t", "past", "w"),
        (Tensor("rows", "i64", ("t", "w")),),
        Tensor("cache", "i64", ("t", "w")),
        entries=("append",),
        passes=_append_passes,
        purpose="keys or values of new positions into the cache behind the old ones",
        refused=lambda case: "" if case.dims["past"] <= case.dims["t"] else "past is at most t",
        **_ELEMENTWISE,
    ),
)

_NATIVE: Mapping[str, tuple[str, ...]] = {
    "embedding_q8_0": ("full",),
    "embedding_q4_1": ("full",),
    "embedding_q4_0": ("full",),
    "residual": ("carries", "edge"),
    "gate": ("table", "edge"),
    "rmsnorm": ("magnitudes", "edge"),
    "rope": ("ties", "edge"),
    "argmax": ("equals", "words"),
}
"""Kernel -> the distributions of its native form. kv_append computes nothing, so it has none."""

KERNELS: tuple[Kernel, ...] = (*_BASE, *(native(k, _NATIVE[k.name]) for k in _BASE if k.name in _NATIVE))

_EMBEDDING: Mapping[str, Mapping[str, tuple[tuple[int, ...], ...]]] = {
    "tiny": {"full": ((1, 1, 32), (5, 7, 96))},
    "quick": {"full": ((4, 1000, 576), (70, 3, 32)), "ties": ((5, 9, 96),)},
    "full": {"full": ((28, 49152, 576),), "ties": ((28, 1000, 896),)},
}

_SHAPES: Mapping[str, Mapping[str, Mapping[str, tuple[tuple[int, ...], ...]]]] = {
    "embedding_q8_0": _EMBEDDING,
    "embedding_q4_1": _EMBEDDING,
    "embedding_q4_0": _EMBEDDING,
    "residual": {
        "tiny": {"full": ((1, 1), (3, 67)), "edge": ((2, 5),)},
        "quick": {"full": ((4, 576),), "carries": ((3, 129),), "edge": ((3, 129),)},
        "full": {"full": ((28, 576),), "carries": ((28, 576),), "edge": ((28, 576),)},
    },
    "gate": {
        "tiny": {"full": ((1, 1), (3, 67)), "table": ((2, 33),)},
        "quick": {"full": ((4, 1536),), "table": ((4, 1536),), "ties": ((3, 193),), "edge": ((3, 65),)},
        "full": {"full": ((28, 1536),), "table": ((28, 1536),), "ties": ((28, 1536),)},
    },
    "rmsnorm": {
        "tiny": {"full": ((1, 1), (2, 37)), "magnitudes": ((6, 3),), "edge": ((1, 5),)},
        "quick": {
            "full": ((1, 1), (4, 576)),
            "magnitudes": ((94, 33),),
            "ties": ((15, 64),),
            "least": ((5, 100),),
            "edge": ((3, 576),),
        },
        "full": {
            "full": ((28, 576), (3, 4097)),
            "magnitudes": ((94, 577),),
            "ties": ((15, 576),),
            "edge": ((2, 4096),),
        },
    },
    "rope": {
        "tiny": {"full": ((1, 1, 2), (2, 3, 6)), "ties": ((1, 2, 4),)},
        "quick": {"full": ((4, 9, 64), (3, 2, 70)), "ties": ((3, 3, 64),), "edge": ((2, 3, 64),)},
        "full": {"full": ((28, 9, 64), (5, 14, 128)), "ties": ((28, 9, 64),), "edge": ((28, 3, 64),)},
    },
    "argmax": {
        "tiny": {"full": ((1, 1), (2, 37)), "equals": ((3, 70),)},
        "quick": {"full": ((2, 49152),), "equals": ((67, 129),), "words": ((5, 1000),), "edge": ((9, 257),)},
        "full": {"full": ((4, 151936),), "equals": ((28, 49152),), "words": ((28, 576),), "edge": ((65, 2049),)},
    },
    "kv_append": {
        "tiny": {"full": ((1, 1, 1), (3, 2, 5))},
        "quick": {"full": ((32, 28, 192), (7, 7, 65))},
        "full": {"full": ((512, 511, 192),)},
    },
}
"""Kernel -> preset -> distribution -> shapes. One row or element has every guard at work, odd sizes pass a workgroup's
end, 576, 1536 and 49152 are SmolLM2's widths with 9 query heads and 3 key heads of 64."""


def _case(
    kernel: Kernel, shape: tuple[int, ...], dist: str, seed: int, extra: tuple[tuple[str, str], ...] = ()
) -> Case:
    reason = catches(layers_inputs.DISTRIBUTIONS[kernel.name][dist])
    return Case(kernel.name, tuple(zip(kernel.shape, shape, strict=True)), dist, seed, extra, reason)


def _of(preset: str, seed: int) -> list[Case]:
    return [
        _case(kernel, shape, dist, seed, tuple(zip(kernel.options, chosen, strict=True)))
        for kernel in _BASE
        for dist, shapes in _SHAPES[kernel.name][preset].items()
        for shape in shapes
        for chosen in product(*kernel.options.values())
    ]


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset; `full` holds `quick`."""
    if preset in ("tiny", "quick"):
        return _of(preset, seed)
    real = real_activations.cases(frozenset(kernel.name for kernel in _BASE), seed)
    return [*_of("quick", seed), *_of("full", seed), *real]


SELF_TESTS = {
    kernel.name: _case(kernel, _SHAPES[kernel.name]["tiny"]["full"][-1], "full", 0)
    for kernel in _BASE
    if kernel.name != "argmax"
} | {k.name: _case(k, (1, 37), "edge", 0) for k in _BASE if k.name == "argmax"}
"""Of argmax the largest stands last, so that it matters."""
