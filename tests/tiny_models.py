"""Tiny llama-like models, packed by hand so that each number, tensor and scale can be spoiled by itself."""

import random
import struct
from pathlib import Path
from typing import Any

from gguf_bytes import F32, Q4_0, Q4_1, Q8_0, Packed, array, gguf_file, pair, string, text_pair

WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, MLP, LAYERS, VOCABULARY, CONTEXT = 32, 4, 2, 16, 64, 2, 40, 24
EPSILON, BASE = 1e-5, 500.0

LINEARS = {
    "attn_q": (WIDTH, HEADS * HEAD_WIDTH),
    "attn_k": (WIDTH, KV_HEADS * HEAD_WIDTH),
    "attn_v": (WIDTH, KV_HEADS * HEAD_WIDTH),
    "attn_output": (HEADS * HEAD_WIDTH, WIDTH),
    "ffn_gate": (WIDTH, MLP),
    "ffn_up": (WIDTH, MLP),
    "ffn_down": (MLP, WIDTH),
}
HALVES = {Q8_0: 1, Q4_0: 1, Q4_1: 2}
QUANT_BYTES = {Q8_0: 32, Q4_0: 16, Q4_1: 16}


def numbers(architecture: str) -> dict[str, Any]:
    """Metadata by key, int or float. `None` for a key leaves it out; texts, truth values and lists are packed as such."""
    a = architecture
    return {
        "general.architecture": architecture,
        f"{a}.block_count": LAYERS,
        f"{a}.embedding_length": WIDTH,
        f"{a}.feed_forward_length": MLP,
        f"{a}.context_length": CONTEXT,
        f"{a}.attention.head_count": HEADS,
        f"{a}.attention.head_count_kv": KV_HEADS,
        f"{a}.attention.key_length": HEAD_WIDTH,
        f"{a}.attention.layer_norm_rms_epsilon": EPSILON,
        f"{a}.rope.freq_base": BASE,
    }


SPELLED = [
    "<|end|>",
    "<|user|>",
    *"helowrd12!<>s'",
    "\u0120",
    "\u010a",
    "he",
    "ll",
    "hell",
    "hello",
    "\u0120w",
    "or",
    "\u0120wor",
]
MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or"]
TEMPLATE = (
    "{% for message in messages %}<|user|>{{ message['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>{% endif %}"
)


def vocabulary(pre: str = "smollm") -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: two control tokens, some bytes, some merges, the rest unused; a chat template."""
    unused = [f"[PAD{i}]" for i in range(VOCABULARY - len(SPELLED))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": SPELLED + unused,
        "tokenizer.ggml.token_type": [3] * 2 + [1] * (len(SPELLED) - 2) + [5] * len(unused),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def blocks(kind: int, rows: int, k: int, seed: str, scale: int = 0x2000) -> bytes:
    """Random quants under random scales of either sign: `scale` is the smallest half's pattern, 512 patterns up from it."""
    rng = random.Random(seed)
    halves = HALVES[kind]
    made = []
    for _ in range(rows * k // 32):
        bits = [rng.choice([0, 0x8000]) | (scale + rng.randrange(512)) for _ in range(halves)]
        made.append(struct.pack(f"<{halves}H", *bits) + rng.randbytes(QUANT_BYTES[kind]))
    return b"".join(made)


def vector(count: int, seed: str, centre: float, spread: float) -> bytes:
    """Random F32 values."""
    rng = random.Random(seed)
    return struct.pack(f"<{count}f", *[centre + spread * (2 * rng.random() - 1) for _ in range(count)])


def tensors(kind: int = Q8_0, *, biases: bool = False, tied: bool = False) -> dict[str, Packed]:
    """All tensors by name."""
    made = [
        Packed("token_embd.weight", [WIDTH, VOCABULARY], kind, blocks(kind, VOCABULARY, WIDTH, "embd", 0x2800)),
        Packed("output_norm.weight", [WIDTH], F32, vector(WIDTH, "norm", 1, 0.5)),
    ]
    if not tied:
        made.append(Packed("output.weight", [WIDTH, VOCABULARY], kind, blocks(kind, VOCABULARY, WIDTH, "output")))
    for layer in range(LAYERS):
        blk = f"blk.{layer}."
        made += [
            Packed(f"{blk}{norm}.weight", [WIDTH], F32, vector(WIDTH, blk + norm, 1, 0.5))
            for norm in ("attn_norm", "ffn_norm")
        ]
        for name, (k, rows) in LINEARS.items():
            made.append(Packed(f"{blk}{name}.weight", [k, rows], kind, blocks(kind, rows, k, blk + name)))
            if biases:
                made.append(Packed(f"{blk}{name}.bias", [rows], F32, vector(rows, blk + name + "b", 0, 0.7)))
    return {t.name: t for t in made}


def packed(architecture: str, changes: dict[str, Any], there: dict[str, Packed]) -> bytes:
    """The file: metadata with `changes`, and tensors."""
    pairs = []
    for key, value in (numbers(architecture) | changes).items():
        if isinstance(value, str):
            pairs.append(text_pair(key, value))
        elif isinstance(value, bool):
            pairs.append(pair(key, 7, bytes([value])))
        elif isinstance(value, float):
            pairs.append(pair(key, 6, struct.pack("<f", value)))
        elif isinstance(value, int):
            pairs.append(pair(key, 4, struct.pack("<I", value)))
        elif isinstance(value, list) and isinstance(value[0], str | bytes):
            pairs.append(pair(key, 9, array(8, len(value), b"".join(map(string, value)))))
        elif value is not None:
            pairs.append(pair(key, 9, struct.pack(f"<IQ{len(value)}I", 4, len(value), *value)))
    return gguf_file(pairs, list(there.values()))


def write(
    path: Path,
    architecture: str = "llama",
    changes: dict[str, Any] | None = None,
    there: dict[str, Packed] | None = None,
) -> Path:
    """Write a model file; by default all Q8_0, without biases."""
    path.write_bytes(packed(architecture, changes or {}, tensors() if there is None else there))
    return path
