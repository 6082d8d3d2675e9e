"""The family of nel-mini-w8a8: one kernel an operation, and single operations on full-range operands as cases.

Operation 2, the product of i8 matrices, is the program of `gemm_i8` held to the profile's contract.
"""

from collections.abc import Callable
from functools import partial

from harness import schedules
from harness.cases import Case
from harness.families import catches, nel_stages
from harness.families.gemm import gemm_passes
from harness.families.nel_inputs import DISTRIBUTIONS, ELEMENTS, nel_inputs
from harness.plans import Kernel, Pass, Tensor

LANES, HEADS, WIDTH, POSITIONS = 64, 4, 32, 64

Passes = Callable[[Case, str], tuple[Pass, ...]]


def _groups(items: int) -> int:
    return -(-items // LANES)


def _pass(entry: str, groups: tuple[int, int, int], *params: int) -> Pass:
    return Pass(entry, groups, (LANES, 1, 1), params)


def _parts(schedule: str) -> int:
    return schedules.PARTS if schedule == "split_k" else 1


def _order(terms: int) -> tuple[int, int]:
    """Terms in a part, and tiles."""
    return schedules.part_length(terms), schedules.tiles(terms)


def _embedding(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, n = case.dims["m"], case.dims["n"]
    return (_pass("embed_tokens", (_groups(n), m, 1), m, n),)


def _requant(case: Case, schedule: str) -> tuple[Pass, ...]:
    elements = case.dims["m"] * case.dims["n"]
    return (_pass("requantize", (_groups(elements), 1, 1), elements, case.dims["shift"]),)


def _elementwise(entry: str, case: Case, schedule: str) -> tuple[Pass, ...]:
    elements = case.dims["m"] * case.dims["n"]
    return (_pass(entry, (_groups(elements), 1, 1), elements),)


def _rmsnorm(case: Case, schedule: str) -> tuple[Pass, ...]:
    m = case.dims["m"]
    params = (m, *_order(case.dims["k"]))
    rows = m if schedule == "tree" else _groups(m)
    first = _pass("scale_rows", (rows, _parts(schedule), 1), *params)
    return (first, _pass("combine", (_groups(m), 1, 1), *params)) if schedule == "split_k" else (first,)


def _rope(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, n, p = (case.dims[d] for d in "mnp")
    return (_pass("turn_heads", (_groups(n), m, 1), n, p - m),)


def _scores(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, p, d = (case.dims[d] for d in "mpd")
    params = (m, p, d, *_order(d))
    keys = p if schedule == "tree" else _groups(p)
    first = _pass("multiply", (keys, m, HEADS * _parts(schedule)), *params)
    combine = _pass("combine", (_groups(HEADS * m * p), 1, 1), *params)
    return (first, combine) if schedule == "split_k" else (first,)


def _softmax(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, p = case.dims["m"], case.dims["p"]
    params = (m, p, *_order(p))
    queries = m if schedule == "tree" else _groups(m)
    weigh = _pass("weigh", (queries, HEADS, 1), *params)
    if schedule != "split_k":
        return (weigh,)
    parts = (queries, HEADS, schedules.PARTS)
    return _pass("maxima", parts, *params), _pass("sums", parts, *params), weigh


def _mix(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, p = case.dims["m"], case.dims["p"]
    params = (m, p, *_order(p))
    groups = (m, WIDTH, 1) if schedule == "tree" else (-(-m // 2), 1, _parts(schedule))
    first = _pass("multiply", groups, *params)
    combine = _pass("combine", (_groups(m * WIDTH), 1, 1), *params)
    return (first, combine) if schedule == "split_k" else (first,)


def _argmax(case: Case, schedule: str) -> tuple[Pass, ...]:
    m, n = case.dims["m"], case.dims["n"]
    params = (m, n, *_order(n))
    rows = m if schedule == "tree" else _groups(m)
    first = _pass("choose", (rows, _parts(schedule), 1), *params)
    return (first, _pass("combine", (_groups(m), 1, 1), *params)) if schedule == "split_k" else (first,)


def _refused(case: Case) -> str:
    """What the profile does not define: another width, a longer context, fewer positions than rows."""
    for kernel, name, width in (("nel_rmsnorm", "k", WIDTH), ("nel_scores", "d", 8)):
        if case.kernel == kernel and case.dims[name] != width:
            return f"{name} is {width} in nel-mini-w8a8"
    if "p" in case.dims and not case.dims["m"] <= case.dims["p"] <= POSITIONS:
        return f"p is m or more, at most {POSITIONS}"
    if case.dims.get("shift", 1) > 23:
        return "shift is at most 23, for results beyond i8 must be sums of 32 bits"
    return nel_stages.refused(case)


def _kernel(
    operation: str,
    shape: str,
    inputs: dict[str, tuple[str | int, ...]],
    output: tuple[str | int, ...],
    passes: Passes,
    purpose: str,
    entries: str,
    reduces: str | None = None,
    output_name: str = "y",
    stem: str = "",
    **more: object,
) -> Kernel:
    name = f"nel_{operation}"
    return Kernel(
        name=name,
        variant="base",
        stem=stem or name,
        shape=tuple(shape.split()),
        inputs=tuple(Tensor(n, ELEMENTS[n], dims) for n, dims in inputs.items()),
        output=Tensor(output_name, "i32", output),
        entries=tuple(entries.split()),
        passes=passes,
        purpose=purpose,
        distributions=(*DISTRIBUTIONS[name], *nel_stages.SETS),
        generate=nel_inputs,
        preludes=() if stem else ("int64_limbs", "int32_words", *(("terms",) if reduces else ())),
        sources={"stage": nel_stages.STAGES[name]},
        schedules=schedules.NAMES if reduces else ("forward",),
        reduces=reduces,
        refused=_refused,
        **more,  # type: ignore[arg-type]
    )


KERNELS: tuple[Kernel, ...] = (
    _kernel(
        "embedding",
        "m v n",
        {"ids": ("m",), "embed": ("v", "n")},
        ("m", "n"),
        _embedding,
        "op 1 of nel-mini-w8a8: rows of i8",
        "embed_tokens",
    ),
    _kernel(
        "matmul",
        "m n k",
        {"a": ("m", "k"), "b": ("k", "n")},
        ("m", "n"),
        gemm_passes,
        "op 2: products of i8, exact sums",
        "multiply combine",
        "k",
        "c",
        "gemm_i8",
    ),
    _kernel(
        "requant",
        "m n shift",
        {"acc": ("m", "n")},
        ("m", "n"),
        _requant,
        "op 3: one rounding, then clipped to i8",
        "requantize",
    ),
    _kernel(
        "rmsnorm",
        "m k",
        {"x": ("m", "k"), "gain": ("k",)},
        ("m", "k"),
        _rmsnorm,
        "op 4: integer root and division, products of 41 bits",
        "scale_rows combine",
        "k",
        scratch=lambda case: schedules.PARTS * case.dims["m"],
    ),
    _kernel(
        "rope",
        "m n p",
        {"x": ("m", "n"), "cosines": (256,), "sines": (256,)},
        ("m", "n"),
        _rope,
        "op 5: heads of 8 rotated, the last of M rows at position P - 1",
        "turn_heads",
        multiples={"n": 8},
    ),
    _kernel(
        "scores",
        "m p d",
        {"q": ("m", HEADS, "d"), "k": ("p", HEADS // 2, "d")},
        (HEADS, "m", "p"),
        _scores,
        "op 6: products of queries and the keys they see",
        "multiply combine",
        "d",
        "s",
    ),
    _kernel(
        "softmax",
        "m p",
        {"s": (HEADS, "m", "p"), "powers": (64,)},
        (HEADS, "m", "p"),
        _softmax,
        "op 7: maximum, powers of two by table, one division a row",
        "weigh maxima sums",
        "p",
        "p",
        scratch=lambda case: 2 * schedules.PARTS * HEADS * case.dims["m"],
    ),
    _kernel(
        "mix",
        "m p",
        {"p": (HEADS, "m", "p"), "v": ("p", 16)},
        ("m", WIDTH),
        _mix,
        "op 8: values weighted and added, before Requant",
        "multiply combine",
        "p",
    ),
    _kernel(
        "act",
        "m n",
        {"gate": ("m", "n"), "up": ("m", "n"), "silu": (256,)},
        ("m", "n"),
        partial(_elementwise, "activate"),
        "op 9: SILU by gate's byte, times up",
        "activate",
    ),
    _kernel(
        "residual",
        "m n",
        {"a": ("m", "n"), "b": ("m", "n")},
        ("m", "n"),
        partial(_elementwise, "add_residual"),
        "op 10: sums clipped to i8",
        "add_residual",
    ),
    _kernel(
        "argmax",
        "m n",
        {"logits": ("m", "n")},
        ("m",),
        _argmax,
        "op 11: the lowest place of the largest",
        "choose combine",
        "n",
        scratch=lambda case: 2 * schedules.PARTS * case.dims["m"],
    ),
)

Dims = dict[str, int]

_TINY: dict[str, list[Dims]] = {
    "nel_embedding": [{"m": 3, "v": 64, "n": 32}],
    "nel_matmul": [{"m": 3, "n": 5, "k": 64}],
    "nel_requant": [{"m": 3, "n": 47, "shift": 11}],
    "nel_rmsnorm": [{"m": 7, "k": 32}],
    "nel_rope": [{"m": 3, "n": 48, "p": 7}],
    "nel_scores": [{"m": 3, "p": 5, "d": 8}],
    "nel_softmax": [{"m": 3, "p": 11}],
    "nel_mix": [{"m": 3, "p": 11}],
    "nel_act": [{"m": 3, "n": 64}],
    "nel_residual": [{"m": 3, "n": 32}],
    "nel_argmax": [{"m": 5, "n": 64}],
}
_QUICK: dict[str, list[Dims]] = {
    "nel_embedding": [{"m": 64, "v": 64, "n": 32}, {"m": 1, "v": 5, "n": 7}],
    "nel_matmul": [{"m": 64, "n": 64, "k": 64}, {"m": 1, "n": 1, "k": 1}],
    "nel_requant": [{"m": 64, "n": 64, "shift": shift} for shift in (1, 8, 11, 12, 15, 23)],
    "nel_rmsnorm": [{"m": 385, "k": 32}, {"m": 1, "k": 32}],
    "nel_rope": [{"m": 64, "n": 48, "p": 64}, {"m": 1, "n": 8, "p": 64}, {"m": 5, "n": 72, "p": 40}],
    "nel_scores": [{"m": 64, "p": 64, "d": 8}, {"m": 1, "p": 1, "d": 8}, {"m": 5, "p": 40, "d": 8}],
    "nel_softmax": [{"m": 64, "p": 64}, {"m": 1, "p": 1}, {"m": 5, "p": 40}],
    "nel_mix": [{"m": 64, "p": 64}, {"m": 1, "p": 1}, {"m": 5, "p": 40}],
    "nel_act": [{"m": 256, "n": 256}],
    "nel_residual": [{"m": 256, "n": 256}],
    "nel_argmax": [{"m": 65, "n": 64}, {"m": 3, "n": 1}, {"m": 3, "n": 1000}],
}


def _case(kernel: str, dims: Dims, dist: str, seed: int, reason: str = "") -> Case:
    return Case(kernel, tuple(dims.items()), dist, seed, reason=reason or catches(DISTRIBUTIONS[kernel][dist]))


def cases(preset: str, seed: int) -> list[Case]:
    """Every distribution in every shape, then forward passes of both weight sets: two short prompts in `tiny`."""
    shapes = _TINY if preset == "tiny" else _QUICK
    single = [
        _case(kernel, dims, dist, seed)
        for kernel in shapes
        for dims in shapes[kernel]
        for dist in DISTRIBUTIONS[kernel]
    ]
    if preset == "tiny":
        return [*single, *nel_stages.prefill("published", seed, 2), *nel_stages.prefill("stress", seed, 3)]
    return [
        *single,
        *nel_stages.prefill("published", seed, 17),
        *nel_stages.prefill("stress", seed, 64),
        *nel_stages.prefill("stress", seed + 1, 1),
        *nel_stages.decoding("stress", seed, 1, 64),
        *nel_stages.decoding("published", seed, 5, 40),
    ]


SELF_TESTS = {
    kernel: _case(kernel, dims[0], next(iter(DISTRIBUTIONS[kernel])), 0, "known answer, committed")
    for kernel, dims in _TINY.items()
}
