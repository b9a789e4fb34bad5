"""`python -m loadtest`."""

import sys

from loadtest.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
