"""`python -m hetsched` is the program `hetsched`."""

from __future__ import annotations

import sys

from hetsched.cli import main

if __name__ == "__main__":
    sys.exit(main())
