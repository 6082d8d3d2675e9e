"""Cases: what is computed, on which inputs, and why. One string is id, selector, expectation key and anchor."""

import functools
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import rfc8785

import cpu_ref
from harness.errors import UsageError
from harness.inputs import GENERATOR
from harness.text import near


class Case(msgspec.Struct, frozen=True):
    """Kernel, shape, data distribution and seed. Inputs are a pure function of the id.

    `shape` holds the named dimensions in order, `extra` what only some cases have (model, tensor).
    `reason` says why the case exists; it is no part of the identity.
    """

    kernel: str
    shape: tuple[tuple[str, int], ...]
    dist: str
    seed: int
    extra: tuple[tuple[str, str], ...] = ()
    reason: str = ""

    @property
    def id(self) -> str:
        """`gemm_i32;m=64;n=768;k=768;dist=full;seed=7`."""
        parts = [self.kernel, *(f"{n}={v}" for n, v in self.shape), f"dist={self.dist}", f"seed={self.seed}"]
        return ";".join(parts + [f"{n}={v}" for n, v in self.extra])

    @property
    def dims(self) -> dict[str, int]:
        """The shape by name."""
        return dict(self.shape)

    @property
    def model(self) -> str | None:
        """The model that the case reads its weights from, if any."""
        return dict(self.extra).get("model")

    @property
    def version(self) -> str:
        """SHA-256 over parameters, generator version and reference version: only equal versions compare.

        Of a probe also over its operations and rows, which no number stands for; of a whole pass over profile, model and tokens.
        """
        body = {"case": self.id, "generator": GENERATOR, "reference": cpu_ref.VERSION.get(self.kernel, "none")}
        body |= _also(self)
        return hashlib.sha256(rfc8785.dumps(body)).hexdigest()


@functools.cache
def _also(case: Case) -> dict[str, str]:
    """What a case's version is over beside its id: of operations by rows, a SHA-256 over the operations' names and the rows."""
    from harness.kernels import KERNELS, WHOLE  # the catalogue imports this module

    if case.kernel in WHOLE:
        from harness.families.whole import identity

        return identity(case)
    kernel = next((k for k in KERNELS if k.name == case.kernel), None)
    if kernel is None or kernel.probe is None or not kernel.probe.operations:
        return {}
    digest = hashlib.sha256(rfc8785.dumps(list(kernel.probe.operations)))
    for tensor in kernel.generate(case).values():
        digest.update(tensor.tobytes())
    return {"rows": digest.hexdigest()}


class RunKey(msgspec.Struct, frozen=True):
    """One case under one schedule and variant: the unit of verdicts, expectations and repeat commands."""

    case: str
    schedule: str
    variant: str

    def __str__(self) -> str:
        return f"{self.case};schedule={self.schedule};variant={self.variant}"


def parse_case(text: str) -> Case:
    """The case that an id names (any well-formed id, in a preset or not); raises UsageError."""
    kernel, *fields = text.split(";")
    values: dict[str, str] = {}
    for field in fields:
        name, eq, value = field.partition("=")
        if not eq or not name or not value or name in values:
            raise UsageError(f"case {text!r}: {field!r} is not name=value, or stands twice; `samebits cases` lists ids")
        values[name] = value
    from harness.kernels import base  # the catalogue imports this module

    entry = base(kernel)
    try:
        shape = tuple((n, int(values.pop(n))) for n in entry.shape)
        dist, seed = values.pop("dist"), int(values.pop("seed"))
    except KeyError as e:
        raise UsageError(f"case {text!r}: {e.args[0]}= is missing; `samebits cases` lists ids") from None
    except ValueError:
        raise UsageError(f"case {text!r}: dimensions and seed are whole numbers") from None
    if dist not in entry.distributions:
        there = f"{kernel} has {', '.join(entry.distributions)}{near(dist, entry.distributions)}"
        raise UsageError(f"case {text!r}: no distribution {dist!r}; {there}")
    case = Case(kernel, shape, dist, seed, tuple(values.items()))
    if any(v < 1 for _, v in shape) or seed < 0:
        raise UsageError(f"case {text!r}: each dimension is 1 or more, the seed 0 or more")
    if case.id != text:
        raise UsageError(f"case {text!r}: not in canonical form; that is {case.id}")
    entry.check(case)
    return case


def select(cases: Sequence[Case], selectors: Iterable[str]) -> list[Case]:
    """Cases matched by any selector (a whole id, or a prefix ending in `*`), in their order.

    A selector that matches nothing, and is no well-formed id of its own, is a UsageError.
    """
    wanted: dict[str, Case] = {}
    for selector in selectors:
        if selector.endswith("*"):
            found = [c for c in cases if c.id.startswith(selector[:-1])]
        else:
            found = [c for c in cases if c.id == selector] or [parse_case(selector)]
        if not found:
            meant = near(selector[:-1].partition(";")[0], {case.kernel for case in cases})
            raise UsageError(f"no case matches {selector!r}; `samebits cases` lists ids{meant}")
        wanted.update((c.id, c) for c in found)
    return list(wanted.values())
