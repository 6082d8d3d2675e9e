"""Profile nel-mini-w8a8: reference and second against the document, the published vector and each other."""

import json
import random
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from cpu_ref import nel_mini_data, nel_mini_roots
from cpu_ref import nel_mini_w8a8 as first
from cpu_ref.errors import RequestRefused, TableRefused, TokensRefused
from cpu_ref.second import errors as second_errors
from cpu_ref.second import nel_mini_w8a8 as second
from cpu_ref.tables import nearest_tie

DOCUMENTS = Path(__file__).parent.parent / "docs" / "profiles"
SOURCES = ("nel-mini:published", "nel-mini:stress")

PUBLISHED = {
    "lut-root": "66bbff851cd4d233b1c010a7ec14b32c053efe8c7e42f1aa9ed816e90ba21b52",
    "weight-root": "f2a4538c0c6c69d3723454e65a77cbf43af2517e3e5e60f7ff650b6795586ef7",
    "da-weight-root": "cd61c8d59d880984d1422da9d052047002f1fbea0b2192a343215f1c60b17b9f",
    "nel-profile-id": "060ef04656317cfc8d9814eb9454f75a8ba3e85944f7628b98a73e8016dfa962",
    "s-end": "88630fac8db5b0a97e3e6ec2c43cef3a15bd529296ab8361b5f0bddcf848f028",
    "chunk-trace-root": "bbf75ae4485bd93bafb92fb29846a54fb33d47e2919a3260c3069fe0aa189f47",
}
"""tman747/noosphere, protocol/vectors/nel/forward-w8a8-v1.json, but da-weight-root: docs/profiles/nel-mini-w8a8.md."""


def prompt(length, seed=0):
    rng = random.Random(100 * seed + length)
    return [rng.randrange(64) for _ in range(length)]


def stages(module, source, tokens, parts=None):
    """Every stage as name -> array, the input fed in parts of the given lengths and joined."""
    model, cache, found, at = module.load(source), module.Cache(), {}, 0
    for part in parts or [len(tokens)]:
        for name, *rest in module.run(model, tokens[at : at + part], cache):
            block = np.array(rest[-1], np.int64).reshape(rest[0]) if len(rest) == 2 else rest[0]
            if block.ndim == 3:  # scores, softmax: keys that came later are no part of an earlier row
                block = np.pad(block, ((0, 0), (0, 0), (0, len(tokens) - block.shape[2])))
            found.setdefault(name, []).append(block)
        at += part
    return {name: np.concatenate(blocks, axis=1 if blocks[0].ndim == 3 else 0) for name, blocks in found.items()}


def equal(a, b):
    assert list(a) == list(b)
    for name in a:
        assert np.array_equal(a[name], b[name]), name


def test_the_document_and_its_canonical_form_state_the_tables_and_shape_of_the_code():
    """Digests, shape and shifts: the JSON, both implementations, and the text."""
    raw = (DOCUMENTS / "nel-mini-w8a8.json").read_bytes()
    stated, text = json.loads(raw), (DOCUMENTS / "nel-mini-w8a8.md").read_text("utf-8")
    assert f"`profile_id` {sha256(raw).hexdigest()}" in text
    assert stated["tables"] == first.TABLE_DIGESTS == second.TABLE_DIGESTS
    assert [
        int(stated["shape"][n]) for n in "hidden layers heads kv_heads head_width mlp vocabulary context".split()
    ] == [*nel_mini_data.SHAPE]
    shifts = {name: int(k) for name, k in stated["requant"].items()}
    assert {name: shifts[name] for name in first.REQUANT} == first.REQUANT
    assert (shifts["act"], shifts["rmsnorm"], shifts["scores"]) == nel_mini_roots.SHIFTS
    assert nel_mini_roots.SHIFTS == (first.ACT_SHIFT, first.RMSNORM_SHIFT, first.SCORE_SHIFT)


def test_both_generators_make_the_stated_tables():
    """mpmath and enclosures by FLINT's balls agree, and each digest is the document's."""
    made = first.tables()
    assert made == second.tables()
    assert nel_mini_data.checked_tables()["COS"][:4] == [32767] * 4
    assert second.table("COS").tolist() == made["COS"][1]


@pytest.mark.parametrize(("name", "distance"), [("EXP2", 6.3e-3), ("SILU", 5.5e-3), ("COS", 1.3e-4), ("SIN", 7.9e-4)])
def test_entries_lie_as_far_from_a_tie_as_the_document_says(name, distance):
    """The nearest entry of each table, to the two digits that are printed."""
    assert float(f"{nearest_tie(nel_mini_data.exact_tables()[name]):.1e}") == distance


@pytest.mark.parametrize("name", first.TABLE_DIGESTS)
def test_a_table_that_differs_in_one_bit_is_refused_by_both(name, monkeypatch):
    """The digest is checked whenever tables are made for use."""
    wrong = first.tables()
    wrong[name][1][7] ^= 1
    monkeypatch.setattr(nel_mini_data, "tables", lambda: wrong)
    with pytest.raises(TableRefused, match=f"{name}: SHA-256"):
        nel_mini_data.checked_tables.__wrapped__()
    monkeypatch.setattr(second, "_TABLES", {})
    monkeypatch.setattr(second, "tables", lambda: wrong)
    with pytest.raises(second_errors.TableRefused, match=f"{name}: SHA-256"):
        second.table(name)


