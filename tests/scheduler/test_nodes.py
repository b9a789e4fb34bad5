"""Nodes join, fall silent, are lost and return; devices sicken; operators drain."""

from __future__ import annotations

import pytest

from hetsched import wire
from hetsched.model import parse_node
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task

OF_THE_TASK = ("No such file or directory", "Permission denied", "Exec format error")


def join(story: Story, raw: dict[str, object], *attempts: m.AttemptReport, boot_id: str = "") -> m.Turn:
    import msgspec

    spec = msgspec.structs.replace(parse_node(raw)[0], boot_id=boot_id)
    story.session += 1
    return story.step(m.NodeJoined(node=spec, session=story.session, attempts=attempts))


def test_a_lost_node_gives_its_tasks_back_and_no_retry_is_used() -> None:
    story = Story([node("n1"), node("n2", cpu=0)])
    story.submit(task("t", retries=0))
    story.wait(1)
    story.step(m.NodeLost(node="n1"))
    assert story.state("t") == "queued"
    assert story.names("t")[-1] == "requeued" and story.task("t")["failures"] == 0
    join(story, node("n1"))
    story.wait(1)
    assert story.task("t")["attempt"] == 2 and story.state("t") == "running"


def test_on_lost_fail_and_hold_are_obeyed() -> None:
    story = Story([node("n1")])
    story.submit([task("fails", on_lost="fail"), task("waits", on_lost="hold")])
    story.wait(1)
    story.step(m.NodeLost(node="n1"))
    assert (story.state("fails"), story.state("waits")) == ("failed", "held")


def test_nothing_new_goes_to_a_silent_node_and_what_runs_there_stays() -> None:
    story = Story([node("n1")])
    story.submit(task("old"))
    story.wait(1)
    story.step(m.NodeSilent(node="n1"))
    story.submit(task("new"))
    story.wait(1)
    assert (story.state("old"), story.state("new")) == ("running", "queued")
    join(story, node("n1"), m.AttemptReport(task="old", attempt=1, state="running"))
    story.wait(1)
    assert (story.state("old"), story.state("new")) == ("running", "running")


def test_a_join_settles_every_difference_between_node_and_books() -> None:
    story = Story([node("n1")], start=False)
    story.submit([task("never-heard"), task("running"), task("done")])
    story.wait(1)
    turn = join(
        story,
        node("n1"),
        m.AttemptReport(task="running", attempt=1, state="running"),
        m.AttemptReport(task="done", attempt=1, state="ended", succeeded=True),
        m.AttemptReport(task="ghost", attempt=7, state="running"),
    )
    assert (story.state("running"), story.state("done")) == ("running", "succeeded")
    told = [(type(order.message).__name__, order.message.task) for order in turn.orders]  # type: ignore[union-attr]
    assert ("Start", "never-heard") in told and ("Settled", "done") in told and ("Stop", "ghost") in told


def test_a_node_that_comes_back_with_what_was_given_away_takes_nothing_until_that_has_ended() -> None:
    """Found by the simulation, seed 21: a machine slept past its lease, woke up, and its devices were given to two at once."""
    story = Story([node("n1")])
    story.submit(task("t"))
    story.wait(1)
    story.step(m.NodeLost(node="n1"))
    turn = join(story, node("n1"), m.AttemptReport(task="t", attempt=1, state="running"))
    assert [type(order.message).__name__ for order in turn.orders] == ["Stop"]
    story.wait(1)
    assert story.state("t") == "queued", "the first attempt still holds what the second would get"
    story.step(m.AttemptEnded(node="n1", task="t", attempt=1, succeeded=False, reason="lost_attempt"))
    story.wait(1)
    assert (story.state("t"), story.task("t")["attempt"]) == ("running", 2)


def test_strangers_of_a_link_that_is_gone_open_no_node() -> None:
    story = Story([node("n1")])
    story.submit(task("t"))
    story.wait(1)
    story.step(m.NodeLost(node="n1"))
    join(story, node("n1"), m.AttemptReport(task="t", attempt=1, state="running"))
    story.step(m.NodeSilent(node="n1"))
    story.step(m.AttemptEnded(node="n1", task="t", attempt=1, succeeded=False))
    story.wait(1)
    assert story.state("t") == "queued"
    join(story, node("n1"), m.AttemptReport(task="t", attempt=1, state="ended"))
    story.wait(1)
    assert story.state("t") == "running"


