"""The options of `submit`, named as the fields of a task (CONTRACT, section 2), and the task object that they spell.

Quantities go to the daemon as they were written: it alone knows the rules, so that the CLI cannot disagree with it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, NamedTuple

from hetsched.cli.parser import Usage, number, seconds, whole

KINDS = ("gpu", "tpu", "fpga", "npu", "asic")


class Plain(NamedTuple):
    """An option that is a field of the same name: its value as `type` reads it."""

    field: str
    type: Any
    about: str
    metavar: str | None = None


PLAIN = (
    Plain("id", str, "its id (else one is made); the same id with the same body is the same task", "ID"),
    Plain("name", str, "for people"),
    Plain("kind", str, "task type: training, inference, batch, service, …"),
    Plain("queue", str, "tenant queue", "QUEUE"),
    Plain("qos", str, "critical, production, best_effort or background"),
    Plain("guarantee", str, "guaranteed, burstable or best_effort"),
    Plain("priority", whole, "−1000 … 1000 within the qos", "N"),
    Plain("pattern", str, "matrix-heavy, control-heavy or tensor-op, for the cost model"),
    Plain("on_deadline", str, "continue or expire"),
    Plain("estimate", seconds, "your guess of the run time", "TIME"),
    Plain("time_limit", seconds, "stopped after this long", "TIME"),
    Plain("grace", seconds, "between SIGTERM and SIGKILL (30)", "TIME"),
    Plain("retries", whole, "extra attempts after a failure (3)", "N"),
    Plain("workdir", str, "where the command runs", "PATH"),
    Plain("user", str, "who runs it"),
    Plain("duration", seconds, "no command: how long the placement is held", "TIME"),
    Plain("on_lost", str, "requeue, fail or hold, when its node is lost"),
    Plain("checkpoint", seconds, "progress is kept this often", "TIME"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """All of them."""
    group = parser.add_argument_group("the task (TIME: seconds, or 10m, 2h, 1d)")
    for option in PLAIN:
        metavar = option.metavar or option.field.upper()
        group.add_argument(_flag(option.field), dest=option.field, type=option.type, help=option.about, metavar=metavar)
    group.add_argument("--label", "--labels", dest="label", action="append", metavar="K=V", help="may be given again")
    group.add_argument("--env", action="append", metavar="K=V", help="may be given again; K alone takes your own value")
    group.add_argument("--after", action="append", metavar="ID[:WHEN]", help="WHEN: succeeded, failed or ended")
    group.add_argument("--deadline", metavar="TIME", help="from submission, or an RFC 3339 time")
    group.add_argument("--retry-on", action="append", metavar="REASON", help="retry this too: time_limit")
    group.add_argument("--preemptible", action=argparse.BooleanOptionalAction, default=None)
    _add_resources(parser.add_argument_group("what it needs"))
    _add_many(parser.add_argument_group("several at once"))


def _add_resources(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--cpu", metavar="N", help="cores: 4, 0.5, 1500m")
    group.add_argument("--memory", metavar="SIZE", help="16Gi")
    for kind in KINDS:
        group.add_argument(f"--{kind}", metavar="N", help="devices: 2, 0.5, 2.5" if kind == "gpu" else None)
        about = "memory per device" if kind == "gpu" else None
        group.add_argument(f"--{kind}-memory", dest=f"{kind}_memory", metavar="SIZE", help=about)
    group.add_argument("--resource", action="append", metavar="KIND=N", help="devices of any other kind")
    group.add_argument(
        "--limit",
        "--limits",
        dest="limit",
        action="append",
        metavar="WHAT=N",
        help="burstable ceiling: cpu=8, memory=32Gi",
    )
    group.add_argument(
        "--models",
        "--model",
        dest="models",
        action="append",
        metavar="A100,H100",
        help="only these device models, best first",
    )
    group.add_argument(
        "--selector",
        "--node-selector",
        dest="selector",
        action="append",
        metavar="K=V[,V]",
        help="nodes with this label",
    )
    about = "bears this taint: KEY[=VALUE][:EFFECT]"
    group.add_argument("--toleration", "--tolerations", dest="toleration", action="append", metavar="TAINT", help=about)
    group.add_argument("--data", action="append", metavar="NAME", help="volumes that it reads")
    group.add_argument(
        "--topology", metavar="SAME[:required]", help="keep together: numa, nvlink, pcie, node, rack, zone or a label"
    )


def _add_many(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--array", metavar="0-99", help="one task for each index: 0-99, 0-99:5, 1,4,7")
    group.add_argument("--gang", type=whole, metavar="N", help="N members, placed all or none")
    group.add_argument("--gang-id", metavar="ID", help="its id (else one is made)")
    group.add_argument("--min-size", type=whole, metavar="N", help="the gang may run with this many")


def spell(options: argparse.Namespace) -> dict[str, Any]:
    """The task object, without command: only the fields that were given."""
    task = {option.field: getattr(options, option.field) for option in PLAIN}
    task |= {
        "resources": _resources(options),
        "limits": {k: number(v) for k, v in _mapping("--limit", options.limit).items()},
        "labels": _mapping("--label", options.label),
        "env": _env(options.env),
        "node_selector": {k: _one_or_list(v) for k, v in _mapping("--selector", options.selector).items()},
        "models": _commas(options.models),
        "tolerations": [_toleration(text) for text in options.toleration or ()],
        "data": _commas(options.data),
        "topology": _topology(options.topology),
        "after": [_dependency(text) for text in options.after or ()],
        "deadline": _deadline(options.deadline),
        "preemptible": options.preemptible,
        "retry_on": _commas(options.retry_on),
    }
    return {field: value for field, value in task.items() if value is not None and value != {} and value != []}


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _resources(options: argparse.Namespace) -> dict[str, Any]:
    names = ["cpu", "memory"]
    for kind in KINDS:
        names += [kind, f"{kind}_memory"]
    found = {name: number(getattr(options, name)) for name in names if getattr(options, name) is not None}
    return found | {k: number(v) for k, v in _mapping("--resource", options.resource).items()}


def _mapping(flag: str, texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Usage(f"{flag} {text}: it is written KEY=VALUE")
        found[key] = value
    return found


def _env(texts: list[str] | None) -> dict[str, str]:
    own = [text for text in texts or () if "=" not in text]
    for name in own:
        if name not in os.environ:
            raise Usage(f"--env {name}: you have no such variable; it is written NAME=VALUE")
    return {name: os.environ[name] for name in own} | _mapping("--env", [t for t in texts or () if "=" in t])


def _commas(texts: list[str] | None) -> list[str]:
    return [part for text in texts or () for part in text.split(",") if part]


def _one_or_list(text: str) -> str | list[str]:
    return text.split(",") if "," in text else text


def _toleration(text: str) -> dict[str, str]:
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key:
        raise Usage(
            f"--toleration {text!r}: it is written KEY[=VALUE][:EFFECT]; without a key it would bear every taint"
        )
    found = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return found | ({"effect": effect} if effect else {})


def _topology(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    same, _, word = text.partition(":")
    if word not in ("", "required"):
        raise Usage(f"--topology {text}: it is written SAME or SAME:required")
    return {"same": same, "required": word == "required"}


def _dependency(text: str) -> str | dict[str, str]:
    """Ids may hold colons, so only a known word after the last one is a condition."""
    task_id, _, when = text.rpartition(":")
    return {"id": task_id, "when": when} if when in ("succeeded", "failed", "ended") and task_id else text


def _deadline(text: str | None) -> float | str | None:
    if text is None:
        return None
    try:
        return seconds(text)
    except ValueError:
        return text
