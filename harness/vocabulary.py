"""Text to token ids and back, by the vocabulary and the merges that a GGUF file holds, through the tokenizers library.

Byte-level BPE with the splits of PRE, and nothing else: another kind of vocabulary is refused by its name. As in other runners
of such files, the text of a control token (`<|im_start|>`) is that token wherever it stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness import chat
from harness.errors import InputRefused, UsageError
from harness.gguf_read import Opened
from harness.text import clean

PREFIX = "tokenizer.ggml."
CONTROL, USER_DEFINED = 3, 4
"""Token types that are found in a text before it is split."""

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's released tokenizer, which also brings a text into Unicode's form NFC first."""


def _smollm(tokenizer: Any) -> None:
    """Digits one by one, the rest by the pattern of GPT-2."""
    from tokenizers import pre_tokenizers as split

    tokenizer.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def _qwen2(tokenizer: Any) -> None:
    from tokenizers import Regex, normalizers
    from tokenizers import pre_tokenizers as split

    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split.Sequence(
        [
            split.Split(Regex(QWEN2_SPLIT), "isolated"),
            split.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


PRE: dict[str, Callable[[Any], None]] = {"smollm": _smollm, "qwen2": _qwen2}
"""`tokenizer.ggml.pre` -> how a text is split before merges."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file; make it by `read`. `start`: the id that the file wants in front of a text, if any."""

    name: str
    tokens: Sequence[str]
    tokenizer: Any
    start: int | None
    template: str | None
    bos: str
    eos: str

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; UsageError where it holds a byte that no token spells."""
        ids = list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        normalized = self.tokenizer.normalizer.normalize_str(text) if self.tokenizer.normalizer else text
        if (back := self.decode(ids)) != normalized:  # the library leaves out what it cannot spell
            place = next((i for i, (a, b) in enumerate(zip(normalized, back, strict=False)) if a != b), len(back))
            raise UsageError(
                f"{self.name}: its vocabulary cannot spell {normalized[place : place + 1]!r}; change the text"
            )
        if self.start is not None and ids[:1] != [self.start]:
            ids.insert(0, self.start)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def conversation(self, text: str) -> str:
        """`text` as a user's message, by the file's chat template; InputRefused where it has none, or it does not render."""
        if self.template is None:
            raise InputRefused(f"{self.name}: it has no chat template; use --prompt without --chat")
        return chat.render(self.name, self.template, text, self.bos, self.eos)


def read(file: Opened) -> Vocabulary:
    """The vocabulary of a GGUF file; raises InputRefused for a kind that is not covered, or one that is damaged."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    name = file.sound.name
    kind, pre = _named(file, "model"), _named(file, "pre")
    if kind != "gpt2":
        raise InputRefused(f"{name}: vocabulary of kind {kind}; samebits reads gpt2 (byte-level BPE): give --tokens")
    if pre not in PRE:
        raise InputRefused(f"{name}: text is split as {pre}; samebits knows {', '.join(PRE)}: give --tokens")
    tokens, merges = _list(file, "tokens", str), _list(file, "merges", str)
    types = _list(file, "token_type", int)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if len(vocabulary) != len(tokens):
        raise InputRefused(f"{name}: {PREFIX}tokens names {len(tokens) - len(vocabulary)} tokens twice; fetch it again")
    if len(types) != len(tokens):
        raise InputRefused(f"{name}: {len(tokens)} tokens, but {len(types)} token types; fetch it again")
    for i, pair in enumerate(pairs):
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise InputRefused(f"{name}: merge {i}, {clean(repr(merges[i]), 60)}, joins no tokens; fetch it again")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    PRE[pre](tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (CONTROL, USER_DEFINED) and token
        ]
    )
    bos, eos = _id(file, "bos_token_id", len(tokens)), _id(file, "eos_token_id", len(tokens))
    return Vocabulary(
        name,
        tokens,
        tokenizer,
        start=bos if file.value(f"{PREFIX}add_bos_token") is True else None,
        template=_template(file),
        bos=tokens[bos] if bos is not None else "",
        eos=tokens[eos] if eos is not None else "",
    )


def _named(file: Opened, key: str) -> str:
    value = file.value(PREFIX + key)
    return clean(repr(value), 60)[1:-1] if isinstance(value, str) else "no kind at all"


def _list(file: Opened, key: str, kind: type) -> list[Any]:
    value = file.value(PREFIX + key)
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        raise InputRefused(f"{file.sound.name}: {PREFIX}{key} is no list of {kind.__name__}; give --tokens")
    return value


def _id(file: Opened, key: str, count: int) -> int | None:
    value = file.value(PREFIX + key)
    if value is not None and not (type(value) is int and 0 <= value < count):
        raise InputRefused(f"{file.sound.name}: {PREFIX}{key} is {clean(repr(value), 40)}, no id of its {count} tokens")
    return value


def _template(file: Opened) -> str | None:
    value = file.value("tokenizer.chat_template")
    return value if isinstance(value, str) else None
