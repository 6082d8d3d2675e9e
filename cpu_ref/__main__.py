"""`python -m cpu_ref`: the reference worker."""

import sys

from cpu_ref.worker import main

if __name__ == "__main__":
    sys.exit(main())
