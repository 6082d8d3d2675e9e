"""`--prompt` and `--chat`: tokens by a file's own vocabulary, its chat template in a sandbox, and what is refused."""

import json
import os
from pathlib import Path

import pytest
import tiny_models as tiny
from command import samebits
from patience import MINUTES

from harness import chat, gguf_read, models, vocabulary
from harness.errors import InputRefused, UsageError

LICENCE = Path(__file__).parent.parent / "LICENSE"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Templates have minutes."""
    monkeypatch.setattr(chat, "SECONDS", MINUTES)


@pytest.fixture
def model(tmp_path):
    """Writes a tiny model with a vocabulary, changed as told."""

    def write(pre="smollm", **changes):
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return tiny.write(tmp_path / "tiny.gguf", "llama", tiny.vocabulary(pre) | named)

    return write


def read(path):
    return vocabulary.read(gguf_read.opened(path))


def spelled(path, text):
    """The tokens of a text, as the file writes them."""
    found = read(path)
    return [found.tokens[i] for i in found.encode(text)]


def test_merges_make_the_tokens_of_a_text_and_back(model):
    """Merged words, single bytes, a line end; nothing is lost."""
    path, text = model(), "hello world\n12!"
    assert spelled(path, text) == ["hello", "\u0120wor", "l", "d", "\u010a", "1", "2", "!"]
    assert read(path).decode(read(path).encode(text)) == text


def test_a_control_token_is_found_in_the_text_and_an_unused_one_is_not(model):
    """`<|user|>` is one token; `[PAD0]` is text, whose bytes this vocabulary cannot spell."""
    assert spelled(model(), "<|user|>hello<|end|>") == ["<|user|>", "hello", "<|end|>"]
    with pytest.raises(UsageError, match=r"tiny\.gguf: its vocabulary cannot spell '\['"):
        read(model()).encode("he[PAD0]")


@pytest.mark.parametrize(
    ("text", "place"), [("hexe", "x"), ("x", "x"), ("hello\u00e9", "\u00e9"), ("he\x00", r"\\x00")]
)
def test_what_a_vocabulary_cannot_spell_is_refused_and_never_left_out(model, text, place):
    """The library leaves such bytes out in silence."""
    with pytest.raises(UsageError, match=f"cannot spell '{place}'; change the text"):
        read(model()).encode(text)


SPLITS = {
    "smollm": ("I'll  see 123 a\n\nb?!", ["I", "'ll", " ", " see", " ", "1", "2", "3", " a", "\n", "\n", "b", "?!"]),
    "qwen2": ("I'LL  see 123 a\n\nb?!\n", ["I", "'LL", " ", " see", " ", "1", "2", "3", " a", "\n\n", "b", "?!\n"]),
}


@pytest.mark.parametrize("pre", SPLITS)
def test_a_text_is_split_before_merges_as_the_kind_says(model, pre):
    """Digits one by one in both; line ends, capitals and what follows punctuation differ."""
    text, parts = SPLITS[pre]
    split = read(model(pre)).tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert ["".join(text[a:b]) for _, (a, b) in split] == parts


def test_qwen2_composes_characters_first(model):
    """e and a combining acute become one character: its bytes are asked for, not those of e."""
    with pytest.raises(UsageError, match="cannot spell '\u00e9'"):
        read(model("qwen2")).encode("e\u0301")
    with pytest.raises(UsageError, match="cannot spell '\u0301'"):
        read(model("smollm")).encode("e\u0301")


def test_the_first_token_is_put_in_front_where_the_file_wants_it(model):
    """Once."""
    path = model(tokenizer__ggml__add_bos_token=True)
    assert spelled(path, "hello") == spelled(path, "<|user|>hello") == ["<|user|>", "hello"]


def test_the_chat_template_makes_a_conversation_of_the_prompt(model):
    """Nothing is escaped, and the answer is opened."""
    assert read(model()).conversation("<hello's>") == "<|user|><hello's><|end|>\n<|user|>"


REFUSED = {
    "a kind that is not covered": (
        {"tokenizer__ggml__model": "llama"},
        "vocabulary of kind llama; samebits reads gpt2",
    ),
    "no kind": ({"tokenizer__ggml__model": None}, "vocabulary of kind no kind at all"),
    "an unknown split": ({"tokenizer__ggml__pre": "deepseek\x1b[1m-llm"}, "text is split as deepseek"),
    "no tokens": ({"tokenizer__ggml__tokens": None}, r"tokenizer\.ggml\.tokens is no list of str"),
    "numbers for tokens": ({"tokenizer__ggml__tokens": [1, 2]}, r"tokenizer\.ggml\.tokens is no list of str"),
    "a token twice": ({"tokenizer__ggml__tokens": ["a"] * tiny.VOCABULARY}, "names 39 tokens twice"),
    "too few types": ({"tokenizer__ggml__token_type": [1, 1]}, "40 tokens, but 2 token types"),
    "a merge of nothing": ({"tokenizer__ggml__merges": ["h e", "h x"]}, "merge 1, 'h x', joins no tokens"),
    "a merge of one": ({"tokenizer__ggml__merges": ["he"]}, "merge 0, 'he', joins no tokens"),
    "a first token that is none": ({"tokenizer__ggml__bos_token_id": 40}, "bos_token_id is 40, no id of its 40 tokens"),
    "bytes that are no UTF-8": ({"tokenizer__ggml__tokens": [b"\xff"]}, r"tokenizer\.ggml\.tokens is no UTF-8"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_vocabulary_that_is_not_covered_or_damaged_is_refused(model, fault):
    """One line with the file's name."""
    changes, message = REFUSED[fault]
    with pytest.raises(InputRefused, match=message) as caught:
        read(model(**changes))
    assert str(caught.value).startswith("tiny.gguf: ") and "\x1b" not in str(caught.value)


