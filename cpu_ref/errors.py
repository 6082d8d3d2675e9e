"""What the reference refuses, arranged by who mends it.

    Refused
    ├── RequestRefused    the asker: a request line, a path, a size
    ├── TokensRefused     the asker: token ids that the model does not take
    ├── GgufRefused       the model file is not a GGUF file that this reference reads
    ├── ModelRefused      the file is well formed, its model is outside the profile
    ├── WeightsRefused    the file is well formed, its weights are outside the profile
    ├── TableRefused      nobody: a table came out another than the profile's document says
    └── RangeContract     a value left the range that the profile promises

Each message is one line. The worker answers with the class's name and the message, never with a traceback.
"""


class Refused(Exception):
    """Base of all refusals: an input's fault, not the reference's."""


class RequestRefused(Refused):
    """A request of the worker protocol that cannot be done as written."""


class TokensRefused(Refused):
    """Token ids that the model does not take: none at all, outside the vocabulary, or past the context."""


class GgufRefused(Refused):
    """A GGUF file that is damaged, hostile, or of a kind that this reference does not read."""


class ModelRefused(Refused):
    """A model whose architecture, numbers or tensors the profile does not define."""


class WeightsRefused(Refused):
    """Weights with no exact value (an infinite or NaN scale) or of a wrong length."""


class TableRefused(Refused):
    """A table whose digest is not the document's, or an entry too near to a tie to be rounded."""


class RangeContract(Refused):
    """A broken range contract: operation, place of the element, its true value, and the bound in bits or in words."""

    def __init__(self, op: str, element: tuple[int, ...], value: int, bound: int | str) -> None:
        rule = bound if isinstance(bound, str) else f"its magnitude must stay below 2^{bound}"
        super().__init__(f"{op}{list(element)} = {value}: {rule}")
        self.op = op
        self.element = element
        self.value = value
        self.bound = bound
