"""How nodes are ranked beyond what the core does by itself: what the presets need to know of the past.

`price` says what free capacity is worth under what is asked. Sans-IO like the scheduler; integers and exact arithmetic only, so that every
machine prices alike.
"""

from hetsched.policy.price import Pricer

__all__ = ["Pricer"]
