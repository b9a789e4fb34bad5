"""The load generator: open-loop Poisson arrivals against a live daemon, with simulated agents that end the tasks.

`python -m loadtest` and `hetsched load` are the same program. What each figure means is in README.md.
"""

from loadtest.main import main

__all__ = ["main"]
