"""Sums of 64-bit products as two halves: `product = high * 2^32 + low`, 0 <= low < 2^32, each half summed by itself.

A half is below 2^32 in magnitude, so fewer than 2^31 of them never overflow an int64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]
Unsigned = npt.NDArray[Any]

BAND = 1 << 15
"""Elements of one accumulator, so that all five arrays of a band stay in the processor's cache."""

MAX_TERMS = (1 << 31) - 1


def column_stream(left: Int64, right: Int64, word: type[np.uint32] | type[np.uint64]) -> tuple[Unsigned, Int64, Int64]:
    """Sum over k of outer(left[k], right[k]): modulo the word, and as (high, low) with 0 <= low < 2^32.

    left is [K,M], right [K,N]; the results are [M,N]. Every product must fit an int64. ArithmeticError where the two
    sums disagree.
    """
    terms, m, n = len(left), left.shape[1], right.shape[1]
    if terms > MAX_TERMS:
        raise ArithmeticError(f"{terms} terms could overflow the sum of halves")
    high, low = np.zeros((m, n), np.int64), np.zeros((m, n), np.int64)
    product, half = np.empty((m, n), np.int64), np.empty((m, n), np.int64)
    modular, wrapped = np.zeros((m, n), word), np.empty((m, n), word)
    left_word, right_word = left.astype(word), right.astype(word)  # keeps the residue, drops what is above
    for k in range(terms):
        np.multiply(left[k][:, None], right[k], out=product)
        np.right_shift(product, 32, out=half)
        high += half
        np.bitwise_and(product, 0xFFFFFFFF, out=half)
        low += half
        np.multiply(left_word[k][:, None], right_word[k], out=wrapped)
        modular += wrapped
    high += low >> 32
    low &= 0xFFFFFFFF
    whole = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    if not np.array_equal(whole.astype(word), modular):
        raise ArithmeticError("the modular sum and the sum of halves disagree")
    return modular, high, low
