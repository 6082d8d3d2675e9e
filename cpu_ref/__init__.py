"""The exact reference: arbitrary precision, FLINT and plain Python ints. It imports nothing of `harness`."""

VERSION = {
    "gemm_i32": "1",
    "gemm_i32_i64": "2",
    "gemm_i8": "1",
    "limbs": "1",
    "linear_q4_0": "1",
    "linear_q4_1": "1",
    "linear_q8_0": "2",
    "nel_act": "1",
    "nel_argmax": "1",
    "nel_embedding": "1",
    "nel_matmul": "1",
    "nel_mix": "1",
    "nel_requant": "1",
    "nel_residual": "1",
    "nel_rmsnorm": "1",
    "nel_rope": "1",
    "nel_scores": "1",
    "nel_softmax": "1",
}
"""Version of each kernel's reference; part of the case version, raised when a digest may change."""
