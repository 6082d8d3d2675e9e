"""Reference and second of dyadic-q16 side by side: the same stages, or the same refusal."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpu_ref import dyadic_q16 as reference
from cpu_ref import errors
from cpu_ref.second import dyadic_q16 as second
from cpu_ref.second import errors as second_errors

Values = tuple[tuple[int, ...], list[int]]
Refusal = tuple[str, str]


def refusal(work: Callable[[], Any]) -> Any:
    """What `work` gives, or the name and message of its refusal."""
    try:
        return work()
    except (errors.Refused, second_errors.Refused) as e:
        assert "\n" not in str(e)
        return type(e).__name__, str(e)


def first_stages(path: Path, tokens: Sequence[int]) -> Any:
    """Stages of the exact reference by name, or its refusal."""
    return refusal(lambda: {n: (s, v) for n, s, v in reference.run(reference.load(str(path)), tokens)})


def second_stages(path: Path, tokens: Sequence[int]) -> Any:
    """Stages of the second implementation by name, or its refusal."""
    return refusal(
        lambda: {n: (v.shape, v.reshape(-1).tolist()) for n, v in second.run(second.load(str(path)), tokens)}
    )


def stages(path: Path, tokens: Sequence[int]) -> Any:
    """What both give, alike."""
    first, other = first_stages(path, tokens), second_stages(path, tokens)
    if isinstance(first, dict) and isinstance(other, dict):
        assert list(first) == list(other)
        wrong = [name for name in first if first[name] != other[name]]
        assert wrong == []
    else:
        assert first == other
    return first


def array(values: Sequence[Any]) -> Any:
    """int64, for the second."""
    return np.array(values, np.int64)
