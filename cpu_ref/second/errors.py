"""Refusals of the second implementation. Names and wording follow the protocol, so that answers compare."""

from collections.abc import Sequence


class Refused(Exception):
    """Base of all refusals; the class's name is the answer's `error`."""


class RequestRefused(Refused):
    """The request cannot be done as written."""


class TokensRefused(Refused):
    """No token, one outside the vocabulary, or more than the context holds."""


class ModelRefused(Refused):
    """The model needs other arithmetic than the profile's, or lacks a number or a tensor."""


class TableRefused(Refused):
    """A table entry that cannot be rounded safely, or a table with another digest."""


class GgufRefused(Refused):
    """The model file cannot be read."""


class WeightsRefused(Refused):
    """The weights are no exact numbers, or not those that the case wants."""


class RangeContract(Refused):
    """A value outside its contract, at an element, with its true value."""

    def __init__(self, op: str, element: Sequence[int], value: int, bound: int | str) -> None:
        place = ", ".join(str(int(e)) for e in element)
        rule = f"its magnitude must stay below 2^{bound}" if isinstance(bound, int) else bound
        super().__init__(f"{op}[{place}] = {value}: {rule}")