@pytest.mark.parametrize("second", ["running", "ended"])
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("reason", ["exit 1", "lease", ""])
def test_a_join_that_says_one_attempt_twice_settles_it_once(second: str, retries: int, reason: str) -> None:
    story = Story([node("n1")])
    story.submit(task("t", retries=retries))
    story.wait(1)
    ended = m.AttemptReport(task="t", attempt=1, state="ended", succeeded=not reason, reason=reason)
    join(story, node("n1"), ended, m.AttemptReport(task="t", attempt=1, state=second, reason="exit 2"), ended)
    assert len(story.task("t")["attempts"]) == 1 and story.task("t")["failures"] <= 1
    assert sum(story.names("t").count(end) for end in ("succeeded", "failed", "backoff", "requeued")) == 1


def test_a_reboot_loses_everything_that_ran() -> None:
    story = Story([])
    join(story, node("n1"), boot_id="one")
    story.submit(task("t", retries=0))
    story.wait(1)
    join(story, node("n1"), boot_id="two")
    assert story.names("t")[-1] == "requeued"
    story.wait(1)
    assert story.task("t")["attempt"] == 2


def test_a_late_report_of_an_old_attempt_counts_for_nothing() -> None:
    story = Story([node("n1"), node("n2")])
    story.submit(task("t"))
    story.wait(1)
    first = story.node_of("t")
    assert first is not None
    story.step(m.NodeLost(node=first))
    story.wait(1)
    turn = story.step(m.AttemptEnded(node=first, task="t", attempt=1, succeeded=True))
    assert story.state("t") == "running" and story.task("t")["attempt"] == 2
    assert isinstance(turn.orders[0].message, wire.Settled)


def test_a_drained_node_takes_nothing_new_even_if_it_is_urgent() -> None:
    story = Story([node("n1")])
    story.ask(m.OperateNode(verb="drain", node="n1"))
    story.submit(task("t", qos="critical"))
    story.wait(1)
    assert story.state("t") == "queued"
    assert story.scheduler.view.explain("t")["reason"] == "nodes_closed"
    story.ask(m.OperateNode(verb="uncordon", node="n1"))
    story.wait(1)
    assert story.state("t") == "running"


def test_nobody_stays_on_a_failed_device_and_it_is_used_again_when_healed() -> None:
    story = Story([node("n1", gpus=1)])
    story.submit(task("t", resources={"gpu": 1}))
    story.wait(1)
    story.step(m.DeviceHealth(node="n1", device="gpu-0", health="failed", reason="xid 79"))
    assert story.state("t") == "stopping"
    story.end("t", ok=False, reason="device_failed")
    story.wait(1)
    assert story.state("t") == "queued" and story.task("t")["failures"] == 0
    story.step(m.DeviceHealth(node="n1", device="gpu-0", health="healthy"))
    story.wait(1)
    assert story.state("t") == "running"


def test_other_hardware_is_taken_over_when_the_node_is_empty() -> None:
    story = Story([node("n1", gpus=1)])
    join(story, node("n1", gpus=4))
    story.submit(task("t", resources={"gpu": 4}))
    story.wait(1)
    assert story.state("t") == "running"


def test_an_attempt_that_lost_its_lease_is_lost_and_no_retry_is_used() -> None:
    story = Story([node("n1")])
    story.submit(task("t", retries=0))
    story.wait(1)
    story.end("t", ok=False, reason="lease")
    assert story.state("t") == "queued" and story.task("t")["failures"] == 0
    assert story.task("t")["attempts"][0]["outcome"] == "lost"


REAL = {"health": {"quarantine": True, "auto_cordon": True}}


def test_a_task_that_takes_three_nodes_down_is_poisoned() -> None:
    story = Story([node(f"n{i}") for i in range(4)], config=REAL)
    story.submit(task("t"))
    for _ in range(3):
        story.wait(1)
        where = story.node_of("t")
        assert where is not None
        story.step(m.NodeLost(node=where))
    assert story.state("t") == "failed" and story.names("t")[-1] == "failed"
    assert story.scheduler.view.explain("t")["reason"] == "poisoned"


