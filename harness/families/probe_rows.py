"""Rows of the `probe_*` kernels: which operation on which operand words, by distribution.

A distribution is a table of rows, or (`random`) an endless one. Rows of known faults come from `tests/data/integer-faults.toml`.
Operands are kept where every language says what comes out; what one leaves open has a distribution of its own.
"""

import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cpu_ref.probe import PROBES
from harness.folders import data_file
from harness.inputs import random_words
from harness.plans import Row

Words = list[int]

EDGES = (
    0,
    1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32 - 2,
    2**32 - 1,
)
"""Operands around which carries, signs and narrow types change."""

QUADS = (
    (1, 2**32 - 1, 1, 2**32 - 1),
    (2**31, 2**32 - 1, 0, 1),
    (46341, 46341, 65537, 65535),
    (0x89ABCDEF, 0x01234567, 0xFEDCBA98, 0x76543210),
)


@functools.cache
def faults() -> tuple[dict[str, Any], ...]:
    """Known faults as the file lists them, `id` first."""
    content = tomllib.loads(data_file("integer-faults.toml").read_text("utf-8"))
    return tuple({"id": name, **fault} for name, fault in content.items())


def _signed(word: int) -> int:
    return word - 2**32 if word >> 31 else word


def _counts(*places: int) -> Callable[[Words], Words]:
    """Shift counts at these places."""
    return lambda w: [v & 31 if i in places else v for i, v in enumerate(w)]


def _field(w: Words) -> Words:
    """Offset b and count c inside the word."""
    return [w[0], w[1] & 31, w[2] % (33 - (w[1] & 31)), *w[3:]]


def _bounds(key: Callable[[int], int]) -> Callable[[Words], Words]:
    """The lower bound b, the upper c."""
    return lambda w: [w[0], *sorted(w[1:3], key=key), *w[3:]]


def _divisor(w: Words) -> Words:
    """Another divisor than 0."""
    return [w[0], w[1] or 3, *w[2:]]


def _signed_divisor(w: Words) -> Words:
    """Neither 0 nor the quotient that leaves the type; nor does its negation."""
    return [w[0], 5 if w[1] == 2**32 - 1 and w[0] == 2**31 else w[1] or 3, *w[2:]]


def _narrow_divisor(w: Words) -> Words:
    """An odd divisor: no part of it is 0."""
    return [w[0], w[1] | 1, *w[2:]]


def _of_24_bits(w: Words) -> Words:
    return [v & 0xFFFFFF for v in w]


def _of_24_bits_signed(w: Words) -> Words:
    return [((v & 0xFFFFFF) - ((v & 0x800000) << 1)) % 2**32 for v in w]


def _finite_half(w: Words) -> Words:
    """An fp16 that is no infinity and no NaN."""
    return [w[0] & ~0x4000 if w[0] >> 10 & 31 == 31 else w[0], *w[1:]]


def _narrow_count(w: Words) -> Words:
    """A shift amount below 16."""
    return [w[0], w[1] & 15, *w[2:]]


def _wide_count(w: Words) -> Words:
    """A shift amount below 64."""
    return [*w[:2], w[2] & 63, *w[3:]]


def _trips(place: int, most: int) -> Callable[[Words], Words]:
    """A loop count at this place, at most `most`."""
    return lambda w: [v % (most + 1) if i == place else v for i, v in enumerate(w)]


def _eight_trips(w: Words) -> Words:
    """The count that the unrolled form has."""
    return [*w[:3], 8]


def _few_rounds(w: Words) -> Words:
    """A start below 1000, at most five rounds of the outer loop."""
    return [w[0] % 1000, w[1] % 6, *w[2:]]


def _rare_branch(w: Words) -> Words:
    """The branch is not taken."""
    return [*w[:3], w[3] & 0xFFFF]


def _wide_divisor(w: Words) -> Words:
    """Neither 0 nor the quotient that leaves the type."""
    overflows = w == [0, 2**31, 2**32 - 1, 2**32 - 1]
    return [*w[:2], 3 if overflows or not any(w[2:]) else w[2], 0 if overflows else w[3]]


