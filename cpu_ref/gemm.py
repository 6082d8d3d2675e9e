"""Kernel `gemm_i32`: C = A B of int32, row-major, defined modulo 2^32.

The reference computes the true integers, counts those that leave int32, and reduces only then.
"""

from dataclasses import dataclass

from flint import fmpz, fmpz_mat

from cpu_ref.integers import read_signed, write_residues
from cpu_ref.products import exact_product

_LOW, _HIGH, _MODULUS = fmpz(-(1 << 31)), fmpz((1 << 31) - 1), fmpz(1 << 32)


@dataclass(frozen=True)
class Gemm:
    """`c`: bytes of i32[m,n]. `leaves_type`: how many true values are no int32."""

    c: bytes
    leaves_type: int


def gemm_i32(a: bytes | memoryview, b: bytes | memoryview, m: int, n: int, k: int) -> Gemm:
    """The product of a i32[m,k] and b i32[k,n], given as little-endian bytes."""
    left = fmpz_mat(m, k, read_signed(a, 4))
    right = fmpz_mat(k, n, read_signed(b, 4))
    true = exact_product(left, right)
    inside = sum(_LOW <= v <= _HIGH for v in true)
    return Gemm(write_residues([int(v % _MODULUS) for v in true], 4), len(true) - inside)
