"""Refusals of the second implementation. Names and wording follow the protocol, so that answers compare."""

from collections.abc import Sequence


class Refused(Exception):
    """Base of all refusals; the class's name is the answer's `error`."""


class RequestRefused(Refused):
    """The request cannot be done as written."""


class GgufRefused(Refused):
    """The model file cannot be read."""


class WeightsRefused(Refused):
    """The weights are no exact numbers, or not those that the case wants."""


class RangeContract(Refused):
    """A value outside its contract, at an element, with its true value."""

    def __init__(self, op: str, element: Sequence[int], value: int, bound: int) -> None:
        place = ", ".join(str(int(e)) for e in element)
        super().__init__(f"{op}[{place}] = {value}: its magnitude must stay below 2^{bound}")