DOMAINS: dict[str, Callable[[Words], Words]] = {
    "mul24_u": _of_24_bits,
    "mul24_s": _of_24_bits_signed,
    "bounds_u32": _bounds(int),
    "bounds_s32": _bounds(_signed),
    **{name: _counts(1) for name in ("shift", "rotate", "funnel", "shift_16", "shift_8")},
    **{name: _counts(2, 3) for name in ("shift_vector", "shift_vector_right")},
    "field": _field,
    **{name: _divisor for name in ("div_u32", "rem_u32", "negated_div_u", "address")},
    **{name: _signed_divisor for name in ("div_s32", "rem_s32", "floored_s32", "negated_div_s")},
    "half": _finite_half,
    "shift_halves": _narrow_count,
    **{name: _wide_count for name in ("shift_64", "shift_s64", "rotate_64")},
    **{name: _wide_divisor for name in ("divide_u64", "divide_s64", "remainder_s64")},
    "two_exits": _trips(0, 40),
    "nested": _trips(0, 10),
    "returned": _trips(0, 10),
    "endless": _few_rounds,
    "unrolled": _eight_trips,
    "hash_rolled": _trips(3, 24),
    "dead_branch": _rare_branch,
    "guarded": _trips(0, 1000),
    "in_loop": _trips(3, 6),
    **{name: _narrow_divisor for name in ("narrow_u", "narrow_div_s", "narrow_rem_s")},
}
"""Operation -> where its operands are put, so that no language leaves the result open. Others take any."""

SIGNED_REMAINDERS = ("rem_s32", "floored_s32", "narrow_rem_s", "by_constant_rem_s")
OF_64_BITS = tuple(
    n for n in PROBES["probe_int64"][1] if n not in ("remainder_s64", "abs_s64", "mul_sat_s64", "shift_wide_64")
)

CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "probe_int32": {"edges": tuple(n for n in PROBES["probe_int32"][1] if n != "abs_s32"), "absolute": ("abs_s32",)},
    "probe_bits": {"edges": tuple(n for n in PROBES["probe_bits"][1] if n != "shift_wide"), "wide": ("shift_wide",)},
    "probe_div": {
        "unsigned": (
            "div_u32",
            "rem_u32",
            "negated_div_u",
            "narrow_u",
            "by_constant_div_u",
            "by_constant_rem_u",
            "address",
        ),
        "signed": ("div_s32", "rem_s32", "negated_div_s", "narrow_div_s", "by_constant_div_s"),
        "rem_negative": SIGNED_REMAINDERS,
    },
    "probe_pack": {
        "edges": tuple(n for n in PROBES["probe_pack"][1] if n != "pack_clamp"),
        "clamped": ("pack_clamp",),
    },
    "probe_flow": {"edges": tuple(n for n in PROBES["probe_flow"][1] if n != "bounded"), "bounded": ("bounded",)},
    "probe_group": {"edges": tuple(n for n in PROBES["probe_group"][1] if n != "zeroed"), "zeroed": ("zeroed",)},
    "probe_atomics": {"edges": tuple(PROBES["probe_atomics"][1])},
    "probe_int64": {
        "edges": OF_64_BITS,
        "rem_negative": ("remainder_s64",),
        "absolute": ("abs_s64",),
        "saturating": ("mul_sat_s64",),
        "wide": ("shift_wide_64",),
    },
}
"""By kernel, the distributions whose rows are also written as literals (but see WITHOUT_LITERALS), and the operations in each."""

WITHOUT_LITERALS = ("probe_group", "probe_atomics")
"""Kernels that have no rows of literals: what they try is memory and order, and no compiler knows those."""

LONG = ("hash_rolled", "hash_unrolled")
"""Operations of which compilers unroll every row of literals into hundreds of instructions: few rows, by hand."""

