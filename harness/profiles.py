"""Profiles: frozen integer programs of a transformer. An entry names what defines one and what computes it.

The document is the law; NAME.json beside it is its canonical form, whose SHA-256 is the `profile_id`. Adding a profile is
an entry here, two modules in `cpu_ref` and its kernels: nothing else of the harness knows one from another.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import rfc8785

from harness.digest import digest_bytes, numpy_type
from harness.errors import InternalError, UsageError
from harness.folders import profiles_root
from harness.kernels import KERNELS
from harness.text import clean, near

REFERENCES = {"reference": "cpu_ref", "second": "cpu_ref.second"}
"""Package of each implementation; a profile's module in it is its name with `_` for `-`."""


@dataclass(frozen=True)
class Profile:
    """One profile.

    `operations`: in the document's order, each with the kernels that compute it. `stages`: of each operation the stages that
    it makes, without the layer. `layer`: the stage whose digest stands for a layer. `bare_tables`: table digests are of the
    bytes alone, without the header of common.md. `roots_module`: the module of `cpu_ref` whose `roots()` makes the published
    hashes, if the document defines any.
    """

    name: str
    profile_id: str
    operations: dict[str, tuple[str, ...]]
    stages: dict[str, tuple[str, ...]]
    layer: str
    bare_tables: bool = False
    roots_module: str = ""

    def operation(self, stage: str) -> str | None:
        """The operation that makes `stage`, named with or without its layer; None for a stage that the profile has not."""
        layer, _, rest = stage.partition(".")
        name = rest if layer[:1] == "l" and layer[1:].isdigit() else stage
        return next((operation for operation, made in self.stages.items() if name in made), None)

    @property
    def document(self) -> Path:
        """The document that defines it."""
        return profiles_root() / f"{self.name}.md"

    @property
    def form(self) -> Path:
        """Its canonical form."""
        return profiles_root() / f"{self.name}.json"

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The canonical form as an object; InternalError where the file is damaged."""
        try:
            read: dict[str, Any] = json.loads(self.form.read_bytes())
        except (OSError, ValueError) as e:
            raise InternalError(f"{self.form.name} cannot be read: {clean(str(e))}; install samebits again") from e
        return read

    @property
    def tables(self) -> dict[str, str]:
        """The digest of each table, by the canonical form."""
        tables = self.canonical["tables"].items()
        return {name: entry["digest"] if isinstance(entry, dict) else entry for name, entry in tables}

    def module(self, implementation: str) -> ModuleType:
        """What computes it: `reference` or `second`. Imported when asked for; ImportError where it is not there."""
        return import_module(f"{REFERENCES[implementation]}.{self.name.replace('-', '_')}")

    def roots(self) -> dict[str, str]:
        """The published hashes, made anew, in hex; UsageError where the document defines none."""
        if not self.roots_module:
            raise UsageError(f"profile {self.name} defines no published hashes")
        made: dict[str, str] = import_module(f"cpu_ref.{self.roots_module}").roots()
        return made

    def table_digest(self, element: str, entries: list[int]) -> str:
        """The digest of a table as its document defines it; OverflowError where an entry leaves the element type."""
        width, signed = numpy_type(element).itemsize, element[0] == "i"
        data = b"".join(entry.to_bytes(width, "little", signed=signed) for entry in entries)
        return hashlib.sha256(data).hexdigest() if self.bare_tables else digest_bytes(element, [len(entries)], data)

    def plain(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "name": self.name,
            "profile_id": self.profile_id,
            "document": self.document.name,
            "canonical": self.canonical,
            "tables": self.tables,
            "operations": {op: list(kernels) for op, kernels in self.operations.items()},
            "implementations": {
                name: f"{package}.{self.name.replace('-', '_')}" for name, package in REFERENCES.items()
            },
        }


PROFILES = {
    p.name: p
    for p in (
        Profile(
            name="dyadic-q16",
            profile_id="b812a7b9223e17876117b145b1a4617cf3ec0eebcd6342dbf83cf23321c8a3ef",
            operations={
                "embedding": ("embedding_q8_0", "embedding_q4_1", "embedding_q4_0"),
                "linear": ("linear_q8_0", "linear_q4_1", "linear_q4_0"),
                "rmsnorm": ("rmsnorm",),
                "rope": ("rope",),
                "scores": ("scores",),
                "softmax": ("softmax",),
                "mix": ("mix",),
                "silu": ("gate",),
                "gate": ("gate",),
                "residual": ("residual",),
                "greedy": ("argmax",),
            },
            stages={
                "embedding": ("embed",),
                "linear": ("q", "k", "v", "attn_out", "gate", "up", "down", "logits"),
                "rmsnorm": ("attn_norm", "ffn_norm", "hidden"),
                "rope": ("q_rope", "k_rope"),
                "scores": ("scores",),
                "softmax": ("softmax",),
                "mix": ("mix",),
                "silu": ("silu",),
                "gate": ("act",),
                "residual": ("x",),
                "greedy": ("greedy",),
            },
            layer="x",
        ),
        Profile(
            name="nel-mini-w8a8",
            profile_id="de3312c6b6eb5e6c714459ccbc2f557be6d47a8b543d40ed10e00ccbb48e08f6",
            operations={
                "embedding": ("nel_embedding",),
                "matmul": ("nel_matmul",),
                "requant": ("nel_requant",),
                "rmsnorm": ("nel_rmsnorm",),
                "rope": ("nel_rope",),
                "scores": ("nel_scores",),
                "softmax": ("nel_softmax",),
                "mix": ("nel_mix",),
                "act": ("nel_act",),
                "residual": ("nel_residual",),
                "greedy": ("nel_argmax",),
            },
            stages={
                "embedding": ("embed",),
                "matmul": ("qkv.acc", "out.acc", "gate.acc", "up.acc", "down.acc", "logits"),
                "requant": ("qkv", "pv", "out", "gate", "up", "down"),
                "rmsnorm": ("rms1", "rms2", "hidden"),
                "rope": ("rope",),
                "scores": ("scores",),
                "softmax": ("softmax",),
                "mix": ("pv.acc",),
                "act": ("act",),
                "residual": ("res1", "res2"),
                "greedy": ("greedy",),
            },
            layer="res2",
            bare_tables=True,
            roots_module="nel_mini_roots",
        ),
    )
}
"""The profiles by name."""


def find(name: str) -> Profile:
    """The profile of that name; raises UsageError."""
    if name not in PROFILES:
        raise UsageError(f"unknown profile {name!r}; there are {', '.join(PROFILES)}{near(name, PROFILES)}")
    return PROFILES[name]


@dataclass(frozen=True)
class Check:
    """One thing that `verify` looked at; `fault` is empty where it is as committed."""

    what: str
    fault: str = ""


def verify(profile: Profile) -> Iterator[Check]:
    """Every claim of an entry, looked up or made anew: form, id, document, tables by both implementations, kernels."""
    raw = profile.form.read_bytes() if profile.form.is_file() else b""
    fault = _form_fault(raw)
    yield Check(f"{profile.form.name} is a canonical form (RFC 8785)", fault)
    if fault:
        return
    yield Check("profile_id is its SHA-256", _difference(hashlib.sha256(raw).hexdigest(), profile.profile_id))
    yield Check("it names the profile", _difference(profile.canonical.get("name"), profile.name))
    text = profile.document.read_text("utf-8") if profile.document.is_file() else ""
    yield Check(f"{profile.document.name} prints the profile_id", "" if profile.profile_id in text else "it does not")
    for implementation in REFERENCES:
        yield from _verify_tables(profile, implementation, text)
    known = {kernel.name for kernel in KERNELS}
    for op, kernels in profile.operations.items():
        for kernel in kernels:
            yield Check(f"kernel {kernel} of {op} exists", "" if kernel in known else "it does not")


def _verify_tables(profile: Profile, implementation: str, text: str) -> Iterator[Check]:
    what = f"tables by the {implementation}"
    try:
        module = profile.module(implementation)
        made: dict[str, tuple[str, list[int]]] = module.tables()  # refuses an entry near a tie
    except Exception as e:
        yield Check(what, f"{type(e).__name__}: {clean(str(e))}")
        return
    yield Check(f"{what}: the list is the form's", _difference(sorted(made), sorted(profile.tables)))
    yield Check(f"{what}: committed digests are the form's", _difference(module.TABLE_DIGESTS, profile.tables))
    for name in sorted(made.keys() & profile.tables.keys()):
        element, entries = made[name]
        fault = _difference(profile.table_digest(element, entries), profile.tables[name])
        if not fault and profile.tables[name] not in text:
            fault = f"{profile.document.name} does not print {profile.tables[name]}"
        yield Check(f"{what}: {name}, {element}[{len(entries)}]", fault)


def _form_fault(raw: bytes) -> str:
    def refuse(number: str) -> Any:
        raise ValueError(f"the number {number} is not written as a string")

    try:
        form = json.loads(raw, parse_int=refuse, parse_float=refuse, parse_constant=refuse)
        return "" if rfc8785.dumps(form) == raw else "its bytes are not those of RFC 8785"
    except ValueError as e:
        return clean(str(e))


def _difference(found: object, wanted: object) -> str:
    return "" if found == wanted else f"{found}, not {wanted}"