def test_a_task_whose_leases_end_poisons_nothing() -> None:
    """Nobody led for longer than a lease, three times in its life: its agents were there to tell."""
    story = Story([node("n1")], config=REAL)
    story.submit(task("t", retries=0))
    for _ in range(4):
        story.wait(1)
        story.end("t", ok=False, reason="lease")
    assert story.state("t") == "queued" and story.task("t")["failures"] == 0


def test_leases_that_end_in_between_do_not_acquit_a_task_that_takes_nodes_down() -> None:
    story = Story([node(f"n{i}") for i in range(4)], config=REAL)
    story.submit(task("t"))
    for loss in ("down", "lease", "down", "lease", "down"):
        story.wait(1)
        where = story.node_of("t")
        assert where is not None
        if loss == "down":
            story.step(m.NodeLost(node=where))
        else:
            story.end("t", ok=False, reason="lease")
    assert story.state("t") == "failed"
    assert story.scheduler.view.explain("t")["reason"] == "poisoned"


def test_a_node_that_cannot_start_three_tasks_is_cordoned_and_typos_do_not_count() -> None:
    story = Story([node("n1")], config=REAL)
    for i in range(3):
        story.submit(task(f"typo{i}", retries=0, qos="critical"))
        story.end(f"typo{i}", ok=False, reason="exit 1")
        story.submit(task(f"policy{i}", retries=0, qos="critical"))
        story.end(f"policy{i}", ok=False, reason="cannot_start: policy: user is not allowed")
        story.submit(task(f"wrong{i}", retries=0, qos="critical"))
        story.end(f"wrong{i}", ok=False, reason=f"cannot_start: {OF_THE_TASK[i]}: what-they-typed")
    assert story.scheduler.view.node("n1")["state"] == "ready"
    for i in range(3):
        story.submit(task(f"b{i}", retries=0, qos="critical"))
        story.end(f"b{i}", ok=False, reason="cannot_start: no space left on device")
    assert story.scheduler.view.node("n1")["state"] == "cordoned"


def test_what_agents_say_in_columns_counts_as_if_said_one_by_one() -> None:
    """Also of what was told to stop, of another attempt, of another node, and of nobody."""
    story = Story([node("n1"), node("n2")], start=False)
    story.submit([task("a"), task("b"), task("c"), task("d")])
    story.wait(1)
    on = {ident: str(story.task(ident)["placement"]["node"]) for ident in "abcd"}
    story.step(m.Cancel(ids=("b",)))
    for name in ("n1", "n2"):
        tasks, attempts = wire.columns([("a", 1), ("b", 1), ("c", 2), ("d", 1), ("nobody", 1), ("", 0)])
        story.step(m.AttemptsStarted(node=name, tasks=tasks, attempts=attempts))
        turn = story.step(m.AttemptsSucceeded(node=name, tasks=tasks, attempts=attempts))
        assert [order.message for order in turn.orders] == list(wire.SettledMany(1, tasks, attempts).each())
        assert story.state("a") == "succeeded" or on["a"] != name
    assert [story.state(ident) for ident in "abcd"] == ["succeeded", "cancelled", "placed", "succeeded"]
    assert story.replayed().digest() == story.scheduler.digest()


def test_an_end_that_is_said_twice_in_one_breath_counts_once() -> None:
    """An agent repeats what was not settled yet, and a slow daemon finds both in the same columns."""
    story = Story([node("n1")], start=False)
    story.submit([task("a"), task("b"), task("c")])
    story.wait(1)
    story.step(m.Cancel(ids=("b",)))
    tasks, attempts = wire.columns([("a", 1), ("b", 1), ("a", 1), ("b", 1)])
    turn = story.step(m.AttemptsSucceeded(node="n1", tasks=tasks, attempts=attempts))
    assert [(event.event, event.task) for event in turn.events if event.event != "running"] == [
        ("succeeded", "a"),
        ("cancelled", "b"),
    ]
    assert [story.state(ident) for ident in "abc"] == ["succeeded", "cancelled", "placed"]
    assert story.replayed().digest() == story.scheduler.digest()