BY_HAND: dict[str, tuple[Words, ...]] = {
    "two_exits": ([40, 7, 0xF, 0x3], [40, 7, 0, 0], [0, 7, 0, 0], [40, 9, 2**32 - 1, 1], [3, 1, 1, 1]),
    "nested": ([10, 3, 0xF], [10, 2, 2**32 - 1], [1, 4, 0], [9, 0, 1]),
    "returned": ([10, 3, 0xF, 0x3], [10, 2, 2**32 - 1, 5], [9, 0, 3, 1]),
    "switch_in_loop": ([0x76543210, 1], [0x22222222, 1], [0xFEDCBA98, 5], [0x2A51B6E4, 9]),
    "bounded": ([20, 2**32 - 6], [2**32 - 1, 1], [10, 2**32 - 1]),
    "sought": ([1, 2, 3, 4], [4, 4, 4, 4], [9, 8, 4, 4]),
    "guarded": ([3], [0], [15], [16], [40]),
    "hash_rolled": ([0x61626380, 0, 0x18, 16], [1, 2, 3, 0]),
    "hash_unrolled": ([0x61626380, 0, 0x18, 16],),
    "in_branch": ([1, 2, 5], [2, 1, 5], [3, 3, 63], [2**32 - 1, 0, 1]),
    "in_loop": ([5, 0, 0, 6], [5, 0, 0, 0], [5, 0, 0, 1]),
    "histogram": ([1, 0], [0, 3], [4, 1], [7, 7]),
    "bounded_cells": ([3, 0, 0, 2**32 - 1], [3, 0, 9, 2**31], [3, 0, 31, 0], [9, 0, 1, 77]),
    "of_bits": ([3, 0, 0, 2**32 - 1], [5, 0, 0, 0xFFFF0000]),
}
"""Rows that take each branch of an operation."""


def row(kernel: str, operation: str, words: Iterable[int]) -> Row:
    """One row; missing operands are 0."""
    width, operations = PROBES[kernel]
    given = [w % 2**32 for w in words]
    return list(operations).index(operation), tuple((given + [0] * width)[:width])


def _kept(kernel: str, operation: str, words: Iterable[int]) -> Row:
    """The row with its operands put into the operation's domain."""
    number, given = row(kernel, operation, words)
    return number, tuple(DOMAINS.get(operation, list)(list(given)))


def _unnegative(kernel: str, rows: Iterable[Row]) -> list[Row]:
    """Signed remainders of operands that are not negative: the others have a distribution of their own."""
    numbers = [op for op, name in enumerate(PROBES[kernel][1]) if name in SIGNED_REMAINDERS]
    return [
        (op, tuple(w & 0x7FFF7F7F or i for i, w in enumerate(words)) if op in numbers else words) for op, words in rows
    ]


def of_faults(kernel: str, distribution: str) -> list[Row]:
    """Rows of known faults."""
    return [
        row(kernel, text.split()[0], [int(word, 0) for word in text.split()[1:]])
        for fault in faults()
        if (fault.get("kernel"), fault.get("distribution")) == (kernel, distribution)
        for text in fault.get("rows", [])
    ]


COUNTED = ("shift", "rotate", "funnel", "shift_16", "shift_8")


def _edges(kernel: str, operations: Sequence[str]) -> list[Row]:
    rows = [_kept(kernel, name, quad) for name in operations if name not in LONG for quad in QUADS]
    for name in operations if kernel == "probe_int64" else ():
        rows += [_kept(kernel, name, (x, y, y, x)) for x in (2**32 - 1, 2**31) for y in (1, 2**32 - 1)]
    if "rotate_64" in operations:
        rows += [_kept(kernel, "rotate_64", (0x89ABCDEF, 0x01234567, n)) for n in range(0, 64, 7)]
    for name in set(operations) & set(COUNTED[:2]):
        rows += [_kept(kernel, name, (0x80C08001, count, 0x7FFF0001)) for count in range(32)]
    if "shift_wide" in operations:
        rows += [_kept(kernel, "shift_wide", (0x80C08001, count)) for count in (31, 32, 33, 63, 64, 255, 2**31)]
    if "shift_wide_64" in operations:
        rows += [_kept(kernel, "shift_wide_64", (0x80C08001, 0x7FFF0001, n)) for n in (63, 64, 65, 127, 128, 2**31 + 1)]
    if "field" in operations:
        rows += [_kept(kernel, "field", (0x89ABCDEF, at, n, 0x5A5A5A5A)) for at in (0, 5, 31) for n in (0, 1, 27, 32)]
    for name in set(operations) & {"count", "first_bit"}:
        rows += [_kept(kernel, name, (1 << n,)) for n in range(0, 32, 6)]
    rows += [_kept(kernel, name, words) for name in operations for words in BY_HAND.get(name, ())]
    return sorted(dict.fromkeys(rows))


