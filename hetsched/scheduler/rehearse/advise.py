"""What a waiting task can be told beyond its reason: when it will start, what would help, what is free of what it wants.

Promises: every remedy was tried on a copy of the engine, and its effect is what the copy did; at most five of them, cheapest first; and
the answer comes when the time is over, with as many as were found by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import Problem
from hetsched.model import DeviceAsk, Task
from hetsched.scheduler.lifecycle import WAITING_CODES
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.rehearse import constraint
from hetsched.scheduler.rehearse.calls import call_of
from hetsched.scheduler.rehearse.changes import most, with_resources
from hetsched.scheduler.rehearse.forecast import Future, Runner, Start
from hetsched.scheduler.rehearse.image import Image, Patience, load_copy, open_copy
from hetsched.scheduler.rehearse.remedies import Candidate, as_candidate, candidates
from hetsched.scheduler.rehearse.subject import Subject, instead, subject_of
from hetsched.scheduler.rehearse.trial import Effect, Trial
from hetsched.scheduler.rehearse.unknown import awaited, too_late, why_unknown
from hetsched.scheduler.scheduler import Scheduler
from hetsched.scheduler.totals import totals

MOST_REMEDIES = 5
MOST_TRIALS = 12
MOST_DEVICES = 64

WAIT_COST, HOUR_S = 0.1, 3600.0

Share = Callable[[float], Patience]
"""`share(0.5)` says when half of the time is over."""


class Advice(msgspec.Struct, kw_only=True):
    """`eta` None: `eta_reason` says why. `wait`: the start that simply waiting leads to."""

    eta: dict[str, float] | None = None
    eta_reason: str | None = None
    remedies: list[dict[str, Any]] = []
    constraint: dict[str, Any] | None = None
    free: dict[str, dict[str, float]] = {}
    left_out: list[dict[str, Any]] = []


def advise(image: Image, ident: str, now_ns: int, share: Share) -> Advice | None:
    """About the task as it is in the image; None if it does not wait there."""
    scratch = open_copy(image, now_ns)
    slot = scratch.core.find(ident.encode())
    if slot == NONE or scratch.core.task(slot).state not in WAITING_CODES:
        return None if slot == NONE or slot not in scratch.books.attempts.live else _about_to_start(image, slot)
    now_ns = scratch.world.now_ns
    engine = Engine(image, scratch, subject_of(scratch, slot), now_ns, share(1.0))
    told = scratch.view.explain(ident)
    reasons = [told["reason"], *(other["reason"] for other in told["secondary"])]
    start, advice = _eta(engine, slot, reasons, share(0.5))
    advice.free = _free(engine)
    advice.left_out = image.left_out()
    found = candidates(scratch, engine.subject, reasons, engine.ask, engine.ever)
    if Waiting.UNSATISFIABLE in reasons:
        found += _nearest(engine, advice)
    advice.remedies = _try(engine, found, _wait(start, now_ns))
    return advice


def _about_to_start(image: Image, slot: int) -> Advice | None:
    """The copy has placed it at once; nothing is to be said of one that is not waiting in the image either."""
    waits = load_copy(image).core.task(slot).state in WAITING_CODES
    return Advice(eta={"p50": 0.0, "p90": image.config.batch.max_wait}) if waits else None


def _nearest(engine: Engine, advice: Advice) -> list[Candidate]:
    """Say which constraint rules out most; the nearest request that would fit is the last thing to try, unless it is among the others."""
    nodes = [node.spec for node in engine.scratch.books.cluster.by_name.values()]
    if not nodes:
        return []
    subject = engine.subject
    advice.constraint, near = constraint.judge(subject.task, nodes, engine.ever)
    if near is None or near.is_single or not subject.together:
        return []
    return [as_candidate(engine.scratch, subject, "nearest", near.text, 1.0, near.task, later=True)]


# ---------------------------------------------------------------------- when


NO_ETA = {
    Waiting.UNSATISFIABLE: "no node could ever take it",
    Waiting.HELD: "an operator holds it",
    Waiting.GANG_INCOMPLETE: "members of its gang have not been submitted yet",
}


def _eta(engine: Engine, slot: int, reasons: list[str], is_over: Patience) -> tuple[Start | None, Advice]:
    image, now_ns = engine.image, engine.now_ns
    hopeless = next((NO_ETA[reason] for reason in reasons if reason in NO_ETA), None)
    if hopeless is not None:
        return None, Advice(eta_reason=hopeless)
    copy = open_copy(image, now_ns)
    soon = Runner(copy, now_ns, late=False).run({slot}, is_over)
    start = soon.starts.get(slot)
    if slot in soon.expired:
        return None, Advice(eta_reason=expires_first(image, soon.expired[slot], slot, now_ns, is_over))
    if start is None:
        return None, Advice(eta_reason=why_unknown(awaited(engine.scratch, slot), copy, slot, soon.why))
    late = Runner(open_copy(image, now_ns), now_ns, late=True).run({slot}, is_over)
    return start, Advice(eta=eta_json(soon, late, slot, now_ns))


def eta_json(soon: Future, late: Future, slot: int, now_ns: int) -> dict[str, float]:
    """p90 is where the late run came to, as far as that was looked and at most the deadline that ends it; never before p50."""
    last = late.starts.get(slot)
    p50 = (soon.starts[slot].at_ns - now_ns) / 1e9
    p90 = ((late.until_ns if last is None else last.at_ns) - now_ns) / 1e9
    return {"p50": p50, "p90": max(p50, p90)}


def expires_first(image: Image, deadline_ns: int, slot: int, now_ns: int, is_over: Patience) -> str:
    """Why a task that ends by its deadline has no start, with when it would have had one."""
    start = (
        Runner(open_copy(image, now_ns), now_ns, late=False)
        .run({slot}, is_over, undated=frozenset({slot}))
        .starts.get(slot)
    )
    return too_late(deadline_ns, None if start is None else start.at_ns, now_ns)


def _wait(start: Start | None, now_ns: int) -> tuple[float, dict[str, Any]] | None:
    """Waiting is a remedy, too: (cost, remedy)."""
    if start is None:
        return None
    eta_s = (start.at_ns - now_ns) / 1e9
    text = f"wait for {', '.join(start.ended[:3])}" if start.ended else "wait"
    effect = Effect(starts="later", node=start.node, eta_seconds=eta_s)
    cost = WAIT_COST + (1 - WAIT_COST) * min(1.0, eta_s / HOUR_S)
    return cost, {
        "code": "wait",
        "detail": f"{text}: {said(effect)}",
        "by": "nobody",
        "how": "nothing has to be done",
        "change": {},
        "calls": [],
        "effect": msgspec.to_builtins(effect),
    }


# ---------------------------------------------------------------------- what helps


class Engine:
    """The two questions that changes are found by. `scratch` is spoilt by them: it learns shapes."""

    def __init__(self, image: Image, scratch: Scheduler, subject: Subject, now_ns: int, is_over: Patience) -> None:
        self.image = image
        self.scratch = scratch
        self.subject = subject
        self.now_ns = now_ns
        self.is_over = is_over

    def verdict(self, task: Task) -> dict[str, int]:
        """What the cluster says to such a task; nothing to one that it has no words for."""
        try:
            return self.scratch.core.verdict(self.scratch.books.templates.intern_shape(task))
        except Problem:
            return {"fits": 0, "ever": 0}

    def ask(self, task: Task) -> int:
        """Nodes that could take it now and may, by the limits of its queue. Gangs are tried as wholes."""
        if self.is_over() or self.scratch.view.limits(task, self.subject.needed):
            return 0
        if task.gang is None:
            return self.verdict(task)["fits"]
        inputs = instead(self.scratch, self.subject, task)
        trial = Trial(self.image, inputs, (), task.gang.min_size, self.now_ns)
        return int(trial.effect(self.is_over, later=False) is not None)

    def ever(self, task: Task) -> int:
        """Nodes that could take it if they were empty and open."""
        return 0 if self.is_over() else self.verdict(task)["ever"]


def _try(engine: Engine, found: list[Candidate], wait: tuple[float, dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Cheapest first, one of a kind, until there are enough."""
    out: list[dict[str, Any]] = []
    trials = 0
    for candidate in found:
        if wait is not None and wait[0] <= candidate.cost:
            out.append(wait[1])
            wait = None
        if len(out) >= MOST_REMEDIES or trials >= MOST_TRIALS or engine.is_over():
            break
        if any(remedy["code"] == candidate.code for remedy in out):
            continue
        trials += 1
        effect = _effect(engine, candidate)
        if effect is not None:
            out.append(_remedy(candidate, effect))
    if wait is not None:
        out.append(wait[1])
    return out[:MOST_REMEDIES]


