"""The body of `POST /v1/graphs` (and what stands under `graph:` in a file), from untrusted JSON to a `Graph` that may be believed.

An operator is a task body with some fields of its own; `template` holds the fields that all of them share. Whatever is wrong comes back at
once, with JSON pointers, like the faults of a task: what the template says is told of the template, and once.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from hetsched.errors import Problem
from hetsched.model import reader
from hetsched.model.graph import Edge, Graph, Operator
from hetsched.model.read_task import DEFAULTS, FIELD_READERS, TaskDefaults, parse_task
from hetsched.model.reader import MOST_FAULTS, Faults, Reader, below, items, text
from hetsched.model.task import Task
from hetsched.quantity import memory_bytes, type_name

MOST_OPERATORS = 10_000
LARGEST_SAMPLE = 2**53
MOST_WORK_S = 1e9
_NAMES = re.compile(r"[A-Za-z0-9._-]+")
graph_id = text(64, _NAMES, "of letters, digits and . _ -")
operator_id = text(48, _NAMES, "of letters, digits and . _ -")

BY_PATTERN: dict[str, tuple[dict[str, Any], ...]] = {
    "matrix-heavy": ({"gpu": 1}, {"npu": 1}),
    "tensor-op": ({"tpu": 1}, {"npu": 1}, {"gpu": 1}),
    "control-heavy": ({"cpu": 1},),
}
"""What an operator asks for that says its pattern and nothing of resources."""

NOT_HERE = ("id", "gang", "after", "duration", "estimate", "deadline", "on_deadline")
"""Fields of a task that a graph decides itself, or that make no sense for its parts."""

SHARED = tuple(name for name in FIELD_READERS if name not in NOT_HERE)
"""Those that an operator may have beside its own, and a template too."""

Memo = dict[bytes, Task]
Fields = dict[str, tuple[str, Any]]
"""Fields of a task, each with the pointer of where it is said."""


def parse_graph(raw: object, defaults: TaskDefaults = DEFAULTS, most: int = MOST_OPERATORS) -> Graph:
    """Check one body whole. Raises Problem (422) with a pointer and a rule for everything that is wrong."""
    faults = Faults()
    said = reader.fields(faults, "", raw, _GRAPH)
    if isinstance(raw, dict) and "operators" not in raw:
        faults.add("", "needs operators")
    entries = said.get("operators", ())
    if len(entries) > most:
        raise Problem.at("/operators", f"must have at most {most} entries (limits.graph_operators), has {len(entries)}")
    template, span = said.get("template", {}), said.get("samples")
    places = _places(faults, entries)
    memo: Memo = {}
    operators = tuple(
        _operator(faults, f"/operators/{at}", entry, template, span, places, defaults, memo)
        for at, entry in enumerate(entries)
    )
    order = _order(faults, operators)
    if faults:
        raise faults.problem()
    return Graph(said.get("id"), said.get("name"), operators, order)


# ---------------------------------------------------------------------- one operator


def _operator(
    faults: Faults,
    at: str,
    raw: object,
    template: Fields,
    span: tuple[int, int] | None,
    places: dict[str, int],
    defaults: TaskDefaults,
    memo: Memo,
) -> Operator:
    if not isinstance(raw, dict):
        faults.wrong_type(at, "an object (an operator)", raw)
        return Operator("", 0.0, ())
    own = reader.fields(faults, at, {key: value for key, value in raw.items() if key in _OPERATOR}, _OPERATOR)
    fields = _shared(faults, at, raw, beside=_OPERATOR)
    if "id" not in raw:
        faults.add(at, "needs id")
    if ("cost" in raw) == ("cost_per_sample" in raw):
        faults.add(at, "needs either cost or cost_per_sample")
    is_divisible = "cost_per_sample" in raw
    begin, end = _range(faults, at, own, span) if is_divisible else (0, 1)
    if not is_divisible and (extra := {"samples", "chunk"} & raw.keys()):
        faults.add(f"{at}/{min(extra)}", "goes with cost_per_sample")
    cost = own.get("cost_per_sample", own.get("cost", 0.0))
    if cost * (end - begin) > MOST_WORK_S:
        faults.add(at, f"must be at most {MOST_WORK_S:g} seconds of work in all")
    return Operator(
        id=own.get("id", ""),
        cost=cost,
        tasks=_bodies(faults, at, raw, {**template, **fields}, defaults, memo),
        after=_edges(faults, f"{at}/after", own.get("after", ()), places),
        speeds=own.get("speeds", {}),
        is_divisible=is_divisible,
        begin=begin,
        end=end,
        chunk=min(own.get("chunk", 1), max(1, end - begin)),
    )


def _range(faults: Faults, at: str, own: dict[str, Any], span: tuple[int, int] | None) -> tuple[int, int]:
    """The operator's own samples, or the graph's."""
    begin, end = own.get("samples") or span or (0, 0)
    if not own.get("samples") and span is None:
        faults.add(at, "cost_per_sample needs samples, of the operator or of the graph")
    elif span is not None and not span[0] <= begin < end <= span[1]:
        faults.add(f"{at}/samples", f"must lie within the graph's samples, {span[0]} to {span[1]}")
    return begin, max(begin + 1, end)


def _bodies(
    faults: Faults, at: str, raw: dict[Any, Any], fields: Fields, defaults: TaskDefaults, memo: Memo
) -> tuple[Task, ...]:
    """The task as which it runs, or one for each alternative."""
    variants = raw.get("alternatives")
    if variants is None:
        chosen: object = [{}]
        _, pattern = fields.get("pattern", (at, None))
        if "resources" not in fields and isinstance(pattern, str) and pattern in BY_PATTERN:
            chosen = [{"resources": ask} for ask in BY_PATTERN[pattern]]
        return _alternatives(faults, at, chosen, fields, defaults, memo, own=False)
    return _alternatives(faults, at, variants, fields, defaults, memo, own=True)


def _alternatives(
    faults: Faults, at: str, variants: object, fields: Fields, defaults: TaskDefaults, memo: Memo, *, own: bool
) -> tuple[Task, ...]:
    where = f"{at}/alternatives" if own else at
    if not isinstance(variants, list | tuple) or not 1 <= len(variants) <= 8:
        faults.add(where, "must be a list of 1 to 8 objects, each with the fields in which it differs")
        return ()
    bodies = []
    for index, variant in enumerate(variants):
        pointer = f"{where}/{index}" if own else at
        if not isinstance(variant, dict):
            faults.wrong_type(pointer, "an object", variant)
        elif body := _body(faults, pointer, {**fields, **_shared(faults, pointer, variant)}, defaults, memo):
            bodies.append(body)
    return tuple(bodies)


def _body(faults: Faults, at: str, fields: Fields, defaults: TaskDefaults, memo: Memo) -> Task | None:
    raw = {name: value for name, (_, value) in fields.items()}
    try:
        key = msgspec.json.encode(raw)
    except (TypeError, ValueError, UnicodeError, RecursionError):
        faults.add(at, "holds something that is no JSON")
        return None
    if key not in memo:
        try:
            memo[key] = parse_task(raw, defaults)
        except Problem as problem:
            for fault in problem.errors:
                field = fault["pointer"].partition("/")[2].partition("/")[0]
                told = {**fault, "pointer": fields.get(field, (at, None))[0] + fault["pointer"]}
                if told not in faults.errors:  # of the template, by another operator
                    faults.add(**told)
            return None
    return memo[key]


# ---------------------------------------------------------------------- edges


def _places(faults: Faults, entries: tuple[Any, ...]) -> dict[str, int]:
    """Where each id stands in the list."""
    places: dict[str, int] = {}
    for at, entry in enumerate(entries):
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and places.setdefault(name, at) != at:
            faults.add(f"/operators/{at}/id", f"is taken by operator {places[name]}")
    return places


def _edges(faults: Faults, at: str, links: tuple[tuple[str, int], ...], places: dict[str, int]) -> tuple[Edge, ...]:
    edges: dict[int, int] = {}
    for index, (name, data_bytes) in enumerate(links):
        parent = places.get(name)
        if parent is None:
            if name:
                known = places if len(places) <= 256 else ()  # looking for the nearest name is slow
                faults.add(f"{at}/{index}", reader.unknown(name, known, "operator"))
        else:
            edges[parent] = edges.get(parent, 0) + data_bytes
    return tuple(Edge(parent, data_bytes) for parent, data_bytes in edges.items())


def _order(faults: Faults, operators: tuple[Operator, ...]) -> tuple[int, ...]:
    """Parents before children; a cycle is a fault (Kahn)."""
    open_parents = [len(one.after) for one in operators]
    children: list[list[int]] = [[] for _ in operators]
    for at, one in enumerate(operators):
        for edge in one.after:
            children[edge.parent].append(at)
    order = [at for at, count in enumerate(open_parents) if count == 0]
    for at in order:
        for child in children[at]:
            open_parents[child] -= 1
            if open_parents[child] == 0:
                order.append(child)
    if len(order) < len(operators):
        _tell_cycle(faults, operators, {at for at, count in enumerate(open_parents) if count})
    return tuple(order)


def _tell_cycle(faults: Faults, operators: tuple[Operator, ...], stuck: set[int]) -> None:
    """From any of the stuck upwards: sooner or later somebody comes twice."""
    path: list[int] = []
    at = min(stuck)
    while at not in path:
        path.append(at)
        at = next(edge.parent for edge in operators[at].after if edge.parent in stuck)
    cycle = path[path.index(at) :]
    names = [operators[one].id for one in (*reversed(cycle), cycle[-1])]
    shown = " -> ".join(names if len(names) <= 8 else [*names[:4], "…", *names[-3:]])
    faults.add(f"/operators/{cycle[-1]}/after", f"{names[0]} would wait for itself (a cycle: {shown})")


# ---------------------------------------------------------------------- fields


def _after(faults: Faults, at: str, raw: object) -> tuple[str, int]:
    """An id, or an id and how much data comes from there."""
    if isinstance(raw, str):
        return operator_id(faults, at, raw), 0
    said = reader.fields(faults, at, raw, _EDGE)
    if isinstance(raw, dict) and "id" not in raw:
        faults.add(at, "needs id")
    return said.get("id", ""), said.get("data", 0)


def _samples(faults: Faults, at: str, raw: object) -> tuple[int, int]:
    """A number of samples, counted from 0, or where they begin and end (the end is not among them)."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return 0, _count(faults, at, raw)
    if not isinstance(raw, dict):
        faults.add(at, f'must be a number of samples or {{"begin", "end"}}, not {type_name(raw)}')
        return 0, 1
    said = reader.fields(faults, at, raw, _RANGE)
    begin, end = said.get("begin", 0), said.get("end")
    if end is None or end <= begin:
        faults.add(f"{at}/end", "must be there, and above begin")
        return 0, 1
    return begin, end


