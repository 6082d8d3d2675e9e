"""The second implementation of the `probe_*` kernels: each operation built from gates, all its rows at once."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cpu_ref.second.gates import (
    Bits,
    Numbers,
    Truths,
    add,
    bits_of,
    constant,
    divide,
    from_number,
    highest,
    less,
    lowest,
    magnitude,
    mul,
    neg,
    number,
    pick,
    rotate,
    shift,
    some,
    sub,
    widen,
    words_of,
)
from cpu_ref.second.probe_flow import FLOW
from cpu_ref.second.probe_group import ATOMICS, GROUP

Operation = Callable[..., Sequence[Bits]]
"""Operand words as bits [rows, 32] to result words as bits, of any width up to 32."""

Words = npt.NDArray[np.int32]


def compute(operations: Sequence[Operation], ops: Words, operands: Words) -> Words:
    """Results i32[rows, 4]: the rows of each operation together."""
    out = np.zeros((len(ops), 4), "<u4")
    for op in np.unique(ops):
        rows = np.flatnonzero(ops == op)
        words = [bits_of(operands[rows, i].view("<u4")) for i in range(operands.shape[1])]
        for place, bits in enumerate(operations[op](*words)):
            out[rows, place] = words_of(widen(bits, 32, sign=False))[:, 0]
    return out.view("<i4")


def _truth(truth: Truths) -> Bits:
    return truth[:, None]


def _sign(x: Bits, bits: int) -> Bits:
    return widen(x[:, :bits], 32, sign=True)


def _low(x: Bits, y: Bits) -> Bits:
    return mul(x, y, sign=False)[:, : x.shape[1]]


def _orders(x: Bits, y: Bits, sign: bool) -> Bits:
    below, above = less(x, y, sign=sign), less(y, x, sign=sign)
    return np.stack([below, ~above, above, ~below, ~(below | above), below | above], axis=1)


def _least(x: Bits, y: Bits, sign: bool) -> Bits:
    return pick(less(y, x, sign=sign), y, x)


def _most(x: Bits, y: Bits, sign: bool) -> Bits:
    return pick(less(x, y, sign=sign), y, x)


def _high(a: Bits, b: Bits, bits: int, sign: bool) -> Bits:
    """The high half of the product of the low `bits`, sign extended where signed."""
    return widen(mul(a[:, :bits], b[:, :bits], sign=sign)[:, bits:], 32, sign=sign)


def _mul_hi_32(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    return [_high(a, b, 32, sign) for sign in (False, True)] * 2


def _wrapping_sum(a: Bits, b: Bits) -> Bits:
    return add(a, b)[0]


def _overflow_seen(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    one = constant(1, a)
    up, down = _wrapping_sum(a, one), sub(a, one)[0]
    return [
        _truth(less(a, up, sign=True)),
        _truth(less(down, a, sign=True)),
        _truth(less(a, up, sign=False)),
        _truth(~less(_wrapping_sum(a, b), a, sign=True)),
    ]


def _select(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    truths = (less(c, d, sign=False), less(c, d, sign=True), ~some(c ^ d), some(c & d))
    return [pick(truth, b, a) for truth in truths]


def _logic_of_three(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    chosen = (a & b) | (~a & c)
    return [chosen, (a & b) | (a & c) | (b & c), a ^ b ^ c, pick(some(chosen), d, b)]


INT32: dict[str, Operation] = {
    "add_u32": lambda a, b, c, d: [
        add(a, b)[0],
        _truth(add(a, b)[1]),
        _wrapping_sum(_wrapping_sum(c, b), a),
        _wrapping_sum(d, a),
    ],
    "sub_u32": lambda a, b, c, d: [sub(a, b)[0], _truth(sub(a, b)[1]), sub(a, _wrapping_sum(c, b))[0], neg(a)],
    "mul_u32": lambda a, b, c, d: [_low(b, a), _wrapping_sum(c, _low(b, a)), _low(a, a), _low(d, b)],
    "add_s32": lambda a, b, c, d: [_wrapping_sum(b, a), sub(a, b)[0], neg(a)],
    "mul_s32": lambda a, b, c, d: [mul(a, b, sign=True)[:, :32], _wrapping_sum(mul(a, b, sign=True)[:, :32], c)],
    "mul_hi_32": _mul_hi_32,
    "mul_hi_narrow": lambda a, b, c, d: [_high(a, b, n, sign) for n in (8, 16) for sign in (False, True)],
    "mul24_u": lambda a, b, c, d: [mul(a[:, :24], b[:, :24], sign=False)[:, :32]],
    "mul24_s": lambda a, b, c, d: [mul(a[:, :24], b[:, :24], sign=True)[:, :32]],
    "compare_u32": lambda a, b, c, d: [_orders(x, y, False) for x, y in ((a, b), (b, c), (c, d), (d, d))],
    "compare_s32": lambda a, b, c, d: [_orders(x, y, True) for x, y in ((a, b), (b, c), (c, d), (d, d))],
    "bounds_u32": lambda a, b, c, d: [_least(a, d, False), _most(a, d, False), _least(_most(a, b, False), c, False)],
    "least_int": lambda a, b, c, d: [
        _least(a, constant(-(2**31), a), True),
        _most(a, constant(-(2**31), a), True),
    ],
    "bounds_s32": lambda a, b, c, d: [
        _least(a, d, True),
        _most(a, d, True),
        _least(_most(a, b, True), c, True),
    ],
    "abs_s32": lambda a, b, c, d: [magnitude(a)],
    "select": _select,
    "logic": lambda a, b, c, d: [a & b, a | b, a ^ b, ~a],
    "logic_of_three": _logic_of_three,
    "overflow_seen": _overflow_seen,
    "sign_extend": lambda a, b, c, d: [_sign(a, 8), _sign(a, 16)] * 2,
}


def _shifts(x: Bits, n: Numbers, bits: int) -> list[Bits]:
    low = x[:, :bits]
    return [
        shift(low, n),
        shift(low, -n),
        shift(_sign(x, bits), -n, fill=x[:, bits - 1]),
    ]


def _field(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    offset, count = number(b), number(c)
    place = np.arange(32)[None, :]
    inside = place < count[:, None]
    taken = shift(a, -offset) & inside
    top = some(taken & (place == count[:, None] - 1))
    there = (place >= offset[:, None]) & (place < (offset + count)[:, None])
    return [taken, np.where(inside, taken, top[:, None]), np.where(there, shift(d, offset), a)]


def _count(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    counts = (31 - highest(a), lowest(a, 32), a.astype(np.int64).sum(axis=1))
    return [*(from_number(n, 32) for n in counts), a[:, ::-1]]


def _vector(left: bool) -> Operation:
    def shifted(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
        counts = [number(n) if left else -number(n) for n in (c, d)]
        return [shift(x, n, None if left or x is a else x[:, -1]) for x in (a, b) for n in counts]

    return shifted


BITS: dict[str, Operation] = {
    "shift": lambda a, b, c, d: _shifts(a, number(b), 32),
    "rotate": lambda a, b, c, d: [rotate(a, number(b)), rotate(a, -number(b))] * 2,
    "funnel": lambda a, b, c, d: [
        shift(np.concatenate([c, a], axis=1), number(b))[:, 32:],
        shift(np.concatenate([c, a], axis=1), -number(b))[:, :32],
    ],
    "shift_16": lambda a, b, c, d: _shifts(a, number(b), 16),
    "shift_8": lambda a, b, c, d: _shifts(a, number(b), 8),
    "shift_vector": _vector(True),
    "shift_vector_right": _vector(False),
    "field": _field,
    "count": _count,
    "first_bit": lambda a, b, c, d: [
        from_number(highest(a), 32),
        from_number(highest(a ^ a[:, -1:]), 32),
        from_number(lowest(a, -1), 32),
    ],
    "shift_wide": lambda a, b, c, d: _shifts(a, number(b[:, :5]), 32),
}


def _by_constants(values: Sequence[int], part: int, sign: bool) -> Operation:
    return lambda a, b, c, d: [divide(a, constant(n, a), sign=sign)[part] for n in values]


def _narrow(part: int) -> Operation:
    return lambda a, b, c, d: [divide(_sign(a, n), _sign(b, n), sign=True)[part] for n in (16, 8)]


def _floored(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    quotient, rest = divide(a, b, sign=True)
    below = some(rest) & (a[:, -1] ^ b[:, -1])
    return [pick(below, sub(quotient, constant(1, a))[0], quotient), pick(below, _wrapping_sum(rest, b), rest)]


def _address(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    quotient, rest = divide(a, b, sign=False)
    return [_wrapping_sum(shift(rest, np.ones(len(a), np.int64)), _low(quotient, c)), a]


DIV: dict[str, Operation] = {
    "div_u32": lambda a, b, c, d: [divide(a, b, sign=False)[0]],
    "rem_u32": lambda a, b, c, d: [divide(a, b, sign=False)[1]],
    "div_s32": lambda a, b, c, d: [divide(a, b, sign=True)[0]],
    "rem_s32": lambda a, b, c, d: [divide(a, b, sign=True)[1]],
    "floored_s32": _floored,
    "negated_div_u": lambda a, b, c, d: divide(neg(a), b, sign=False),
    "negated_div_s": lambda a, b, c, d: [neg(divide(neg(a), b, sign=True)[0])],
    "narrow_u": lambda a, b, c, d: [x for n in (16, 8) for x in divide(a[:, :n], b[:, :n], sign=False)],
    "narrow_div_s": _narrow(0),
    "narrow_rem_s": _narrow(1),
    "by_constant_div_u": _by_constants((3, 7, 10, 255), 0, False),
    "by_constant_rem_u": _by_constants((3, 7, 10, 768), 1, False),
    "by_constant_div_s": _by_constants((3, 7, -3, 768), 0, True),
    "by_constant_rem_s": _by_constants((2, 3, 10, 768), 1, True),
    "address": _address,
}


def _pair(what: Callable[[Bits, Bits], Sequence[Bits]]) -> Operation:
    """An operation on x = (a, b) and y = (c, d) that gives numbers of 64 bits."""

    def words(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
        found = what(np.concatenate([a, b], axis=1), np.concatenate([c, d], axis=1))
        return [part for bits in found for part in np.split(widen(bits, 64, sign=False), 2, axis=1)]

    return words


def _increment_128(x: Bits, y: Bits) -> list[Bits]:
    wide = np.concatenate([x, y], axis=1)
    return np.split(add(wide, np.zeros_like(wide), True)[0], 2, axis=1)


def _amount(y: Bits) -> Numbers:
    return number(y[:, :6])


def _shift_s64(x: Bits, y: Bits) -> list[Bits]:
    return [shift(x, -n, fill=x[:, -1]) for n in (_amount(y), 63 - _amount(y))]


def _compare_64(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    x, y = np.concatenate([a, b], axis=1), np.concatenate([c, d], axis=1)
    return [_orders(one, y, sign) for one in (x, y) for sign in (False, True)]


def _mul_sat(x: Bits, y: Bits) -> list[Bits]:
    product = mul(x, y, sign=True)
    fits = ~some(product[:, 63:] ^ product[:, 63:64])
    top = np.concatenate([np.repeat(~product[:, -1:], 63, axis=1), product[:, -1:]], axis=1)
    return [pick(fits, product[:, :64], top)]


def _count_64(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    x = np.concatenate([a, b], axis=1)
    return [from_number(n, 32) for n in (63 - highest(x), x.astype(np.int64).sum(axis=1))]


INT64: dict[str, Operation] = {
    "add_64": _pair(lambda x, y: [add(x, y)[0], _truth(add(x, y)[1])]),
    "sub_64": _pair(lambda x, y: [sub(x, y)[0], _truth(sub(x, y)[1])]),
    "increment_128": _pair(_increment_128),
    "mul_64": _pair(lambda x, y: [_low(y, x), _low(x, x)]),
    "mul_hi_64": _pair(lambda x, y: [mul(x, y, sign=sign)[:, 64:] for sign in (False, True)]),
    "widen_32": _pair(lambda x, y: [mul(x[:, :32], y[:, :32], sign=sign) for sign in (False, True)]),
    "shift_64": _pair(lambda x, y: [shift(x, _amount(y)), shift(x, -_amount(y))]),
    "shift_s64": _pair(_shift_s64),
    "rotate_64": _pair(lambda x, y: [rotate(x, _amount(y)), rotate(x, -_amount(y))]),
    "compare_64": _compare_64,
    "divide_u64": _pair(lambda x, y: divide(x, y, sign=False)),
    "divide_s64": _pair(lambda x, y: divide(x, y, sign=True)[:1]),
    "remainder_s64": _pair(lambda x, y: divide(x, y, sign=True)[1:]),
    "by_constant_u64": _pair(lambda x, y: divide(x, constant(10, x), sign=False)),
    "by_constant_s64": _pair(lambda x, y: [divide(x, constant(n, x), sign=True)[0] for n in (10, 1000000007)]),
    "mul_sat_s64": _pair(_mul_sat),
    "abs_s64": _pair(lambda x, y: [magnitude(x)]),
    "count_64": _count_64,
    "shift_wide_64": _pair(lambda x, y: [shift(x, _amount(y)), shift(x, -_amount(y))]),
}


def _bytes(a: Bits) -> list[Bits]:
    return [a[:, n : n + 8] for n in (0, 8, 16, 24)]


def _sum_of(parts: Sequence[Bits]) -> Bits:
    total = np.zeros((len(parts[0]), 32), bool)
    for part in parts:
        total = _wrapping_sum(total, widen(part, 32, sign=True))
    return total


def _clamped(x: Bits, low: int, high: int, sign: bool) -> Bits:
    return _least(_most(x, constant(low, x), sign), constant(high, x), sign)[:, :8]


def _half(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    """The significand moved to its place; the float's exponent from where the highest bit then is."""
    exponent = number(a[:, 10:15])
    significand = np.concatenate([a[:, :10], (exponent > 0)[:, None], np.zeros((len(a), 53), bool)], axis=1)
    steps = shift(significand, np.maximum(exponent, 1) - 1)
    value = pick(a[:, 15], neg(steps), steps)
    top, zero = highest(steps), ~some(steps)
    mantissa = shift(steps, 23 - top)[:, :23]
    float_exponent = from_number(np.where(zero, 0, top + 103), 8)
    bits = np.concatenate([mantissa, float_exponent, a[:, 15:16]], axis=1)
    return [value[:, :32], value[:, 32:], bits]


