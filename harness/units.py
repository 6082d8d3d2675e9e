"""Features of our own for packed 8-bit integers: which instructions a CUDA device has, and what any device advertises.

That a device advertises a unit does not make it right: the variants of a kernel that use it are judged like any other.
"""

DOT_SIGNED = "dot4-s8-unit"
DOT_UNSIGNED = "dot4-u8-unit"
MATRIX_SIGNED = "mma-s8-unit"
"""Hardware for the dot product of four packed bytes, and for the product of matrices of bytes."""

CUDA = {"dp4a": 61, "mma-s8-m8n8k16": 75, "mma-s8-m16n8k32": 80}
"""Instruction -> the least compute capability that has it (PTX's manual; ptxas refuses it below)."""


def cuda_instructions(capability: int) -> list[str]:
    """The instructions that a compute capability (75 is 7.5) has."""
    return [name for name, least in CUDA.items() if capability >= least]


def cuda_units(capability: int) -> list[str]:
    """The units that a GPU of that compute capability advertises."""
    units = [DOT_SIGNED, DOT_UNSIGNED] if capability >= CUDA["dp4a"] else []
    return units + ([MATRIX_SIGNED] if capability >= CUDA["mma-s8-m8n8k16"] else [])
