"""`python -m cpu_ref.second`: the second implementation's worker."""

import sys

from cpu_ref.second.worker import main

if __name__ == "__main__":
    sys.exit(main())