def test_the_published_hashes_and_tokens_come_out():
    """The vector that others published: eight tokens after 1, 2, 3, 4, twelve states, every hash."""
    found = nel_mini_roots.roots()
    assert {name: found[name] for name in PUBLISHED} == PUBLISHED
    assert found["S_11"] == found["s-end"] and "S_12" not in found
    model = first.load("nel-mini:published")
    assert first.generate(model, [1, 2, 3, 4], 8) == [22, 51, 7, 23, 23, 23, 23, 23]


def test_every_payload_is_part_of_the_trace():
    """Each bit of a stage at a position changes that position's trace, in the set where every layer acts."""
    model, job = first.load("nel-mini:stress"), bytes(32)
    rows = {name: values for name, _, values in first.run(model, [9])}
    right = nel_mini_roots.trace(rows, job, 0, True)
    for name, values in rows.items():
        if name in ("embed", "greedy"):
            continue
        changed = {**rows, name: [values[0] ^ 1, *values[1:]]}
        assert nel_mini_roots.trace(changed, job, 0, True) != right, name
    assert nel_mini_roots.trace(rows, job, 0, False) != right
    assert nel_mini_roots.trace({**rows, "embed": []}, job, 0, True) == right  # no payload holds it


def test_a_merkle_tree_of_one_leaf_or_none_has_its_own_rule():
    """One leaf is its own root, none gives zeros, three are padded to four."""
    leaf, zero = bytes(range(32)), bytes(32)
    assert nel_mini_roots.merkle([leaf]) == leaf
    assert nel_mini_roots.merkle([]) == zero
    assert nel_mini_roots.merkle([leaf] * 3) == nel_mini_roots.merkle([leaf, leaf, leaf, zero])


@pytest.mark.parametrize("source", SOURCES)
def test_both_implementations_draw_the_same_weights(source):
    """All 22,688 of them."""
    a, b = first.load(source), second.load(source)
    assert {name: np.ravel(v).tolist() for name, v in b.tensors.items()} == a.weights
    assert sum(map(len, a.weights.values())) == 22_688


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 33, 64])
def test_reference_and_second_agree_on_every_stage(source, length):
    """Prefill of prompts of 1 to 64 tokens: 44 stages, their names, order, shapes and values."""
    found = stages(first, source, prompt(length))
    equal(found, stages(second, source, prompt(length)))
    assert len(found) == 44
    assert found["l1.scores"].shape == (4, length, length) and found["greedy"].shape == (length,)


@pytest.mark.parametrize("module", [first, second])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("length", "parts"), [(64, [1] * 64), (9, [1] * 9), (16, [5, 1, 10]), (3, [2, 1])])
def test_decoding_and_any_split_give_the_bits_of_prefill(module, source, length, parts):
    """A row depends on no later token: token by token over a cache, or in parts."""
    tokens = prompt(length, 1)
    equal(stages(module, source, tokens), stages(module, source, tokens, parts))


def test_the_stress_set_reads_what_the_published_one_does_not():
    """Every layer acts, the projections reach both ends of i8, and softmax is not uniform."""
    found = stages(first, "nel-mini:stress", prompt(64))
    for layer in range(2):
        assert found[f"l{layer}.out"].any() and found[f"l{layer}.down"].any()
        assert found[f"l{layer}.res2"].min() == -128 and found[f"l{layer}.res2"].max() == 127
        p = found[f"l{layer}.softmax"]
        assert len(np.unique(p[:, -1])) > 8
    quiet = stages(first, "nel-mini:published", prompt(64))
    assert not quiet["l0.down"].any() and not quiet["l1.out"].any()


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([], "no tokens; give at least one"),
        ([1, 64], "token 1 is 64; the vocabulary of nel-mini-w8a8 is 0 to 63"),
        ([-1], "token 0 is -1; the vocabulary of nel-mini-w8a8 is 0 to 63"),
        ([0] * 65, "65 tokens; the context of nel-mini-w8a8 is 64"),
    ],
)
def test_inputs_outside_the_profile_are_refused_in_the_same_words(tokens, said):
    """Before anything is computed, by both."""
    with pytest.raises(TokensRefused) as a:
        next(first.run(first.load("nel-mini:stress"), tokens))
    with pytest.raises(second_errors.TokensRefused) as b:
        next(second.run(second.load("nel-mini:stress"), tokens))
    assert str(a.value) == str(b.value) == said


def test_a_full_cache_takes_no_token_more():
    """64 positions are cached; the 65th is refused, and the cache keeps its length."""
    for module, refused in ((first, TokensRefused), (second, second_errors.TokensRefused)):
        model, cache = module.load("nel-mini:published"), module.Cache()
        assert len(list(module.run(model, prompt(64), cache))) == 44
        with pytest.raises(refused, match="65 tokens; the context of nel-mini-w8a8 is 64"):
            next(module.run(model, [0], cache))
        assert len(cache) == 64


def test_a_generation_that_passes_the_context_is_refused():
    """Prompt and new tokens together: 64 are possible, 65 are not."""
    model = first.load("nel-mini:published")
    assert len(first.generate(model, prompt(60), 4)) == 4
    with pytest.raises(TokensRefused, match="65 tokens; the context"):
        first.generate(model, prompt(60), 5)


@pytest.mark.parametrize("module", [first, second])
def test_an_unknown_weight_set_is_refused(module):
    """Its name is told, and which there are."""
    with pytest.raises(
        (RequestRefused, second_errors.RequestRefused), match=r"no model 'nel-mini:x'; there are .*stress"
    ):
        module.load("nel-mini:x")
