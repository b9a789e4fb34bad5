"""The simulator: the daemon's own scheduler and core on a virtual clock, with simulated nodes and tasks.

The flow: `read_scenario` or `read_trace` make a `Scenario`; `engine` lets it happen, `machines` are the nodes and what runs on them,
`agenda` the clock; `log`, `placements` and `summary` watch. Same file, same seed, same bytes.
"""

from hetsched.sim.run import simulate

__all__ = ["simulate"]
