"""Write a synthetic GGUF file of the shape of Qwen2.5-0.5B-Instruct Q8_0 (about 525 MB): the same bytes on every run.

    python tests/make_qwen_shape.py OUT.gguf [--output]

Names, dimensions, types and numbers are those of the released model; the values are random, small enough for the profile's
contracts. `--output` adds a separate output matrix, as some released files have it (670 MB); else the embedding makes the logits.
With it a pass is proved at full size without the released file:

    samebits forward OUT.gguf --profile dyadic-q16 --tokens 5 --device second --device opencl:intel-cpu

The pass takes 504 MiB of a device, printed first; the output head (138 MiB) is over the binding limit and lies in two buffers.
SHA-256 of the file, digest of the logits and the next token, alike by all devices that were asked:

    without   8ef14b8a31c1b38a1e446cc116ea4f8417701dc05071f8ee58750c9df627d0f9  525,136,992 bytes
              fa5212c953810255f831ff2ba0272e1b64163c91954a169b4d044f48a9e3cbce  27870: second, Intel's runtime, PoCL, g++
    --output  71935dfdb9ce7b95011427905a0220fc174d4d91e35d6927a45c998756716676  669,780,128 bytes
              fe186ab5e4383bd051eec5069a77ddd8e99bb0409cfb78110fc6f6146ffe5e58  93048: second, Intel's runtime

On two threads it took second about 10 s and Intel's runtime 6 s, whose worker kept 922 MiB. With discovery and the reading of the
file it is half a minute, and half a gigabyte of disk, so no test does it: test_qwen_shape.py does one layer.
"""

import argparse
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf_bytes import F32, Q8_0, entry, gguf_header, pair, text_pair

WIDTH, HEADS, KV_HEADS, HEAD, MLP, LAYERS, VOCABULARY, CONTEXT = 896, 14, 2, 64, 4864, 24, 151_936, 32_768
EPSILON, BASE = 1e-6, 1_000_000.0
ALIGNMENT = 32


def numbers() -> list[bytes]:
    """The metadata that the forward pass reads."""
    counts = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": MLP,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
    }
    reals = {"rope.freq_base": BASE, "attention.layer_norm_rms_epsilon": EPSILON}
    return [
        text_pair("general.architecture", "qwen2"),
        text_pair("general.name", "synthetic, of the shape of Qwen2.5-0.5B-Instruct"),
        *(pair(f"qwen2.{key}", 4, struct.pack("<I", value)) for key, value in counts.items()),
        *(pair(f"qwen2.{key}", 6, struct.pack("<f", value)) for key, value in reals.items()),
    ]


def tensors(output: bool) -> Iterator[tuple[str, list[int], int]]:
    """Name, dimensions and type of each, in the order of the file."""
    yield "token_embd.weight", [WIDTH, VOCABULARY], Q8_0
    for layer in range(LAYERS):
        blk = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            yield f"{blk}{norm}.weight", [WIDTH], F32
        for name, rows in (("attn_q", HEADS * HEAD), ("attn_k", KV_HEADS * HEAD), ("attn_v", KV_HEADS * HEAD)):
            yield f"{blk}{name}.weight", [WIDTH, rows], Q8_0
            yield f"{blk}{name}.bias", [rows], F32
        yield f"{blk}attn_output.weight", [HEADS * HEAD, WIDTH], Q8_0
        yield f"{blk}ffn_gate.weight", [WIDTH, MLP], Q8_0
        yield f"{blk}ffn_up.weight", [WIDTH, MLP], Q8_0
        yield f"{blk}ffn_down.weight", [MLP, WIDTH], Q8_0
    yield "output_norm.weight", [WIDTH], F32
    if output:
        yield "output.weight", [WIDTH, VOCABULARY], Q8_0


def size(dims: list[int], kind: int) -> int:
    """Bytes of a tensor."""
    return int(np.prod(dims)) * 4 if kind == F32 else int(np.prod(dims)) // 32 * 34


def values(number: int, name: str, dims: list[int], kind: int) -> bytes:
    """Gains near 1, biases near 0; blocks with scales of 2^-12 to 2^-11 and any quants."""
    rng = np.random.Generator(np.random.PCG64(number))
    count = int(np.prod(dims))
    if kind == F32:
        steps = rng.integers(-(1 << 15), 1 << 15, count)
        return (steps / (1 << 17) + ("norm" in name)).astype("<f4").tobytes()
    blocks = np.frombuffer(rng.bytes(size(dims, kind)), np.uint8).reshape(-1, 34).copy()
    blocks[:, 1] = 0x0C | (blocks[:, 1] & 3)  # the exponent of the scale; its other bits are random
    return blocks.tobytes()


def write(path: Path, output: bool = False) -> None:
    """Write the file, a tensor at a time."""
    listed, at, entries = list(tensors(output)), 0, []
    for name, dims, kind in listed:
        entries.append(entry(name, dims, kind, at))
        at += -(-size(dims, kind) // ALIGNMENT) * ALIGNMENT
    header = gguf_header(numbers(), entries)
    with path.open("wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for number, (name, dims, kind) in enumerate(listed):
            data = values(number, name, dims, kind)
            file.write(data + bytes(-len(data) % ALIGNMENT))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--output", action="store_true", help="With a separate output matrix.")
    given = parser.parse_args()
    write(given.out, given.output)
    print(f"{given.out.name}: {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
