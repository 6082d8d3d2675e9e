"""The probe child of `fake_backend`."""

from harness import backends, probe

backends.REGISTRY.update(fake="fake_backend")
probe.main()
