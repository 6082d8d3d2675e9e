"""Profiles as entries: what `verify` looks at, each spoiled once, and the commands."""

import json
from dataclasses import replace
from functools import cache

import pytest
from command import samebits

from cpu_ref import dyadic_q16
from cpu_ref.errors import TableRefused
from cpu_ref.second import dyadic_q16 as second
from harness import profiles
from harness.profiles import PROFILES, find

NAMES = sorted(PROFILES)


def faults(profile):
    return [f"{check.what}: {check.fault}" for check in profiles.verify(profile) if check.fault]


@pytest.mark.parametrize("name", NAMES)
def test_each_profile_is_as_committed(name):
    """Form, id, document, both implementations' tables, kernels; nothing differs."""
    profile = find(name)
    checks = list(profiles.verify(profile))
    assert [check for check in checks if check.fault] == []
    assert len(checks) == 4 + 2 * (2 + len(profile.tables)) + sum(map(len, profile.operations.values()))


@cache
def made(module):
    """Tables take seconds; what is spoiled here is never how they are made."""
    return module.tables()


@pytest.fixture
def quick(monkeypatch):
    """Both implementations give tables that were made before."""
    for module in (dyadic_q16, second):
        tables = made(module)
        monkeypatch.setattr(module, "tables", lambda tables=tables: tables)


@pytest.fixture
def spoiled(tmp_path, monkeypatch, quick):
    """A copy of the profiles' folder; gives a function that changes a file there by bytes, and verifies dyadic-q16."""
    for path in profiles.profiles_root().iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(profiles, "profiles_root", lambda: tmp_path)

    def change(suffix, old, new):
        path = tmp_path / f"dyadic-q16{suffix}"
        raw = path.read_bytes()
        assert old in raw
        path.write_bytes(raw.replace(old, new))
        return faults(replace(find("dyadic-q16")))

    return change


@pytest.mark.parametrize(
    ("suffix", "old", "new", "fault"),
    [
        (".json", b'"name":"dyadic-q16"', b'"name": "dyadic-q16"', "its bytes are not those of RFC 8785"),
        (".json", b'"version":"1"', b'"version":1', "the number 1 is not written as a string"),
        (".json", b'"version":"1"', b'"version":1.5', "the number 1.5 is not written as a string"),
        (".json", b"{", b"(", "Expecting value"),
        (".json", b'"version":"1"', b'"version":"2"', "profile_id is its SHA-256"),
        (".json", b'"name":"dyadic-q16"', b'"name":"dyadic-q17"', "it names the profile: dyadic-q17, not dyadic-q16"),
        (".json", b"763620a4", b"763620a5", "tables by the reference: E1, i64[5632]: 763620a4"),
        (".json", b"763620a4", b"763620a5", "tables by the second: E1, i64[5632]: 763620a4"),
        (".json", b"763620a4", b"763620a5", "tables by the second: committed digests are the form's"),
        (".json", b'"E2":{', b'"E9":{', "the list is the form's: ['E1', 'E2', 'G'], not ['E1', 'E9', 'G']"),
        (".md", b"b812a7b9", b"b812a7b8", "dyadic-q16.md prints the profile_id: it does not"),
        (".md", b"763620a4", b"763620a5", "E1, i64[5632]: dyadic-q16.md does not print 763620a4"),
    ],
)
def test_verify_fails_when_a_committed_file_differs(spoiled, suffix, old, new, fault):
    """Spacing, numbers that are no strings, no JSON, another id, name, digest or list of tables; the document too."""
    assert any(fault in found for found in spoiled(suffix, old, new))


def test_verify_fails_without_the_files(spoiled, tmp_path):
    """Form and document taken away."""
    (tmp_path / "dyadic-q16.json").unlink()
    assert faults(find("dyadic-q16"))[0].startswith("dyadic-q16.json is a canonical form (RFC 8785): ")


def test_verify_fails_when_an_entry_differs(quick):
    """Another profile_id, a kernel that does not exist."""
    profile = find("dyadic-q16")
    assert faults(replace(profile, profile_id="0" * 64))[0].startswith("profile_id is its SHA-256: b812a7b9")
    missing = replace(profile, operations={"linear": ("linear_q8_0", "linear_q9_9")})
    assert faults(missing) == ["kernel linear_q9_9 of linear exists: it does not"]


def test_verify_fails_when_an_implementation_is_missing_or_refuses(quick, monkeypatch):
    """No such module; a table near a tie; digests that are not the form's."""
    other = replace(find("dyadic-q16"), name="no-such-profile")
    with pytest.raises(ImportError):
        other.module("reference")

    def refuse():
        raise TableRefused("G[3]: within 1e-9 of a tie")

    monkeypatch.setattr(dyadic_q16, "TABLE_DIGESTS", {})
    assert any("committed digests are the form's: {}, not" in fault for fault in faults(find("dyadic-q16")))
    monkeypatch.setattr(dyadic_q16, "tables", refuse)
    expected = "tables by the reference: TableRefused: G[3]: within 1e-9 of a tie"
    assert faults(find("dyadic-q16")) == [expected]


def test_the_commands_list_show_and_verify(tmp_path):
    """Text and JSON; exit 0."""
    listed = samebits(tmp_path, "profile", "list")
    assert listed.returncode == 0
    for name in NAMES:
        assert f"{find(name).profile_id}  {name}\n" in listed.stdout
    rows = json.loads(samebits(tmp_path, "profile", "list", "--json").stdout)
    assert rows == [{"name": p.name, "profile_id": p.profile_id} for p in PROFILES.values()]
    shown = json.loads(samebits(tmp_path, "profile", "show", "dyadic-q16", "--json").stdout)
    assert shown["canonical"]["rounding"]["rne"] == "nearest, ties to even"
    assert "linear_q8_0" in shown["operations"]["linear"]
    assert shown["implementations"] == {"reference": "cpu_ref.dyadic_q16", "second": "cpu_ref.second.dyadic_q16"}
    assert "0747e95d" in samebits(tmp_path, "profile", "show", "dyadic-q16").stdout
    verified = samebits(tmp_path, "profile", "verify", "dyadic-q16")
    assert (verified.returncode, verified.stderr, "WRONG" in verified.stdout) == (0, "", False)
    checks = json.loads(samebits(tmp_path, "profile", "verify", "dyadic-q16", "--json").stdout)
    assert all(check["ok"] for check in checks)


@pytest.mark.parametrize("command", ["show", "verify", "roots"])
def test_an_unknown_profile_is_refused_in_one_line(tmp_path, command):
    """Exit 2, with the names there are, and the one that was meant."""
    refused = samebits(tmp_path, "profile", command, "dyadic-q17")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        refused.stderr
        == f"samebits: unknown profile 'dyadic-q17'; there are {', '.join(PROFILES)}; did you mean dyadic-q16?\n"
    )


def test_a_profile_without_published_hashes_says_so(tmp_path):
    """`roots` is for documents that define some."""
    refused = samebits(tmp_path, "profile", "roots", "dyadic-q16")
    assert (refused.returncode, refused.stderr) == (2, "samebits: profile dyadic-q16 defines no published hashes\n")