def _template(faults: Faults, at: str, raw: object) -> Fields:
    if not isinstance(raw, dict):
        faults.wrong_type(at, "an object (fields of tasks)", raw)
        return {}
    own = [key for key in raw if key in _OPERATOR and key not in NOT_HERE]
    for key in own:
        faults.add(below(at, key), "belongs to an operator")
    return _shared(faults, at, raw, beside=own)


def _shared(faults: Faults, at: str, raw: dict[Any, Any], beside: Collection[str] = ()) -> Fields:
    """The fields of a task that are said here. `beside`: others that may be, read elsewhere."""
    found: Fields = {}
    for key, value in raw.items():
        if key in SHARED:
            found[key] = (at, value)
        elif key in beside:
            continue
        elif key in NOT_HERE:
            faults.add(below(at, key), "is no field of an operator: the graph says it")
        else:
            is_told = len(faults.errors) < MOST_FAULTS
            faults.add(below(at, key), reader.unknown(key, (*SHARED, *beside)) if is_told else "unknown field")
    return found


def _raw_list(faults: Faults, at: str, raw: object) -> tuple[Any, ...]:
    if not isinstance(raw, list | tuple):
        faults.wrong_type(at, "a list of operators", raw)
        return ()
    if not raw:
        faults.add(at, "must not be empty")
    return tuple(raw)


def _anything(_: Faults, __: str, raw: object) -> object:
    """Read with the task."""
    return raw


_count = reader.integer(1, LARGEST_SAMPLE)
_RANGE: dict[str, Reader[Any]] = {
    "begin": reader.integer(0, LARGEST_SAMPLE),
    "end": reader.integer(1, LARGEST_SAMPLE),
}
_EDGE: dict[str, Reader[Any]] = {"id": operator_id, "data": reader.quantity(memory_bytes)}
_OPERATOR: dict[str, Reader[Any]] = {
    "id": operator_id,
    "cost": reader.number(0.0, MOST_WORK_S),
    "cost_per_sample": reader.number(0.0, MOST_WORK_S),
    "samples": _samples,
    "chunk": _count,
    "after": items(_after, MOST_OPERATORS),
    "speeds": reader.mapping(text(64), reader.number(1e-6, 1e6), 64),
    "alternatives": _anything,
}
_GRAPH: dict[str, Reader[Any]] = {
    "id": graph_id,
    "name": text(256),
    "samples": _samples,
    "template": _template,
    "operators": _raw_list,
}
