"""The exit codes of CONTRACT, section 4, and which error becomes which."""

from __future__ import annotations

from hetsched.client import Unreachable
from hetsched.errors import ConfigError, HetschedError, NotFound, ScenarioError, Unavailable

OK = 0
TASK_FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNREACHABLE = 5
TIMED_OUT = 6
INTERRUPTED = 130  # what a shell expects of a program that was ended by Ctrl-C

_BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (NotFound, NOT_FOUND),
    (Unreachable, UNREACHABLE),
    (Unavailable, UNREACHABLE),
    (TimeoutError, TIMED_OUT),
    (ConfigError, USAGE),
    (ScenarioError, USAGE),
    (HetschedError, REFUSED),
)


def code_of(error: Exception) -> int:
    """The exit code for an error of the tree; the first line of the table that fits."""
    return next(code for kind, code in _BY_ERROR if isinstance(error, kind))
