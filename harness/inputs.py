"""Input tensors of a case: a pure function of its id.

Counter-based generator, simple enough to be written again in any language. Stream `name`:

    key  = first 8 bytes, little-endian, of SHA-256("samebits/1/" + name)
    word = mix(key + (i + 1) * 0x9E3779B97F4A7C15 mod 2^64)      for i = 0, 1, 2, ...
    mix  = the finaliser of SplitMix64 (Steele, Lea, Flood 2014)

A case's tensor `a` draws from the stream `<case id>/a`. Distributions live beside their kernel family:
`families/gemm_inputs.py`, `families/linear_inputs.py`.
"""

import hashlib

import numpy as np
import numpy.typing as npt

GENERATOR = "1"
"""Version of every generator here; part of the case version."""

Words = npt.NDArray[np.uint64]


def random_words(name: str, count: int) -> Words:
    """`count` pseudo-random u64 words of the stream `name`."""
    key = np.frombuffer(hashlib.sha256(f"samebits/{GENERATOR}/{name}".encode()).digest()[:8], dtype="<u8")[0]
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words: Words = z ^ (z >> np.uint64(31))
    return words


def random_integers(name: str, count: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """`count` integers in low..high (inclusive, high - low < 2^53): low + floor(top 32 or 53 bits scaled)."""
    span = high - low + 1
    words = random_words(name, count)
    if span <= 1 << 32:
        return (((words >> np.uint64(32)) * np.uint64(span)) >> np.uint64(32)).astype(np.int64) + low
    return (words % np.uint64(span)).astype(np.int64) + low