def _by_components(what: Callable[[Bits, Bits], Bits]) -> Operation:
    return lambda a, b, c, d: [what(x, y) for x, y in ((a, d), (b, c), (c, b), (d, a))]


def _arithmetic(x: Bits, y: Bits) -> Bits:
    return sub(_wrapping_sum(_low(x, y), x ^ y), shift(y, np.full(len(y), -3)))[0]


def _threes(a: Bits, b: Bits, c: Bits, d: Bits) -> list[Bits]:
    odd, changed = a[:, 0], c ^ constant(5, c)
    return [pick(odd, d, a), pick(odd, a, b), pick(odd, b, c), changed]


PACK: dict[str, Operation] = {
    "unpack_s8": lambda a, b, c, d: [widen(x, 32, sign=True) for x in _bytes(a)],
    "unpack_u8": lambda a, b, c, d: _bytes(a),
    "pack": lambda *words: [np.concatenate([w[:, :8] for w in words], axis=1)] * 3,
    "pack_clamp": lambda *words: [
        np.concatenate([_clamped(w, -128, 127, True) for w in words], axis=1),
        np.concatenate([_clamped(w, 0, 255, False) for w in words], axis=1),
    ],
    "sum_of_bytes": lambda a, b, c, d: [_sum_of(_bytes(a)), _sum_of([a[:, :16], a[:, 16:]])],
    "half": _half,
    "vector_arithmetic": _by_components(_arithmetic),
    "scalar_arithmetic": _by_components(_arithmetic),
    "vector_least": _by_components(lambda x, y: _least(x, y, False)),
    "vector_chosen": _by_components(lambda x, y: pick(less(x, y, sign=True), y, x)),
    "shift_halves": lambda a, b, c, d: [
        np.concatenate([shift(half, number(b)) for half in (a[:, :16], a[:, 16:])], axis=1)
    ],
    "vectors_of_three": _threes,
}

PROBES: dict[str, tuple[int, dict[str, Operation]]] = {
    "probe_int32": (4, INT32),
    "probe_bits": (4, BITS),
    "probe_div": (4, DIV),
    "probe_int64": (4, INT64),
    "probe_pack": (4, PACK),
    "probe_flow": (4, FLOW),
    "probe_group": (4, GROUP),
    "probe_atomics": (4, ATOMICS),
}
"""By kernel: operand words of a row, and its operations by number."""