def _remainders() -> list[Row]:
    signs = [_kept("probe_div", "rem_s32", (a, b)) for a in (-7, 7, -8, -1, -(2**31)) for b in (2, -2, 3, -3, 768)]
    return signs + _edges("probe_div", SIGNED_REMAINDERS)


def _judged_everywhere(kernel: str) -> list[str]:
    """Operations whose faults have no distribution of their own, and the one signed remainder of what is not negative."""
    own = (*SIGNED_REMAINDERS[1:], "remainder_s64", "mul_sat_s64", "pack_clamp", "zeroed")
    return [name for name in PROBES[kernel][1] if name not in own]


def _crossed(kernel: str, name: str) -> Iterator[Row]:
    """The operation on every pair of edges, or every edge by every amount."""
    if DOMAINS.get(name) == _wide_count:
        yield from (_kept(kernel, name, (a, a ^ 1, n)) for a in EDGES for n in range(64))
    else:
        second = range(32) if name in COUNTED else EDGES
        yield from (_kept(kernel, name, (a, b, b ^ a, a)) for a in EDGES for b in second)


@functools.cache
def table(kernel: str, distribution: str) -> tuple[Row, ...]:
    """The rows of a distribution that is a table."""
    operations = list(PROBES[kernel][1])
    if distribution == "known":
        names = _judged_everywhere(kernel)
        return tuple(_unnegative(kernel, (_kept(kernel, name, (1000 + i, 7, 9, 5)) for i, name in enumerate(names))))
    if distribution == "cross":
        return tuple(_unnegative(kernel, (r for name in _judged_everywhere(kernel) for r in _crossed(kernel, name))))
    if distribution == "zero":
        return tuple(row(kernel, n, (a, 0)) for n in operations[:4] for a in (7, 0, 1, 2**31, 2**32 - 1))
    if distribution == "overflow":
        return tuple(row(kernel, n, (-(2**31), -1)) for n in ("div_s32", "rem_s32"))
    if distribution == "zeroed":
        return tuple(row(kernel, name, (i, 7)) for i in range(32) for name in ("handed_over", "zeroed"))
    if (kernel, distribution) == ("probe_div", "rem_negative"):
        return tuple(dict.fromkeys([*of_faults(kernel, distribution), *_remainders()]))
    edges = _unnegative(kernel, _edges(kernel, CLASSES[kernel][distribution]))
    return tuple(dict.fromkeys([*of_faults(kernel, distribution), *edges]))


def randomly(kernel: str, stream: str, count: int) -> list[Row]:
    """Rows of all operations in turn; operands of random lengths, half of them negative."""
    width, _ = PROBES[kernel]
    words = [int(w) for w in random_words(stream, count * width)]
    operands = [((w & 0xFFFFFFFF) >> (w >> 32 & 31)) ^ (0xFFFFFFFF if w >> 40 & 1 else 0) for w in words]
    names = _judged_everywhere(kernel)
    rows = (_kept(kernel, names[i % len(names)], operands[i * width : (i + 1) * width]) for i in range(count))
    return _unnegative(kernel, rows)


def literals(kernel: str) -> tuple[Row, ...]:
    """All rows that are also written as literals: the tables of `literal_distributions` one after the other."""
    return tuple(r for distribution in literal_distributions(kernel) for r in table(kernel, distribution))


def literal_distributions(kernel: str) -> tuple[str, ...]:
    """Distributions that the variant `literal` takes, where the kernel has that variant."""
    return ("known", *CLASSES[kernel])


def first_literal(kernel: str, distribution: str) -> int:
    """Where the distribution's rows begin among the literals."""
    before = 0
    for name in literal_distributions(kernel):
        if name == distribution:
            break
        before += len(table(kernel, name))
    return before
