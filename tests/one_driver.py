"""Discovery of one driver alone: the others of the machine cost seconds, and have tests of their own."""

import pytest
from patience import MINUTES

from harness import backends, devices
from harness.devices import Device


def one_driver(api: str, label: str) -> Device | None:
    """Its first device as discovery finds it; None where there is no such driver."""
    module = backends.load(api)
    drivers = [driver for driver in module.drivers() if driver.label == label]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "drivers", lambda: drivers)
        patch.setattr(devices.permissions, "nodes", list)
        return next(iter(devices.discover([api], MINUTES)), None)
