"""A scorer: nodes say what an hour of them costs (label `price-per-hour`), the cheapest one goes first.

Install it into the daemon's environment (`pip install ./examples/scorer_plugin`) and give it a weight:

    [policy]
    scorers = { cheapest = 0.5 }
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched.model import NodeSpec
from hetsched.policy.fleet import Fleet
from hetsched.policy.shape import ShapeWords


def cheapest(shape: ShapeWords, fleet: Fleet) -> NDArray[np.float64]:
    """1 where an hour costs nothing, 0 on the dearest node and where no price is known."""
    prices = fleet.each(price)
    known = prices[~np.isnan(prices)]
    if known.size == 0 or known.max() <= 0:
        return np.zeros(fleet.size)
    return 1 - np.nan_to_num(prices, nan=known.max()) / known.max()


def price(node: NodeSpec) -> float | None:
    """An hour of the node; None where its label is missing or no number."""
    try:
        return float(node.labels["price-per-hour"])
    except (KeyError, ValueError):
        return None
