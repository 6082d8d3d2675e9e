"""The exact reference: arbitrary precision, FLINT and plain Python ints. It imports nothing of `harness`."""

VERSION = {"gemm_i32": "1", "gemm_i32_i64": "1", "gemm_i8": "1", "limbs": "1", "linear_q8_0": "1"}
"""Version of each kernel's reference; part of the case version, raised when a digest may change."""
