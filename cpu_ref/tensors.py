"""`python -m cpu_ref.tensors FILE`: the digest of every tensor of a GGUF file, as one JSON object.

{"digests": {NAME: SHA-256 of its bytes as u8[rows, bytes a row], or null: a type that the reference does not read}}
{"error": "one line"}
"""

import json
import sys

from cpu_ref.digest import tensor_digest
from cpu_ref.errors import GgufRefused
from cpu_ref.gguf_parser import Gguf


def digests(gguf: Gguf) -> dict[str, str | None]:
    """Digest by tensor name; None where the type is not read. GgufRefused where a tensor does not lie in the file."""
    found: dict[str, str | None] = {}
    for name in gguf.names:
        found[name] = None
        if gguf.reads(name):
            tensor = gguf.tensor(name)
            found[name] = tensor_digest("u8", (tensor.rows, tensor.row_bytes), tensor.data)
    return found


def main(path: str) -> int:
    """Print the object; the exit code."""
    try:
        answer: dict[str, object] = {"digests": digests(Gguf(path))}
    except GgufRefused as e:
        answer = {"error": str(e)}
    print(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
