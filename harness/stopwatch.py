"""The child of a benchmark: times one kernel on one device, or BLAS, once a request.

`python -m harness.stopwatch API INDEX`   -> {"case", "schedule", "variant", "inputs"}   <- {"seconds"}
`python -m harness.stopwatch blas`        -> {"n"}                                       <- {"seconds"}
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.channel import Channel


def device_times(channel: Channel, api: str, index: int) -> Iterator[float]:
    """Seconds of the dispatches alone; programs and buffers are kept between requests."""
    from harness import backends, kernels, schedules
    from harness.cases import parse_case
    from harness.worker import constants_of, fill_of, words_of

    module = backends.load(api)
    backend = module.open_device(index)
    kept: dict[tuple[str, str, str], Any] = {}
    for request in channel.requests():
        case = parse_case(request["case"])
        kernel = kernels.find(case.kernel, request["variant"])
        plan = kernel.plan(case, request["schedule"])
        key = request["case"], request["schedule"], request["variant"]
        fill = fill_of(plan.buffers, 0)
        if key not in kept:
            constants = constants_of(request["schedule"], nonce=1, known_bad=False)
            program = backend.compile(kernel, kernels.source(kernel, module.LANGUAGE), constants)
            data = {name: Path(path).read_bytes() for name, path in request["inputs"].items()}
            data["order"] = schedules.order_bytes(kernel.terms(case), case.seed)
            kept[key] = program, backend.bind(plan.buffers, words_of(plan.buffers, data))
            backend.run(*kept[key], plan.passes, fill)  # drivers compile in the first run too
        backend.run(*kept[key], plan.passes, fill)
        yield backend.dispatch_s


def blas_times(channel: Channel) -> Iterator[float]:
    """Seconds of NumPy's float64 product of two n x n matrices."""
    import numpy as np

    for request in channel.requests():
        n = request["n"]
        a, b = np.ones((2, n, n))
        np.dot(a, b)
        begin = time.perf_counter()
        np.dot(a, b)
        yield time.perf_counter() - begin


def main() -> None:
    """Started by `harness.bench` only."""
    channel = Channel()
    times = blas_times(channel) if sys.argv[1] == "blas" else device_times(channel, sys.argv[1], int(sys.argv[2]))
    for seconds in times:
        channel.send({"seconds": seconds})


if __name__ == "__main__":
    main()
