"""Literal operands: a probe kernel's text with the operands of known rows written into it.

A probe kernel holds `case N: { return EXPRESSION; }  // NAME` for each operation, with operands a, b, c, d. Its variant
`literal` has one such case a row instead, EXPRESSION with that row's words in place of the letters, and takes the
row's number where the base form takes the operation's. So a compiler may compute every result itself, and what differs
from the base form is the compiler's doing, or the translator's before it.

Cases stand in functions of BLOCK each: llvmpipe loses what is nested deeper than 80 conditions (docs/findings.md).
"""

import re
from collections.abc import Sequence

from harness.plans import Row

CASE = re.compile(r" *case (\d+)u: \{ return (.*?); \}  // (\w+)\n", re.S)
"""An operation in a kernel: number, expression, name."""


BLOCK = 32
OPERANDS = "abcd"


def expressions(text: str) -> dict[str, str]:
    """Name -> expression of every operation in a kernel's text, in the order of their numbers."""
    return {name: " ".join(expression.split()) for _, expression, name in CASE.findall(text)}


def with_literals(text: str, rows: Sequence[Row]) -> str:
    """The program of the variant `literal`, made from a probe kernel's `text`."""
    by_number = list(expressions(text).values())
    before, head, tail, after = _parts(text)
    blocks, calls = [], []
    for start in range(0, len(rows), BLOCK):
        name = f"literals_{start // BLOCK}"
        cases = [_filled(by_number[op], words) for op, words in rows[start : start + BLOCK]]
        blocks.append(_function(head, tail, name, f"op & {BLOCK - 1}u", cases))
        calls.append(f"{name}(op, {', '.join(OPERANDS)})")
    dispatch = _function(head, tail, "operation", f"op / {BLOCK}u", calls)
    return before + "\n".join([*blocks, dispatch]) + after.replace("  ops[row] | ", "  (params[1] + row) | ")


def _parts(text: str) -> tuple[str, str, str, str]:
    """What stands before `operation`, its head up to the first case, its tail after the last one, and what follows it."""
    cases = list(CASE.finditer(text))
    start = text.rindex("\n", 0, text.index(" operation(")) + 1
    end = text.index("\n}\n", cases[-1].end()) + 3
    return text[:start], text[start : cases[0].start()], text[cases[-1].end() : end], text[end:]


def _function(head: str, tail: str, name: str, chosen_by: str, expressions: Sequence[str]) -> str:
    cases = [f"        case {i}u: {{ return {e}; }}\n" for i, e in enumerate(expressions)]
    head = head.replace(" operation(", f" {name}(").replace("switch (op)", f"switch ({chosen_by})")
    return head + "".join(cases) + tail


def _filled(expression: str, words: Sequence[int]) -> str:
    letters = dict(zip(OPERANDS, words, strict=False))
    return re.sub(r"\b[a-d]\b", lambda m: f"{letters[m[0]] % 2**32:#x}u", expression)
