"""The gemm family: C = A B in several integer types, its float32 control, and their cases."""

from collections.abc import Callable

from harness import schedules, units
from harness.cases import Case
from harness.families import Shape, case_of, catches, gemm_inputs, shaped
from harness.families.gemm_inputs import EDGE_I8
from harness.plans import Kernel, Pass, Tensor, bands


def _combine(m: int, n: int, k: int, part: int) -> list[Pass]:
    """Group y is a row, group x 64 columns."""
    return [
        Pass("combine", (-(-n // 64), count, 1), (64, 1, 1), (m, n, k, start, part))
        for start, count in bands(m, n * schedules.PARTS, 1)
    ]


def gemm_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """params: M, N, K, first row of the band, part length. A workgroup makes 16 x 16 outputs; under `tree` 16 x 1."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = []
    for start, count in bands(m, n * k, 16):
        y = count if schedule == "tree" else -(-count // 16)
        passes.append(Pass("multiply", (-(-n // 16), y, parts), (16, 16, 1), (m, n, k, start, part)))
    if schedule == "split_k":
        passes += _combine(m, n, k, part)
    return tuple(passes)


def _gemm_fast_passes(case: Case, schedule: str) -> tuple[Pass, ...]:
    """As `gemm_passes`; a workgroup is one work-item and makes 128 x 32 outputs."""
    m, n, k = (case.dims[d] for d in "mnk")
    part = schedules.part_length(k)
    parts = schedules.PARTS if schedule == "split_k" else 1
    passes = [
        Pass("multiply", (-(-n // 32), -(-count // 128), parts), (1, 1, 1), (m, n, k, start, part))
        for start, count in bands(m, n * k, 128)
    ]
    if schedule == "split_k":
        passes += _combine(m, n, k, part)
    return tuple(passes)


def _gemm_mma_passes(rows: int) -> Callable[[Case, str], tuple[Pass, ...]]:
    """As `gemm_passes`; a workgroup is one warp and makes `rows` x 8 outputs."""

    def passes(case: Case, schedule: str) -> tuple[Pass, ...]:
        m, n, k = (case.dims[d] for d in "mnk")
        part = schedules.part_length(k)
        parts = schedules.PARTS if schedule == "split_k" else 1
        found = [
            Pass("multiply", (-(-n // 8), -(-count // rows), parts), (32, 1, 1), (m, n, k, start, part))
            for start, count in bands(m, n * k, rows)
        ]
        if schedule == "split_k":
            found += _combine(m, n, k, part)
        return tuple(found)

    return passes


GEMM_ELEMENTS = {
    "gemm_i32": ("i32", "i32"),
    "gemm_i32_i64": ("i32", "i64"),
    "gemm_i8": ("i8", "i32"),
    "gemm_f32": ("f32", "f32"),
}
"""Element types of A and B, and of C."""


def _gemm_i8_dot4(variant: str, prelude: str, unit: str, purpose: str) -> Kernel:
    """One source after either prelude.

    WGSL needs no feature: naga translates the function everywhere, to the device's own where it has one.
    """
    return _gemm(
        "gemm_i8",
        variant,
        "gemm_i8_dot4",
        purpose,
        passes=gemm_passes,
        preludes=(prelude,),
        needs={"cuda": ("dp4a",), "opencl": ("cl_khr_integer_dot_product",)},
        unit=unit,
    )


def _gemm_i8_mma(shape: str, rows: int) -> Kernel:
    return _gemm(
        "gemm_i8",
        f"mma_{shape}",
        "gemm_i8_mma",
        f"the same by the integer matrix unit, {shape}",
        passes=_gemm_mma_passes(rows),
        preludes=(f"mma_{shape}",),
        languages=("cuda",),
        schedules=("forward", "reverse", "split_k", "tiled_shuffled"),
        needs={"cuda": (f"mma-s8-{shape}",)},
        unit=units.MATRIX_SIGNED,
    )


def _gemm(name: str, variant: str, stem: str, purpose: str, **more: object) -> Kernel:
    element, output = GEMM_ELEMENTS[name]
    return Kernel(
        name=name,
        variant=variant,
        stem=stem,
        shape=("m", "n", "k"),
        inputs=(Tensor("a", element, ("m", "k")), Tensor("b", element, ("k", "n"))),
        output=Tensor("c", output, ("m", "n")),
        entries=("multiply", "combine"),
        purpose=purpose,
        distributions=tuple(gemm_inputs.distributions(name)),
        generate=gemm_inputs.gemm_inputs,
        **more,  # type: ignore[arg-type]
    )


KERNELS: tuple[Kernel, ...] = (
    _gemm("gemm_i32", "base", "gemm_i32", "C = A B of int32, sums modulo 2^32, 16 x 16 tiles", passes=gemm_passes),
    _gemm(
        "gemm_i32",
        "fast",
        "gemm_i32_fast",
        "the same, strips of 8 rows by two vectors of 16 columns, for CPU devices",
        passes=_gemm_fast_passes,
        languages=("opencl",),
        schedules=("forward", "split_k"),
        needs={"opencl": ("device-type-cpu",)},
    ),
    _gemm(
        "gemm_i32_i64",
        "base",
        "gemm_i32_i64",
        "C = A B of int32, sums modulo 2^64 in 32-bit limbs",
        passes=gemm_passes,
        preludes=("int64_limbs",),
    ),
    _gemm(
        "gemm_i32_i64",
        "int64",
        "gemm_i32_i64_int64",
        "the same with native 64-bit integers",
        passes=gemm_passes,
        needs={"wgsl": ("shader-int64",)},
    ),
    _gemm("gemm_i8", "base", "gemm_i8", "C = A B of int8, four to a word, sums modulo 2^32", passes=gemm_passes),
    _gemm_i8_dot4("dot4", "dot4_signed", units.DOT_SIGNED, "the same by dot products of four packed signed bytes"),
    _gemm_i8_dot4(
        "dot4u", "dot4_unsigned", units.DOT_UNSIGNED, "the same by dot products of four packed unsigned bytes"
    ),
    _gemm_i8_mma("m8n8k16", 8),
    _gemm_i8_mma("m16n8k32", 16),
    _gemm(
        "gemm_f32",
        "base",
        "gemm_f32",
        "the control: the loops of gemm_i32 in float32, where the order of the terms shows",
        passes=gemm_passes,
        preludes=("float_bits",),
        control=True,
    ),
)

_GEMM_SMALL = [
    ((1, 1, 1), "the smallest program: every guard is at work"),
    ((1, 7, 33), "one row, K one past a tile of 32"),
    ((17, 19, 23), "odd everywhere, one past a tile of 16"),
]
_GEMM_QUICK = [
    ((33, 65, 100), "K is no multiple of any tile, M and N one past a tile"),
    ((64, 768, 768), "a transformer's square projection"),
    ((128, 512, 256), "wide, K of two parts a lane"),
    ((8, 8, 65537), "the longest K: 2049 tiles, the last of one term"),
    ((128, 128, 128), "whole tiles only"),
]
_GEMM_FULL = [
    ((512, 512, 512), "whole tiles, enough workgroups to fill a GPU"),
    ((1024, 1024, 1024), "several dispatches, the speed shape"),
]
_PROJECTION = [((64, 768, 768), "a transformer's square projection")]
_GEMM_I64_QUICK = [
    ((33, 65, 100), "K is no multiple of any tile, M and N one past a tile"),
    ((8, 8, 65537), "the longest K: 2049 tiles, the last of one term"),
]
_GEMM_I8_QUICK = [
    ((33, 65, 101), "rows begin at every byte of a word"),
    ((33, 68, 128), "whole words only"),
    ((9, 7, 16385), "a long K, odd in all"),
]
_GEMM_I8_WORDS = [
    ((2, 3, 3), "K below a packed word of four terms"),
    ((3, 2, 4), "K of one packed word"),
    ((3, 3, 5), "K one past a packed word"),
]
_GEMM_I8_PACKED = [
    ((17, 19, 1), "a packed word of one term"),
    ((17, 19, 2), "a packed word of two terms"),
    ((17, 19, 3), "K below a packed word of four terms"),
    ((17, 19, 4), "K of one packed word"),
    ((17, 19, 5), "K one past a packed word"),
    ((17, 19, 31), "K below a step of a matrix unit"),
    ((17, 19, 32), "K of one step of a matrix unit"),
    ((17, 19, 33), "K one past a step of a matrix unit"),
    ((18, 20, 4096), "whole words, many steps"),
]
_GEMM_I8_OWN = ("edge", "packed_words")
_GEMM_I8_LONG = ("rails_min", "odd_steps")
_PAIRS_OF_WORDS = (8, 8, 4)
_EDGE_I8 = (4, 4, EDGE_I8)
_OVER_I32 = (2, 3, 2**17 + 1)
_MANY_OUTPUTS = ((2048, 2016, 32), "many outputs for few terms: counts towards 10^9 compared elements")


def _distributed(kernel: str, shape: Shape, seed: int) -> list[Case]:
    """All distributions but `full` in one shape, less those of int8 that need a K of their own."""
    return [
        case_of(kernel, shape, dist, seed, catches(function))
        for dist, function in gemm_inputs.distributions(kernel).items()
        if dist != "full" and not (kernel == "gemm_i8" and dist in _GEMM_I8_OWN)
    ]


def _packed(seed: int) -> list[Case]:
    """What tells a packed dot product from one that saturates, keeps too few bits, or takes bytes for unsigned."""
    of = gemm_inputs.distributions("gemm_i8")
    return [
        *shaped("gemm_i8", _GEMM_I8_PACKED, seed),
        *(case_of("gemm_i8", (18, 20, 4096), dist, seed, catches(of[dist])) for dist in _GEMM_I8_LONG),
        case_of("gemm_i8", _PAIRS_OF_WORDS, "packed_words", seed, catches(of["packed_words"])),
        case_of("gemm_i8", _OVER_I32, "rails_min", seed, "one term over 2^31: a sum that saturates"),
    ]


def _tiny(seed: int) -> list[Case]:
    found = []
    for kernel in GEMM_ELEMENTS:
        found += [] if kernel == "gemm_f32" else shaped(kernel, _GEMM_SMALL, seed)
        found += _distributed(kernel, (5, 18, 37), seed)
    found += shaped("gemm_i8", _GEMM_I8_WORDS, seed)
    words = gemm_inputs.distributions("gemm_i8")["packed_words"]
    return [*found, case_of("gemm_i8", _PAIRS_OF_WORDS, "packed_words", seed, catches(words))]


def _quick(seed: int) -> list[Case]:
    return [
        *shaped("gemm_i32", _GEMM_SMALL + _GEMM_QUICK, seed),
        *_distributed("gemm_i32", (33, 65, 100), seed),
        *shaped("gemm_i32_i64", _GEMM_SMALL + _GEMM_I64_QUICK, seed),
        *_distributed("gemm_i32_i64", (33, 65, 100), seed),
        *shaped("gemm_i8", _GEMM_SMALL + _GEMM_I8_QUICK, seed),
        *_distributed("gemm_i8", (17, 33, 1501), seed),
        *_packed(seed),
        *_distributed("gemm_f32", (33, 65, 100), seed),
    ]


def _full(seed: int) -> list[Case]:
    return [
        *_quick(seed),
        *shaped("gemm_i32", _GEMM_FULL, seed),
        *_distributed("gemm_i32", (64, 768, 768), seed),
        *shaped("gemm_i32_i64", _PROJECTION + _GEMM_FULL[:1], seed),
        *_distributed("gemm_i32_i64", (64, 768, 768), seed),
        *shaped("gemm_i8", _PROJECTION + _GEMM_FULL, seed),
        *_distributed("gemm_f32", (64, 768, 768), seed),
        case_of("gemm_i8", _EDGE_I8, "edge", seed, catches(gemm_inputs.INTEGERS["edge"])),
    ]


def cases(preset: str, seed: int) -> list[Case]:
    """The family's share of a preset."""
    if preset == "soak":
        return [*_full(seed), *shaped("gemm_i32", [_MANY_OUTPUTS], seed)]
    return {"tiny": _tiny, "quick": _quick, "full": _full}[preset](seed)


SELF_TESTS = {
    kernel: case_of(kernel, (17, 19, 33), "full", 0, "known answer, committed") for kernel in gemm_inputs.TYPES
}
