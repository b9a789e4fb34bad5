"""Configuration: a small typed tree (`tree`), what must hold in it (`rules`), and where it comes from (`load`)."""

from hetsched.config.load import from_mapping, load, to_mapping
from hetsched.config.tree import (
    Agent,
    Auth,
    AuthToken,
    Batch,
    Config,
    Defaults,
    Feedback,
    Gang,
    Health,
    Lanes,
    Limits,
    Overcommit,
    Policy,
    Preemption,
    Server,
    Store,
)

__all__ = [
    "Agent",
    "Auth",
    "AuthToken",
    "Batch",
    "Config",
    "Defaults",
    "Feedback",
    "Gang",
    "Health",
    "Lanes",
    "Limits",
    "Overcommit",
    "Policy",
    "Preemption",
    "Server",
    "Store",
    "from_mapping",
    "load",
    "to_mapping",
]
