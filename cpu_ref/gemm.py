"""The integer `gemm_*` kernels: C = A B, row-major, defined modulo 2^32 or 2^64.

The reference computes the true integers, counts those that leave the type of C, and reduces only then.
"""

from dataclasses import dataclass

from flint import fmpz, fmpz_mat

from cpu_ref.integers import read_signed, write_residues
from cpu_ref.products import exact_product

Data = bytes | memoryview


@dataclass(frozen=True)
class Gemm:
    """`c`: bytes of C. `leaves_type`: how many true values do not fit its type."""

    c: bytes
    leaves_type: int


def gemm_i32(a: Data, b: Data, m: int, n: int, k: int) -> Gemm:
    """The product of a i32[m,k] and b i32[k,n], given as little-endian bytes, modulo 2^32."""
    return _gemm(a, b, m, n, k, 4, 4)


def gemm_i32_i64(a: Data, b: Data, m: int, n: int, k: int) -> Gemm:
    """The product of a i32[m,k] and b i32[k,n] modulo 2^64."""
    return _gemm(a, b, m, n, k, 4, 8)


def gemm_i8(a: Data, b: Data, m: int, n: int, k: int) -> Gemm:
    """The product of a i8[m,k] and b i8[k,n] modulo 2^32."""
    return _gemm(a, b, m, n, k, 1, 4)


def _gemm(a: Data, b: Data, m: int, n: int, k: int, width: int, out: int) -> Gemm:
    """Operands of `width` bytes, results of `out` bytes."""
    half, modulus = fmpz(1) << (8 * out - 1), fmpz(1) << (8 * out)
    true = exact_product(fmpz_mat(m, k, read_signed(a, width)), fmpz_mat(k, n, read_signed(b, width)))
    inside = sum(-half <= v < half for v in true)
    return Gemm(write_residues([int(v % modulus) for v in true], out), len(true) - inside)
