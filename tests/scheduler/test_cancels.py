"""However many are cancelled at once: a turn takes a bounded part of it, others are served meanwhile, and the answer tells of all."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched._core import F_ENDED, NONE, split_facts
from hetsched.scheduler import messages as m
from hetsched.scheduler.cancels import MOST_A_TURN, MOST_NAMED, PAGE, named
from tests.scheduler.build import SECOND, Story, node, task

MANY = 2 * MOST_A_TURN + 200


class Crowd(Story):
    """Tasks that wait, on two labels and in two queues. `replies`: all that were given."""

    def __init__(self, count: int = MANY) -> None:
        super().__init__([node("n", cpu=1)], config={"limits": {"retention_tasks": 10 * count}})
        self.replies: dict[int, Any] = {}
        self.ended: list[int] = []
        for kind in ("a", "b"):
            body = {"resources": {"cpu": 2}, "labels": {"kind": kind}, "queue": kind, "id": kind}
            self.submit({"template": body, "count": count})

    def step(self, *inputs: m.Input) -> Any:
        turn = super().step(*inputs)
        if hasattr(self, "replies"):
            self.replies |= {reply.ticket: reply.value for reply in turn.replies}
            self.ended.append(sum(fact[0] == F_ENDED for _, _, fact in split_facts(turn.facts)))
        return turn

    def begin(self, ticket: int, **asked: Any) -> None:
        self.ended.clear()
        self.step(m.Cancel(ticket=ticket, actor="ann", **asked))

    def finish(self) -> None:
        """Every turn that the scheduler asks for."""
        while (wake_ns := self.scheduler.wake_ns()) is not None and wake_ns <= self.now_ns:
            self.step()

    def waiting(self, kind: str) -> int:
        return sum(
            found["labels"].get("kind") == kind
            for found in self.scheduler.view.tasks(state="queued", limit=10**5)["tasks"]
        )


@pytest.mark.parametrize("by", [{"label": "kind=a"}, {"queue": "a"}, {"ids": tuple(f"a-{at}" for at in range(MANY))}])
def test_a_turn_cancels_a_bounded_number_and_the_last_one_answers(by: dict[str, Any]) -> None:
    crowd = Crowd()
    crowd.begin(7, **by)
    assert 7 not in crowd.replies
    crowd.finish()
    assert crowd.ended == [MOST_A_TURN, MOST_A_TURN, MANY - 2 * MOST_A_TURN]
    assert crowd.replies[7] == {"cancelled": [f"a-{at}" for at in range(MANY)], "already_ended": [], "unknown": []}
    assert (crowd.waiting("a"), crowd.waiting("b")) == (0, MANY)
    assert crowd.replayed().digest() == crowd.scheduler.digest()


def test_all_of_many_pages_are_cancelled() -> None:
    crowd = Crowd(PAGE + 10)
    crowd.begin(7, state="queued")
    crowd.finish()
    assert len(crowd.replies[7]["cancelled"]) == 2 * (PAGE + 10) and max(crowd.ended) == MOST_A_TURN


def test_whoever_comes_meanwhile_is_served_in_his_turn_and_is_not_meant() -> None:
    crowd = Crowd(2 * MANY)
    crowd.begin(7, label="kind=a")
    crowd.submit(task("late", labels={"kind": "a"}, resources={"cpu": 2}))
    assert crowd.ask(m.Cancel(ids=("b-0",)))["cancelled"] == ["b-0"]
    assert 7 not in crowd.replies
    crowd.finish()
    assert len(crowd.replies[7]["cancelled"]) == 2 * MANY
    assert crowd.state("late") == "queued" and crowd.state("b-0") == "cancelled"


def test_another_task_that_has_the_id_by_now_is_let_be() -> None:
    """What was selected may end and be forgotten before it is its turn, and its id be given to another."""
    crowd = Crowd(PAGE)
    crowd.begin(7, queue="a")
    crowd.ask(m.Cancel(ids=(f"a-{PAGE - 1}", f"a-{PAGE - 2}")))
    crowd.scheduler.books.forget_oldest(len(crowd.scheduler.books.ended))
    again = {**task(f"a-{PAGE - 1}", queue="a"), "resources": {"cpu": 2}}
    crowd.submit(again)
    crowd.finish()
    assert len(crowd.replies[7]["cancelled"]) == PAGE - 2
    assert crowd.state(f"a-{PAGE - 1}") == "queued" and crowd.scheduler.core.find(f"a-{PAGE - 2}".encode()) == NONE


@pytest.mark.parametrize("by", [{"label": "kind=c"}, {"queue": "c"}, {"label": "kind=a", "state": "running"}])
def test_where_nothing_matches_the_answer_is_there_at_once(by: dict[str, Any]) -> None:
    crowd = Crowd()
    crowd.begin(7, **by)
    assert crowd.replies[7] == {"cancelled": [], "already_ended": [], "unknown": []}


def test_what_is_named_and_selected_is_told_once_and_with_what_is_not_there() -> None:
    story = Story([node("n")])
    story.submit([task("a", labels={"kind": "x"}), task("b", labels={"kind": "x"}), task("c")])
    story.now_ns += SECOND
    story.wait(1)
    done = story.ask(m.Cancel(ids=("a", "nobody", "a"), label="kind=x"))
    assert done == {"cancelled": ["a", "b"], "already_ended": [], "unknown": ["nobody"]}


def test_the_audit_names_the_first_and_counts_the_rest() -> None:
    crowd = Crowd()
    crowd.begin(7, queue="a")
    crowd.finish()
    (entry,) = [entry for entry in crowd.scheduler.books.audit if entry.action == "cancel"]
    assert entry.subject.startswith("a-0,a-1,") and entry.subject.endswith(
        f"a-{MOST_NAMED - 1} and {MANY - MOST_NAMED} more"
    )
    assert named(["x", "y"]) == "x,y"