def _effect(engine: Engine, candidate: Candidate) -> Effect | None:
    subject = engine.subject
    needed = subject.needed
    if candidate.change.get("gang"):
        needed = candidate.change["gang"]["min_size"]
    if candidate.code == "members":
        needed = 1
    trial = Trial(engine.image, candidate.inputs, subject.members, needed, engine.now_ns)
    return trial.effect(engine.is_over, later=candidate.later)


def _remedy(candidate: Candidate, effect: Effect) -> dict[str, Any]:
    return {
        "code": candidate.code,
        "detail": f"{candidate.text}: {said(effect)}",
        "by": candidate.by,
        "how": candidate.how,
        "change": candidate.change,
        "calls": [call_of(asked) for asked in candidate.inputs],
        "effect": msgspec.to_builtins(effect),
    }


def said(effect: Effect) -> str:
    """The effect as a person would say it."""
    if effect.starts == "now":
        return f"starts now on {effect.node}" + (f" and {len(effect.nodes) - 1} more places" if effect.nodes else "")
    if effect.starts == "later":
        return f"starts in about {effect.eta_seconds:.0f} s on {effect.node}"
    named = ", ".join(effect.victims[:3]) + (" …" if len(effect.victims) > 3 else "")
    return f"starts on {effect.node} once {named} gave way, at most {effect.eta_seconds:.0f} s"


# ---------------------------------------------------------------------- what is free


def _free(engine: Engine) -> dict[str, dict[str, float]]:
    """Per kind: asked, free on open nodes, and the most whole devices that one node could give such a task now."""
    out = {}
    found = totals(engine.scratch.books)
    for at, ask in enumerate(engine.subject.task.resources.devices):
        total = found[_core.RESOURCE_KIND + engine.scratch.books.kinds.known(ask.kind)]
        block = most(1, MOST_DEVICES, _block(engine, ask)) or 0
        out[engine.subject.task.resources.devices[at].kind] = {
            "asked": ask.total_milli / 1000,
            "free": (total.capacity - total.used) / 1000,
            "largest_on_one_node": block,
        }
    return out


def _block(engine: Engine, ask: DeviceAsk) -> Callable[[int], int]:
    def fits(whole: int) -> int:
        wanted = DeviceAsk(kind=ask.kind, whole=whole, models=ask.models)
        return engine.verdict(with_resources(engine.subject.task, cpu_milli=0, memory_bytes=0, devices=(wanted,)))[
            "fits"
        ]

    return fits
