"""HEFT as its paper has it (Topcuoglu, Hariri and Wu, IEEE TPDS 13, 2002, figure 4), on its own: to compare the product with. It shares nothing
with the product and is written to be plain, not fast.

Processors run one task at a time. `cost[task][processor]`: seconds, or None where it cannot run. Communication between tasks on different
nodes takes the edge's seconds and occupies nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Costs = Mapping[str, Sequence[float | None]]
Edges = Mapping[str, Mapping[str, float]]
"""parents[task][parent] = seconds to send what it needs to another node"""


def schedule(costs: Costs, parents: Edges, node_of: Sequence[str]) -> dict[str, tuple[int, float, float]]:
    """(processor, start, end) of every task."""
    slots: list[list[tuple[float, float]]] = [[] for _ in node_of]
    done: dict[str, tuple[int, float, float]] = {}
    for task in _by_rank(costs, parents):
        best: tuple[float, float, int] | None = None
        for processor, cost in enumerate(costs[task]):
            if cost is None:
                continue
            ready = max(
                (_arrival(done[one], seconds, processor, node_of) for one, seconds in parents[task].items()),
                default=0.0,
            )
            start = _first_gap(slots[processor], ready, cost)
            if best is None or start + cost < best[0]:
                best = start + cost, start, processor
        assert best is not None, f"nothing can run {task}"
        end, start, processor = best
        slots[processor].append((start, end))
        slots[processor].sort()
        done[task] = processor, start, end
    return done


def _arrival(parent: tuple[int, float, float], seconds: float, processor: int, node_of: Sequence[str]) -> float:
    return parent[2] + (seconds if node_of[parent[0]] != node_of[processor] else 0.0)


def _first_gap(busy: Sequence[tuple[float, float]], ready: float, cost: float) -> float:
    start = ready
    for begin, end in busy:
        if start + cost <= begin:
            break
        start = max(start, end)
    return start


def _by_rank(costs: Costs, parents: Edges) -> list[str]:
    """Tasks by upward rank, highest first; the mean of the costs over the processors that can run it."""
    children: dict[str, list[tuple[str, float]]] = {task: [] for task in costs}
    for task, links in parents.items():
        for parent, seconds in links.items():
            children[parent].append((task, seconds))
    rank: dict[str, float] = {}

    def rank_of(task: str) -> float:
        if task not in rank:
            known = [cost for cost in costs[task] if cost is not None]
            below = max((seconds + rank_of(child) for child, seconds in children[task]), default=0.0)
            rank[task] = sum(known) / len(known) + below
        return rank[task]

    return sorted(costs, key=rank_of, reverse=True)


def critical_path(costs: Costs, parents: Edges) -> float:
    """The longest way with every task on its fastest processor and nothing to send."""
    ends: dict[str, float] = {}

    def end_of(task: str) -> float:
        if task not in ends:
            fastest = min(cost for cost in costs[task] if cost is not None)
            ends[task] = fastest + max(map(end_of, parents[task]), default=0.0)
        return ends[task]

    return max(map(end_of, costs))
