"""Kernel `limbs`: what each function of the preludes int64_limbs and int128_limbs computes, on Python ints.

A function reads the lowest `bits` of both operands, signed or not; its result is reduced to its own width. A shift takes
n modulo its width, a rounding at least 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt

from cpu_ref.rounding import round_away, round_shift


@dataclass(frozen=True)
class Function:
    """Width of the operands, whether they are signed, width of the result, and the exact result of (a, b, n)."""

    bits: int
    signed: bool
    result: int
    compute: Callable[[int, int, int], int]

    def __call__(self, a: int, b: int, n: int) -> int:
        """The result's residue, 0 to 2^result - 1, of operands given as residues modulo 2^128."""
        left, right = (self._operand(v) for v in (a, b))
        return self.compute(left, right, n % self.bits) % (1 << self.result)

    def _operand(self, v: int) -> int:
        v %= 1 << self.bits
        return v - (1 << self.bits) if self.signed and v >> (self.bits - 1) else v


def _quotient(bits: int) -> Function:
    """floor(a / b); all ones where b is 0."""
    return Function(bits, False, bits, lambda a, b, _: a // b if b else -1)


FUNCTIONS = {
    "i64_add": Function(64, True, 64, lambda a, b, _: a + b),
    "i64_sub": Function(64, True, 64, lambda a, b, _: a - b),
    "i64_neg": Function(64, True, 64, lambda a, _b, _n: -a),
    "i64_mul_words": Function(32, False, 64, lambda a, b, _: a * b),
    "i64_mul": Function(64, True, 64, lambda a, b, _: a * b),
    "i64_shl": Function(64, True, 64, lambda a, _, n: a << n),
    "i64_shr": Function(64, True, 64, lambda a, _, n: a >> n),
    "u64_shr": Function(64, False, 64, lambda a, _, n: a >> n),
    "i64_less": Function(64, True, 64, lambda a, b, _: a < b),
    "u64_less": Function(64, False, 64, lambda a, b, _: a < b),
    "i64_round_shift": Function(64, True, 64, lambda a, _, n: round_shift(a, max(n, 1))),
    "i64_round_away": Function(64, True, 64, lambda a, _, n: round_away(a, max(n, 1))),
    "u64_div": _quotient(64),
    "u64_isqrt": Function(64, False, 64, lambda a, _b, _n: isqrt(a)),
    "u32_div": _quotient(32),
    "u32_isqrt": Function(32, False, 32, lambda a, _b, _n: isqrt(a)),
    "i128_add": Function(128, True, 128, lambda a, b, _: a + b),
    "i128_sub": Function(128, True, 128, lambda a, b, _: a - b),
    "i128_neg": Function(128, True, 128, lambda a, _b, _n: -a),
    "u64_mul_wide": Function(64, False, 128, lambda a, b, _: a * b),
    "i128_mul": Function(128, True, 128, lambda a, b, _: a * b),
    "i128_shl": Function(128, True, 128, lambda a, _, n: a << n),
    "i128_shr": Function(128, True, 128, lambda a, _, n: a >> n),
    "u128_shr": Function(128, False, 128, lambda a, _, n: a >> n),
    "i128_less": Function(128, True, 128, lambda a, b, _: a < b),
    "u128_less": Function(128, False, 128, lambda a, b, _: a < b),
    "i128_round_shift": Function(128, True, 128, lambda a, _, n: round_shift(a, max(n, 1))),
    "i128_round_away": Function(128, True, 128, lambda a, _, n: round_away(a, max(n, 1))),
    "u128_div": _quotient(128),
    "u128_isqrt": Function(128, False, 128, lambda a, _b, _n: isqrt(a)),
}
"""By name, in the order in which the kernel numbers them."""


def limbs(a: Sequence[int], b: Sequence[int], shift: Sequence[int]) -> list[int]:
    """Every function of every element as residues modulo 2^128, function by function. a and b are such residues."""
    return [f(*operands) for f in FUNCTIONS.values() for operands in zip(a, b, shift, strict=True)]