TEMPLATES = {
    "no template": (None, "it has no chat template; use --prompt without --chat"),
    "a fault of its own": (
        "{{ raise_exception('no system role') }}",
        "its chat template fails: no system role; use --prompt without --chat",
    ),
    "bad syntax": ("{% for %}", "its chat template fails: Expected an expression"),
    "a way out of the sandbox": (
        "{{ ''.__class__.__mro__ }}",
        "fails: access to attribute '__class__' of 'str' object is unsafe",
    ),
    "too long": ("x" * 70_000, "its chat template has 70000 characters, at most 65536"),
    "a line that is too long": ("{% for i in range(60000) %}{{ 'x' * 60 }}{% endfor %}", "more than 1048576 bytes"),
}


@pytest.mark.parametrize("fault", TEMPLATES)
def test_a_template_that_gives_no_text_is_refused(model, fault):
    """One line."""
    template, message = TEMPLATES[fault]
    with pytest.raises(InputRefused, match=message):
        read(model(tokenizer__chat_template=template)).conversation("hello")


def test_a_template_without_end_is_ended(model, monkeypatch):
    """By the budget of seconds."""
    monkeypatch.setattr(chat, "SECONDS", 2.0)
    loops = "".join(f"{{% for {v} in range(99999) %}}" for v in "abc") + "{% endfor %}" * 3
    with pytest.raises(InputRefused, match="gives no text: no answer for 2 s"):
        read(model(tokenizer__chat_template=loops)).conversation("hello")


def test_generate_takes_a_prompt_and_prints_text(model, tmp_path):
    """The same ids as --tokens; JSON has ids and text, the terminal both."""
    path = model()
    common = ["generate", path, "--profile", "dyadic-q16", "-n", "3", "--device", "second"]
    asked = samebits(tmp_path, *common, "--prompt", "hello", "--chat", "--json")
    assert asked.returncode == 0, asked.stderr
    result = json.loads(asked.stdout)
    tokens = [1, tiny.SPELLED.index("hello"), 0, tiny.SPELLED.index("\u010a"), 1]
    assert result["tokens"] == tokens
    (row,) = result["devices"]
    assert row["text"] == read(path).decode(row["greedy"])
    plain = samebits(tmp_path, *common, "--tokens", ",".join(map(str, tokens)))
    assert f"  {','.join(map(str, row['greedy']))}\n  {row['text']!r}\n" in plain.stdout


BAD_PROMPTS = {
    "both": (["--prompt", "he", "--tokens", "1"], "--tokens and --prompt do not go together"),
    "neither": ([], "nothing to run on: give --tokens 1,2,3 or --prompt TEXT"),
    "empty": (["--prompt", ""], "--prompt is empty"),
    "chat without a prompt": (["--tokens", "1", "--chat"], "--chat is for a --prompt"),
    "no UTF-8": (["--prompt", os.fsdecode(b"he\xff")], "--prompt is no UTF-8 at character 2"),
    "not to be spelled": (["--prompt", "x"], "its vocabulary cannot spell 'x'"),
    "past the context": (["--prompt", "l" * 50], "25 tokens: this model's context holds 24"),
}


@pytest.mark.parametrize("fault", BAD_PROMPTS)
def test_a_bad_prompt_gives_one_line_and_exit_2(model, tmp_path, fault):
    """One fault each."""
    arguments, message = BAD_PROMPTS[fault]
    done = samebits(tmp_path, "forward", model(), "--profile", "dyadic-q16", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("samebits: ") and message in done.stderr


def test_a_made_up_model_takes_no_prompt(tmp_path):
    """nel-mini has ids only."""
    done = samebits(tmp_path, "forward", "nel-mini:stress", "--profile", "nel-mini-w8a8", "--prompt", "he")
    assert done.returncode == 2 and "nel-mini:stress has no vocabulary; give --tokens" in done.stderr


def test_the_released_model_has_known_tokens():
    """Where SAMEBITS_MODELS holds SmolLM2: the profile's vector, the licence there and back, the chat template."""
    if not os.environ.get("SAMEBITS_MODELS") or not models.location("smollm2-135m-q4_1").is_file():
        pytest.skip("SAMEBITS_MODELS holds no model")
    found = read(models.verified("smollm2-135m-q4_1"))
    assert found.encode("The study of integer") == [504, 1108, 282, 15328]
    assert found.decode([29, 282, 260, 20270]) == "- of the arithmetic"
    text = LICENCE.read_text()
    assert found.decode(found.encode(text)) == text
    start = text.index("ial revisions, annotations")
    assert found.encode(text[start:])[:6] == [409, 24989, 28, 28219, 28, 10963]
    said = found.conversation("Hello")
    assert said.startswith("<|im_start|>system\n") and said.endswith("Hello<|im_end|>\n<|im_start|>assistant\n")
    assert found.encode(said)[:3] == [1, 9690, 198]
