"""The `probe_*` kernels: many small operations, each a function of a row's operand words to four result words.

An operation takes words as integers 0 .. 2^32 - 1 and gives integers of any size and sign, which are reduced modulo 2^32
at the end. Its place in its kernel's table is the number that a row names it by, and the `case` in the kernel's source.
"""

from collections.abc import Callable, Mapping, Sequence

from cpu_ref.integers import read_signed, write_residues
from cpu_ref.probe_flow import FLOW
from cpu_ref.probe_group import ATOMICS, GROUP

Operation = Callable[..., Sequence[int]]
"""Operand words to result words: shorter results are filled with zeros."""

WORD = 1 << 32


def signed(value: int, bits: int = 32) -> int:
    """The low `bits` of `value` in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a: int, b: int) -> tuple[int, int]:
    """Quotient rounded towards zero and its remainder; a / 0 is a, a % 0 is 0, as WGSL has it."""
    if b == 0:
        return a, 0
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def compute(operations: Sequence[Operation], ops: bytes, operands: bytes, width: int) -> bytes:
    """Results i32[rows, 4] of `ops` i32[rows] on `operands` i32[rows, width], all as little-endian bytes."""
    rows, words = read_signed(ops, 4), [v % WORD for v in read_signed(operands, 4)]
    results: list[int] = []
    for row, op in enumerate(rows):
        found = [v % WORD for v in operations[op](*words[row * width : (row + 1) * width])]
        results += found + [0] * (4 - len(found))
    return write_residues(results, 4)


def _orders(a: int, b: int) -> int:
    return sum(truth << i for i, truth in enumerate((a < b, a <= b, a > b, a >= b, a == b, a != b)))


def _clamp(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def _high(a: int, b: int, bits: int, sign: bool) -> int:
    mask = (1 << bits) - 1
    return (signed(a, bits) * signed(b, bits) if sign else (a & mask) * (b & mask)) >> bits


def _choose(a: int, b: int, c: int) -> int:
    return (a & b) | (~a & c)


INT32: dict[str, Operation] = {
    "add_u32": lambda a, b, c, d: (a + b, a + b >= WORD, a + b + c, a + d),
    "sub_u32": lambda a, b, c, d: (a - b, a < b, a - b - c, -a),
    "mul_u32": lambda a, b, c, d: (a * b, a * b + c, a * a, b * d),
    "add_s32": lambda a, b, c, d: (signed(a) + signed(b), signed(a) - signed(b), -signed(a)),
    "mul_s32": lambda a, b, c, d: (signed(a) * signed(b), signed(a) * signed(b) + signed(c)),
    "mul_hi_32": lambda a, b, c, d: (_high(a, b, 32, False), _high(a, b, 32, True)) * 2,
    "mul_hi_narrow": lambda a, b, c, d: [_high(a, b, bits, sign) for bits in (8, 16) for sign in (False, True)],
    "mul24_u": lambda a, b, c, d: (a * b,),
    "mul24_s": lambda a, b, c, d: (signed(a) * signed(b),),
    "compare_u32": lambda a, b, c, d: (_orders(a, b), _orders(b, c), _orders(c, d), _orders(d, d)),
    "compare_s32": lambda a, b, c, d: [_orders(signed(x), signed(y)) for x, y in ((a, b), (b, c), (c, d), (d, d))],
    "bounds_u32": lambda a, b, c, d: (min(a, d), max(a, d), _clamp(a, b, c)),
    "least_int": lambda a, b, c, d: (-(1 << 31), a),
    "bounds_s32": lambda a, b, c, d: (
        min(signed(a), signed(d)),
        max(signed(a), signed(d)),
        _clamp(signed(a), signed(b), signed(c)),
    ),
    "abs_s32": lambda a, b, c, d: (abs(signed(a)),),
    "select": lambda a, b, c, d: (
        b if c < d else a,
        b if signed(c) < signed(d) else a,
        b if c == d else a,
        b if c & d else a,
    ),
    "logic": lambda a, b, c, d: (a & b, a | b, a ^ b, ~a),
    "logic_of_three": lambda a, b, c, d: (
        _choose(a, b, c),
        (a & b) ^ (a & c) ^ (b & c),
        a ^ b ^ c,
        d if _choose(a, b, c) else b,
    ),
    "overflow_seen": lambda a, b, c, d: (
        signed(a) != (1 << 31) - 1,
        signed(a) != -(1 << 31),
        a != WORD - 1,
        signed(signed(a) + signed(b)) >= signed(a),
    ),
    "sign_extend": lambda a, b, c, d: (signed(a, 8), signed(a, 16)) * 2,
}

_WORD_BITS = range(32)


def _rotated(a: int, n: int) -> int:
    return a << n | a >> (32 - n)


def _clz(a: int) -> int:
    return 32 - a.bit_length()


def _ctz(a: int) -> int:
    return (a & -a).bit_length() - 1 if a else 32


def _extract(a: int, offset: int, count: int) -> int:
    return a >> offset & (1 << count) - 1


def _shifts(a: int, n: int, bits: int) -> tuple[int, ...]:
    """Left in the narrow type; right of it as unsigned and as signed, after promotion to 32 bits."""
    low = a & (1 << bits) - 1
    return (low << n & (1 << bits) - 1, low >> n, signed(a, bits) >> n)


BITS: dict[str, Operation] = {
    "shift": lambda a, b, c, d: (a << b, a >> b, signed(a) >> b),
    "rotate": lambda a, b, c, d: (_rotated(a, b), _rotated(a, (32 - b) % 32)) * 2,
    "funnel": lambda a, b, c, d: ((a << 32 | c) << b >> 32, (a << 32 | c) >> b),
    "shift_16": lambda a, b, c, d: _shifts(a, b, 16),
    "shift_8": lambda a, b, c, d: _shifts(a, b, 8),
    "shift_vector": lambda a, b, c, d: (a << c, a << d, b << c, b << d),
    "shift_vector_right": lambda a, b, c, d: (a >> c, a >> d, signed(b) >> c, signed(b) >> d),
    "field": lambda a, b, c, d: (
        _extract(a, b, c),
        signed(_extract(a, b, c), c) if c else 0,
        a & ~((1 << c) - 1 << b) | _extract(d, 0, c) << b,
    ),
    "count": lambda a, b, c, d: (_clz(a), _ctz(a), a.bit_count(), sum((a >> i & 1) << (31 - i) for i in _WORD_BITS)),
    "first_bit": lambda a, b, c, d: (
        a.bit_length() - 1,
        (a if signed(a) >= 0 else ~a % WORD).bit_length() - 1,
        _ctz(a) if a else -1,
    ),
    "shift_wide": lambda a, b, c, d: (a << b % 32, a >> b % 32, signed(a) >> b % 32),
}


def _div(a: int, b: int) -> int:
    return truncated(a, b)[0]


def _rem(a: int, b: int) -> int:
    return truncated(a, b)[1]


def _narrow(what: Callable[[int, int], int], a: int, b: int) -> tuple[int, int]:
    return what(signed(a, 16), signed(b, 16)), what(signed(a, 8), signed(b, 8))


DIV: dict[str, Operation] = {
    "div_u32": lambda a, b, c, d: (_div(a, b),),
    "rem_u32": lambda a, b, c, d: (_rem(a, b),),
    "div_s32": lambda a, b, c, d: (_div(signed(a), signed(b)),),
    "rem_s32": lambda a, b, c, d: (_rem(signed(a), signed(b)),),
    "floored_s32": lambda a, b, c, d: (signed(a) // signed(b), signed(a) % signed(b)),
    "negated_div_u": lambda a, b, c, d: (-a % WORD // b, -a % WORD % b),
    "negated_div_s": lambda a, b, c, d: (-_div(signed(-a), signed(b)),),
    "narrow_u": lambda a, b, c, d: (
        (a & 0xFFFF) // (b & 0xFFFF),
        (a & 0xFFFF) % (b & 0xFFFF),
        (a & 0xFF) // (b & 0xFF),
        (a & 0xFF) % (b & 0xFF),
    ),
    "narrow_div_s": lambda a, b, c, d: _narrow(_div, a, b),
    "narrow_rem_s": lambda a, b, c, d: _narrow(_rem, a, b),
    "by_constant_div_u": lambda a, b, c, d: [a // n for n in (3, 7, 10, 255)],
    "by_constant_rem_u": lambda a, b, c, d: [a % n for n in (3, 7, 10, 768)],
    "by_constant_div_s": lambda a, b, c, d: [_div(signed(a), n) for n in (3, 7, -3, 768)],
    "by_constant_rem_s": lambda a, b, c, d: [_rem(signed(a), n) for n in (2, 3, 10, 768)],
    "address": lambda a, b, c, d: (a % b * 2 + a // b * c, a // b * b + a % b),
}

WIDE = 1 << 64


def _wide(what: Callable[[int, int], Sequence[int]]) -> Operation:
    """An operation on x = a + 2^32 b and y = c + 2^32 d that gives one or two numbers of 64 bits."""

    def words(a: int, b: int, c: int, d: int) -> list[int]:
        return [part for v in what(a | b << 32, c | d << 32) for part in (v % WIDE % WORD, v % WIDE >> 32)]

    return words


def _signed64(what: Callable[[int, int], Sequence[int]]) -> Operation:
    return _wide(lambda x, y: what(signed(x, 64), signed(y, 64)))


def _saturated(v: int) -> int:
    return _clamp(v, -(1 << 63), (1 << 63) - 1)


def _increment_128(x: int, y: int) -> tuple[int, int]:
    total = (x | y << 64) + 1
    return total % WIDE, total >> 64


INT64: dict[str, Operation] = {
    "add_64": _wide(lambda x, y: (x + y, x + y >= WIDE)),
    "sub_64": _wide(lambda x, y: (x - y, x < y)),
    "increment_128": _wide(_increment_128),
    "mul_64": _wide(lambda x, y: (x * y, x * x)),
    "mul_hi_64": _wide(lambda x, y: (_high(x, y, 64, False), _high(x, y, 64, True))),
    "widen_32": _wide(lambda x, y: (x % WORD * (y % WORD), signed(x) * signed(y))),
    "shift_64": _wide(lambda x, y: (x << y % WORD, x >> y % WORD)),
    "shift_s64": _signed64(lambda x, y: (x >> y % WORD, x >> 63 - y % WORD)),
    "rotate_64": _wide(lambda x, y: ((x | x << 64) >> 64 - y % WORD, (x | x << 64) >> y % WORD)),
    "compare_64": lambda a, b, c, d: [
        _orders(x, y)
        for one, other in (((a | b << 32), (c | d << 32)), ((c | d << 32),) * 2)
        for x, y in ((one, other), (signed(one, 64), signed(other, 64)))
    ],
    "divide_u64": _wide(lambda x, y: (x // y, x % y)),
    "divide_s64": _signed64(lambda x, y: (_div(x, y), 0)),
    "remainder_s64": _signed64(lambda x, y: (_rem(x, y), 0)),
    "by_constant_u64": _wide(lambda x, y: (x // 10, x % 10)),
    "by_constant_s64": _signed64(lambda x, y: (_div(x, 10), _div(x, 1000000007))),
    "mul_sat_s64": _signed64(lambda x, y: (_saturated(x * y),)),
    "abs_s64": _signed64(lambda x, y: (abs(x),)),
    "count_64": lambda a, b, c, d: (64 - (a | b << 32).bit_length(), (a | b << 32).bit_count()),
    "shift_wide_64": _wide(lambda x, y: (x << y % 64, x >> y % 64)),
}


def _pack(parts: Sequence[int]) -> int:
    return sum((part & 255) << 8 * i for i, part in enumerate(parts))


def _half(a: int, *_: int) -> tuple[int, int, int]:
    """A finite fp16 times 2^24 in two words, and the bits of the float of the same value."""
    sign, exponent, fraction = a >> 15 & 1, a >> 10 & 31, a & 1023
    steps = fraction if exponent == 0 else (1024 | fraction) << exponent - 1
    value = (-steps if sign else steps) % WIDE
    top = steps.bit_length() - 1
    mantissa = (steps << 23 >> top) & (1 << 23) - 1 if steps else 0
    return value % WORD, value >> 32, sign << 31 | (top - 24 + 127 << 23 if steps else 0) | mantissa


def _vector(what: Callable[[int, int], int]) -> Operation:
    """By components of (a, b, c, d) and (d, c, b, a)."""
    return lambda a, b, c, d: [what(x, y) for x, y in ((a, d), (b, c), (c, b), (d, a))]


def _arithmetic(x: int, y: int) -> int:
    return x * y + (x ^ y) - (y >> 3)


def _threes(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
    """Two vectors of three, the middle of one replaced."""
    three = [[a, b, c], [d, a, b]]
    three[a & 1 ^ 1][1] = c ^ 5
    return *three[a & 1], three[a & 1 ^ 1][1]


PACK: dict[str, Operation] = {
    "unpack_s8": lambda a, b, c, d: [signed(a >> n, 8) for n in (0, 8, 16, 24)],
    "unpack_u8": lambda a, b, c, d: [a >> n & 255 for n in (0, 8, 16, 24)],
    "pack": lambda *words: (_pack(words),) * 3,
    "pack_clamp": lambda *words: (
        _pack([_clamp(signed(w), -128, 127) for w in words]),
        _pack([min(w, 255) for w in words]),
    ),
    "sum_of_bytes": lambda a, b, c, d: (
        sum(signed(a >> n, 8) for n in (0, 8, 16, 24)),
        signed(a, 16) + signed(a >> 16, 16),
    ),
    "half": _half,
    "vector_arithmetic": _vector(_arithmetic),
    "scalar_arithmetic": _vector(_arithmetic),
    "vector_least": _vector(min),
    "vector_chosen": _vector(lambda x, y: y if signed(x) < signed(y) else x),
    "shift_halves": lambda a, b, c, d: ((a & 0xFFFF) << b & 0xFFFF | (a >> 16 << b & 0xFFFF) << 16,),
    "vectors_of_three": _threes,
}

PROBES: Mapping[str, tuple[int, dict[str, Operation]]] = {
    "probe_int32": (4, INT32),
    "probe_bits": (4, BITS),
    "probe_div": (4, DIV),
    "probe_int64": (4, INT64),
    "probe_pack": (4, PACK),
    "probe_flow": (4, FLOW),
    "probe_group": (4, GROUP),
    "probe_atomics": (4, ATOMICS),
}
"""By kernel: operand words of a row, and its operations in the order of their numbers."""
