"""What waiting tasks are told: when they start, what would help them, what stands in their way. One story a promise."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.model import parse_submission
from hetsched.scheduler import messages as m
from hetsched.scheduler import rehearse
from hetsched.scheduler.rehearse import Advice
from hetsched.scheduler.seen import Seen
from tests.scheduler.build import Story, node, task
from tests.scheduler.typed import typed
from tests.scheduler.whatif import Real, patient


def advice(story: Story, ident: str) -> Advice:
    found = rehearse.advise(rehearse.take(story.scheduler), ident, story.now_ns, patient)
    assert found is not None
    return found


def remedy(story: Story, ident: str, code: str) -> dict[str, Any]:
    found = [one for one in advice(story, ident).remedies if one["code"] == code]
    assert found, advice(story, ident)
    return found[0]


def plan(story: Story, body: Any) -> dict[str, Any]:
    told = rehearse.plan(rehearse.take(story.scheduler), parse_submission(body), story.now_ns, patient)
    assert isinstance(told, dict), told
    return told


def busy(*, known: bool = True) -> Story:
    """Two nodes of four GPUs; `a` has two left, `b` one. Ends: a in 600 s, b in 300 s."""
    story = Story([node("a", gpus=4), node("b", gpus=4, model="H100", labels={"zone": "z2"})])
    for ident, model, gpus, seconds in (("ra", "A100", 2, 600), ("rb", "H100", 3, 300)):
        ends = {"duration": seconds} if known else {}
        story.submit(task(ident, models=[model], resources={"gpu": gpus}, **ends))
    story.wait(1)
    return story


# ---------------------------------------------------------------------- when


def test_it_starts_when_what_is_in_its_way_ends() -> None:
    story = busy()
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    told = advice(story, "w")
    assert told.eta is not None and 297 <= told.eta["p50"] <= 299.1
    assert "wait for rb" in remedy(story, "w", "wait")["detail"]


def test_an_estimate_may_be_twice_as_long_a_limit_bounds_it() -> None:
    story = Story([node("a", gpus=1)])
    story.submit(task("r", resources={"gpu": 1}, estimate=100, time_limit=150))
    story.submit(task("w", resources={"gpu": 1}))
    story.wait(1)
    eta = advice(story, "w").eta
    assert eta is not None
    assert (round(eta["p50"]), round(eta["p90"])) == (99, 149)


def test_what_nobody_knows_has_no_eta_but_a_reason() -> None:
    story = busy(known=False)
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    told = advice(story, "w")
    assert told.eta is None
    assert "has a duration, an estimate or a time_limit" in str(told.eta_reason)


def test_who_has_a_claim_waits_for_the_grace_of_the_victims() -> None:
    story = Story([node("a", gpus=1)])
    story.submit(task("victim", resources={"gpu": 1}, qos="background", grace=20))
    story.wait(1)
    story.submit(task("urgent", resources={"gpu": 1}, qos="critical"))
    eta = advice(story, "urgent").eta
    assert eta is not None and eta["p90"] == pytest.approx(20, abs=0.1)


def test_what_is_held_or_could_never_run_is_not_foreseen() -> None:
    story = busy()
    story.submit(task("u", resources={"gpu": 9}))
    story.submit(task("h", cpu=1, after=["u"]))
    story.wait(1)
    assert advice(story, "u").eta_reason == "no node could ever take it"
    assert advice(story, "h").eta is None


def test_tasks_that_do_not_wait_are_given_no_advice() -> None:
    story = busy()
    assert rehearse.advise(rehearse.take(story.scheduler), "ra", story.now_ns, patient) is None
    assert rehearse.advise(rehearse.take(story.scheduler), "nobody", story.now_ns, patient) is None


def test_when_the_time_is_over_what_was_found_by_then_is_the_answer() -> None:
    story = busy()
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    told = rehearse.advise(rehearse.take(story.scheduler), "w", story.now_ns, lambda part: lambda: True)
    assert told is not None and told.eta is None and told.remedies == []


# ---------------------------------------------------------------------- whom it waits for


def waits_for(story: Story, ident: str) -> str:
    return str(remedy(story, ident, "wait")["detail"])


def test_who_is_held_waits_for_what_holds_it_whoever_ends_last_on_its_node() -> None:
    story = Story([node("a", gpus=4), node("b", gpus=4, model="H100")])
    story.submit(task("ea", models=["A100"], resources={"gpu": 4}, duration=60))
    story.submit(task("eb", models=["H100"], resources={"gpu": 4}, duration=20))
    story.wait(1)
    story.submit(task("ew", models=["H100"], resources={"gpu": 4}, duration=5))
    story.submit(task("ec", models=["H100"], resources={"gpu": 4}, after=["ea"]))
    story.submit(task("ed", models=["H100"], resources={"gpu": 4}, after=["ea", "eb"], priority=-1))
    story.wait(1)
    assert waits_for(story, "ec") == "wait for ea: starts in about 58 s on b"
    assert waits_for(story, "ew") == "wait for eb: starts in about 18 s on b"
    story.ask(m.Cancel(ids=("ec",)))
    assert waits_for(story, "ed") == "wait for ea: starts in about 58 s on b"


def test_who_is_let_go_while_there_is_no_room_waits_for_both() -> None:
    story = Story([node("a", gpus=1), node("b", gpus=1, model="H100")])
    story.submit(task("parent", models=["A100"], resources={"gpu": 1}, duration=20))
    story.submit(task("r", models=["H100"], resources={"gpu": 1}, duration=60))
    story.wait(1)
    story.submit(task("w", models=["H100"], resources={"gpu": 1}, after=["parent"]))
    story.wait(1)
    assert waits_for(story, "w") == "wait for parent, r: starts in about 58 s on b"


def test_who_is_over_the_limit_of_its_queue_waits_for_what_is_in_the_queue() -> None:
    story = Story([node("a", gpus=1), node("b", gpus=1, model="H100")])
    story.queue(name="team", limit={"gpu": 1})
    story.submit(task("mine", models=["A100"], resources={"gpu": 1}, queue="team", duration=60))
    story.submit(task("other", models=["H100"], resources={"gpu": 1}, duration=20))
    story.wait(1)
    story.submit(task("w", models=["H100"], resources={"gpu": 1}, queue="team"))
    story.wait(1)
    assert waits_for(story, "w") == "wait for mine: starts in about 58 s on b"


def test_a_member_waits_for_the_last_place_of_its_gang() -> None:
    story = Story([node("a", gpus=1), node("b", gpus=1)])
    story.submit(task("early", resources={"gpu": 1}, duration=20))
    story.submit(task("late", resources={"gpu": 1}, duration=60))
    story.wait(1)
    story.submit({"template": task("g", resources={"gpu": 1}, gang={"id": "g", "size": 2}), "count": 2})
    story.wait(1)
    for member in ("g-0", "g-1"):
        assert waits_for(story, member).startswith("wait for late: starts in about 58 s")


def test_who_pauses_waits_for_nobody() -> None:
    story = Story([node("a", gpus=1)])
    story.submit(task("w", resources={"gpu": 1}, retries=3))
    story.wait(1)
    story.submit(task("short", resources={"gpu": 1}, duration=0.1))
    story.end("w", ok=False, reason="exit 1")
    story.step()
    assert story.state("w") == "backoff"
    assert waits_for(story, "w").startswith("wait: starts in about")


# ---------------------------------------------------------------------- who does not live to see it


def full(*, seconds: float = 30) -> Story:
    """One node, full for so long."""
    story = Story([node("a", gpus=4)])
    story.submit(task("r", resources={"gpu": 4}, duration=seconds))
    story.wait(1)
    return story


def test_who_expires_before_it_could_start_is_told_both_times_and_promised_nothing_too_late() -> None:
    story = full()
    expiring = {"on_deadline": "expire", "resources": {"gpu": 4}}
    planned = plan(story, [task("p", deadline=6, **expiring), task("q", deadline=600, **expiring)])["tasks"]
    assert planned[0]["eta"] is None and planned[1]["eta"]["p50"] == pytest.approx(29, abs=0.2)
    assert planned[0]["eta_reason"] == "its deadline ends it in about 6 s, and it would start in about 29 s"
    story.submit(task("w", deadline=8, **expiring))
    story.wait(1)
    told = advice(story, "w")
    assert told.eta is None
    assert told.eta_reason == "its deadline ends it in about 7 s, and it would start in about 28 s"
    assert all(one["effect"]["eta_seconds"] < 7 for one in told.remedies), told.remedies
    story.wait(7)
    assert story.state("w") == "expired"


def test_a_deadline_that_ends_nothing_or_comes_after_the_start_changes_no_answer() -> None:
    for extra in ({"deadline": 8}, {"deadline": 60, "on_deadline": "expire"}, {}):
        story = full()
        story.submit(task("w", resources={"gpu": 4}, **extra))
        story.wait(1)
        eta = advice(story, "w").eta
        assert eta is not None and eta["p50"] == pytest.approx(28, abs=0.2), extra
        assert "wait for r: starts in about 28 s on a" == remedy(story, "w", "wait")["detail"]


def test_a_reservation_is_no_start_for_who_expires_before_it() -> None:
    for extra, known in (({}, True), ({"deadline": 8}, True), ({"deadline": 8, "on_deadline": "expire"}, False)):
        story = Story([node("a", cpu=4)])
        story.submit(task("r", cpu=3, duration=100))
        story.wait(1)
        story.submit(task("first", cpu=4, **extra))
        story.submit(task("w", cpu=1))
        story.wait(1)
        told = story.scheduler.view.explain("first")
        assert "reserved" in [told["reason"], *(one["reason"] for one in told["secondary"])]
        assert (told["eta_seconds"] is not None) is known, extra


def test_who_expires_is_not_waited_for() -> None:
    story = full()
    story.submit(task("dl", resources={"gpu": 4}, duration=100, deadline=8, on_deadline="expire", priority=9))
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    eta = advice(story, "w").eta
    assert eta is not None and eta["p50"] == pytest.approx(28, abs=0.2)
    assert "wait for r:" in remedy(story, "w", "wait")["detail"]


def test_a_victim_that_may_take_longer_than_the_deadline_is_no_remedy() -> None:
    for deadline, helps in ((10, False), (100, True)):
        story = Story([node("a", gpus=1)])
        story.submit(task("r", resources={"gpu": 1}, qos="background", grace=20))
        story.wait(1)
        body = task("w", resources={"gpu": 1}, qos="background", deadline=deadline, on_deadline="expire")
        story.submit(body)
        story.wait(1)
        assert ("qos" in [one["code"] for one in advice(story, "w").remedies]) is helps


def test_a_claim_is_promised_no_start_after_the_deadline_that_ends_its_task() -> None:
    for deadline, last_s in ((10, 10.0), (100, 20.0)):
        story = Story([node("a", gpus=1)])
        story.submit(task("soft", resources={"gpu": 1}, qos="background", grace=20))
        story.wait(1)
        body = task("boss", resources={"gpu": 1}, qos="critical", deadline=deadline, on_deadline="expire")
        (planned,) = plan(story, body)["tasks"]
        assert (planned["starts"], planned["eta"]) == ("after_victims", {"p50": 0.0, "p90": pytest.approx(last_s)})
        assert ("eta_reason" in planned) is (deadline < 20)
    assert "20 s" in plan(story, {**body, "deadline": 10})["tasks"][0]["eta_reason"]


def test_who_waits_for_one_that_expires_first_is_told_that_it_will_not_run() -> None:
    """Of the whole line of them, in a plan, too; of one that starts however the other ends, when."""
    story = full()
    story.submit(task("late", resources={"gpu": 4}, deadline=8, on_deadline="expire"))
    story.submit([task("child", after=["late"]), task("grandchild", after=["child"])])
    story.submit(task("heir", after=[{"id": "late", "when": "ended"}]))
    story.wait(1)
    child, grandchild, heir = (advice(story, ident) for ident in ("child", "grandchild", "heir"))
    assert (
        child.eta is None
        and child.eta_reason == "it waits for others, and late will not run by its deadline: then it is skipped"
    )
    assert grandchild.eta_reason == "it waits for others, and child will be skipped: then it is skipped"
    assert heir.eta is not None and heir.eta["p50"] == pytest.approx(7, abs=0.2)
    (planned,) = plan(story, task("p", after=["late"]))["tasks"]
    assert planned["eta_reason"] == child.eta_reason
    story.wait(8)
    assert [story.state(ident) for ident in ("late", "child", "grandchild")] == ["expired", "skipped", "skipped"]


def test_what_nobody_knows_is_said_of_who_expires_too() -> None:
    story = busy(known=False)
    story.submit(task("w", resources={"gpu": 4}, deadline=50, on_deadline="expire"))
    story.wait(1)
    told = advice(story, "w")
    assert told.eta is None
    assert told.eta_reason == "its deadline ends it in about 49 s, and nothing is known that would let it start before"


# ---------------------------------------------------------------------- what would help


def test_fewer_devices_a_smaller_ask_is_the_largest_that_starts_now() -> None:
    story = busy()
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    found = remedy(story, "w", "devices")
    assert found["detail"] == "ask 2 gpu instead of 4: starts now on a"
    assert found["change"] == {"resources": {"cpu": 1, "gpu": 2}}
    assert advice(story, "w").free == {"gpu": {"asked": 4.0, "free": 3.0, "largest_on_one_node": 2}}


@pytest.mark.parametrize(
    ("nodes", "body", "code", "said"),
    [
        (
            [node("a", gpus=1), node("b", gpus=1, model="H100")],
            {"resources": {"gpu": 1}, "models": ["B200"]},
            "model",
            "allow gpu model B200|A100: starts now on a",
        ),
        (
            [node("a", labels={"zone": "z1"}), node("b", labels={"zone": "z2"}, cpu=2)],
            {"cpu": 4, "node_selector": {"zone": "z3"}},
            "node_selector",
            "allow zone z3|z1: starts now on a",
        ),
        (
            [node("a")],
            {"node_selector": {"zone": "z3"}},
            "node_selector",
            "drop the selector zone=z3: starts now on a",
        ),
        (
            [node("a", taints=[{"key": "only", "value": "us", "effect": "NoSchedule"}])],
            {},
            "toleration",
            "tolerate the taint only=us:NoSchedule: starts now on a",
        ),
        (
            [node("a", gpus=1)],
            {"resources": {"gpu": 1, "gpu_memory": "80Gi"}},
            "device_memory",
            "ask 40Gi on each gpu instead of 80Gi: starts now on a",
        ),
        ([node("a", cpu=8)], {"cpu": 10}, "cpu", "ask 8 cores instead of 10: starts now on a"),
        (
            [node("a", memory="32Gi")],
            {"resources": {"memory": "48Gi"}},
            "memory",
            "ask 32Gi of memory instead of 48Gi: starts now on a",
        ),
    ],
)
def test_one_change_of_the_request(nodes: Any, body: dict[str, Any], code: str, said: str) -> None:
    story = Story(nodes)
    story.submit(task("w", cpu=body.pop("cpu", 1), **body))
    story.wait(1)
    assert remedy(story, "w", code)["detail"] == said


def test_a_hand_of_the_operator() -> None:
    story = Story([node("a"), node("b", gpus=1)])
    story.queue(name="team", limit={"cpu": 2})
    story.ask(m.OperateNode(verb="cordon", node="b"))
    story.submit(task("r", cpu=2, queue="team"))
    story.submit(task("limited", cpu=1, queue="team"))
    story.submit(task("shut", resources={"gpu": 1}))
    story.submit(task("held"))
    story.wait(0)
    story.ask(m.Operate(verb="hold", task="held"))
    story.wait(1)
    limit = remedy(story, "limited", "queue_limit")
    assert limit["detail"].startswith("raise the limit of queue team to cpu 3: starts now on")
    assert limit["calls"][0]["path"] == "/v1/queues/team" and limit["calls"][0]["body"]["limit"] == {"cpu": 3.0}
    assert remedy(story, "shut", "uncordon")["detail"] == "uncordon b: starts now on b"
    assert remedy(story, "held", "release")["detail"].startswith("release it: starts now on")


def test_the_command_that_raises_limits_is_whole_and_keeps_the_others() -> None:
    story = Story([node("a", cpu=8, gpus=4)])
    story.queue(name="lab", limit={"cpu": 2, "memory": "32Gi"})
    story.queue(name="lab/x", weight=3, guaranteed={"cpu": 1}, limit={"cpu": 1.5, "memory": 3000000001, "gpu": 2})
    story.submit(task("r", cpu=1, resources={"memory": 2000000000, "gpu": 1}, queue="lab/x"))
    story.submit(task("w", cpu=1.5, resources={"memory": 2147483649, "gpu": 2}, queue="lab/x"))
    story.wait(1)
    limit = remedy(story, "w", "queue_limit")
    assert limit["how"] == (
        "hetsched queue set lab/x --limit cpu=2.5 --limit memory=4147483649 --limit gpu=3"
        " && hetsched queue set lab --limit cpu=2.5 --limit memory=32Gi"
    )
    typed(story, limit["how"])
    story.wait(1)
    assert story.node_of("w") == "a"
    kept = story.scheduler.view.queue("lab/x")
    assert kept["weight"] == 3 and kept["guaranteed"] == {"cpu": 1}


def test_who_waits_for_another_is_told_so_and_nothing_of_room_kept_for_a_third() -> None:
    story = Story([node("a", cpu=4)])
    story.submit(task("r", cpu=3, duration=100))
    story.submit(task("other", cpu=1))
    story.wait(1)
    story.submit(task("first", cpu=4))
    story.end("other")
    story.submit(task("child", cpu=1, after=["r"]))
    story.submit(task("never", cpu=1, after=["first", {"id": "r", "when": "ended"}]))
    story.submit(task("sad", cpu=1, after=[{"id": "r", "when": "failed"}]))
    story.wait(1)
    told = story.scheduler.view.explain("child")
    assert told["reason"] == "dependency" and "behind_reservation" not in [one["reason"] for one in told["secondary"]]
    child = advice(story, "child").eta_reason  # `first` takes the node when `r` ends, and says nothing of its own end
    assert child is not None and child.startswith("no running task that stands in its way has a duration")
    never, sad = advice(story, "never").eta_reason, advice(story, "sad").eta_reason
    assert never == "it waits for the end of first (queued), r (running), and nobody knows when that is"
    assert sad == "it starts only if r fails, and nobody can know that"
    planned = plan(story, {"resources": {"cpu": 1}, "after": ["never"]})["tasks"][0]
    assert planned["eta_reason"] == "it waits for the end of never (held), and nobody knows when that is"


def test_before_others() -> None:
    story = Story([node("a", gpus=1)])
    story.submit(task("r", resources={"gpu": 1}, qos="background", grace=7))
    story.wait(1)
    story.submit(task("w", resources={"gpu": 1}, qos="background"))
    story.wait(1)
    found = remedy(story, "w", "qos")
    assert found["detail"] == "raise its qos to production: starts on a once r gave way, at most 7 s"
    assert found["effect"]["victims"] == ["r"] and found["effect"]["price_device_seconds"] > 0


def test_who_is_over_in_time_may_use_reserved_room() -> None:
    story = Story([node("a", cpu=4)])
    story.submit(task("r", cpu=3, duration=100))
    story.wait(1)
    story.submit(task("first", cpu=4))
    story.submit(task("w", cpu=1))
    story.wait(1)
    assert story.scheduler.view.explain("w")["reason"] == "behind_reservation"
    assert remedy(story, "w", "time_limit")["detail"] == "limit its run time to 97 s: starts now on a"


def test_a_gang_is_changed_as_a_whole() -> None:
    story = Story([node("a", cpu=4), node("b", cpu=4)])
    story.submit({"template": task("g", cpu=4, gang={"id": "g", "size": 3}), "count": 3})
    story.submit({"template": task("part", cpu=1, gang={"id": "part", "size": 3}), "count": 2})
    story.wait(1)
    assert "start with 2 members instead of 3: starts now" in remedy(story, "g-0", "min_size")["detail"]
    assert "submit the 1 members that gang part lacks: starts now" in remedy(story, "part-0", "members")["detail"]


def test_the_cheapest_comes_first_and_there_are_at_most_five() -> None:
    story = Story([node(f"n{at}", cpu=4, gpus=1, labels={"zone": "z1"}) for at in range(3)])
    story.submit(
        task(
            "w",
            cpu=3,
            resources={"gpu": 1, "gpu_memory": "80Gi"},
            models=["B200"],
            node_selector={"zone": "z2"},
        )
    )
    story.submit(task("v", cpu=16, resources={"gpu": 1, "memory": "1Ti"}))
    story.submit(task("u", cpu=9, resources={"gpu": 2}, qos="best_effort"))
    story.wait(1)
    for ident in ("w", "v", "u"):
        told = advice(story, ident)
        assert 1 <= len(told.remedies) <= 5
        assert told.remedies[-1]["code"] == "nearest", "no single change is enough for any of these"


# ---------------------------------------------------------------------- what could never run


def test_the_constraint_that_rules_out_most_is_named_with_what_would_do() -> None:
    story = Story([node("a", gpus=8), node("b", gpus=4), node("c")])
    story.submit(task("w", resources={"gpu": 16}))
    story.wait(1)
    found = advice(story, "w").constraint
    assert found is not None
    assert found["detail"] == "resources.gpu 16 alone rules out 3 of 3 nodes"
    assert found["nearest"] == {
        "detail": "ask 8 gpu instead of 16",
        "change": {"resources": {"cpu": 1, "gpu": 8}},
        "nodes": 1,
    }


def test_the_nearest_request_may_start_later() -> None:
    story = Story([node("a", gpus=2)])
    story.submit(task("r", resources={"gpu": 1}, duration=100))
    story.wait(1)
    story.submit(task("w", resources={"gpu": 3}))
    story.wait(1)
    remedies = {one["detail"] for one in advice(story, "w").remedies}
    assert "ask 1 gpu instead of 3: starts now on a" in remedies


# ---------------------------------------------------------------------- plans


def test_a_plan_tells_where_whom_it_evicts_and_why_not() -> None:
    story = busy()
    story.submit(task("cheap", resources={"gpu": 1}, qos="background", models=["H100"], duration=1000))
    story.wait(10)
    told = plan(
        story,
        [
            task("now", resources={"gpu": 2}),
            task("evicts", resources={"gpu": 1}, models=["H100"], qos="critical"),
            task("waits", resources={"gpu": 4}, models=["H100"]),
            task("never", resources={"gpu": 9}),
            {"resources": {"cpu": -1}},
            task("ra", models=["A100"], resources={"gpu": 2}, duration=600),
        ],
    )
    now, evicts, waits, never, known = told["tasks"]
    assert (now["starts"], now["placement"]["node"]) == ("now", "a")
    assert (evicts["starts"], [v["id"] for v in evicts["victims"]]) == ("after_victims", ["cheap"])
    assert evicts["price_device_seconds"] == pytest.approx(10, abs=0.2)
    assert (waits["starts"], waits["reason"]) == ("later", "no_capacity")
    assert (never["reason"], never["eta"]) == ("unsatisfiable", None)
    assert known["known"] and known["state"] == "running"
    assert [item["index"] for item in told["rejected"]] == [4]
    assert told["summary"]["victims"] == 1


def test_a_plan_tells_what_a_gang_would_take_back_for_its_queue() -> None:
    story = Story([node("a", gpus=4)])
    story.queue(name="owner", guaranteed={"gpu": 2})
    guest = task("guest", qos="best_effort", queue="guest", resources={"gpu": 1}, duration=1000, grace=7)
    story.submit({"template": guest, "count": 4})
    story.wait(10)
    crew = task("crew", qos="best_effort", queue="owner", resources={"gpu": 1}, gang={"id": "crew", "size": 2})
    told = plan(story, {"template": crew, "count": 2})
    assert {one["starts"] for one in told["tasks"]} == {"after_victims"}
    assert (told["summary"]["victims"], told["summary"]["price_device_seconds"]) == (2, pytest.approx(20, abs=0.3))
    story.submit({"template": crew, "count": 2})
    story.wait(1)
    claim = story.scheduler.view.explain("crew-0")["claim"]
    assert claim["node"] == "a" and claim["victims"][0].startswith("guest")


def test_a_plan_without_an_id_uses_none_up() -> None:
    story = busy()
    before = story.scheduler.digest()
    assert plan(story, {"resources": {"cpu": 1}})["tasks"][0]["id"] is None
    assert story.scheduler.digest() == before


def test_a_copy_decides_nothing_for_the_scheduler_and_nothing_for_another_copy() -> None:
    story = busy()
    image = rehearse.take(story.scheduler)
    first, second = rehearse.load_copy(image), rehearse.load_copy(image)
    first.step([m.OperateNode(verb="cordon", node="a"), m.NodeLost(node="b")], story.now_ns)
    assert second.view.node("a")["state"] == "ready"
    assert story.scheduler.view.node("b")["state"] == "ready"
    assert second.core.digest() == story.scheduler.core.digest()


def test_a_remedy_is_done_by_its_calls() -> None:
    story = busy()
    story.submit(task("w", resources={"gpu": 4}, deadline=5000, priority=3))
    story.wait(1)
    real = Real(story)
    (ident,) = real.do(remedy(story, "w", "devices")["calls"])
    real.wait(0.1)
    assert real.node_of(ident) == "a" and real.state("w") == "cancelled"
    assert real.task(ident)["priority"] == 3 and real.task(ident)["deadline"] == story.task("w")["deadline"]


# ---------------------------------------------------------------------- reasons seen


def test_reasons_are_remembered_with_first_and_last_sight() -> None:
    story = busy()
    story.submit(task("w", resources={"gpu": 4}))
    story.wait(1)
    story.scheduler.view.explain("w")
    story.wait(10)
    story.ask(m.Operate(verb="hold", task="w"))
    history = story.scheduler.view.explain("w")["history"]
    assert [(sight["reason"], sight["count"]) for sight in history] == [("held", 1), ("no_capacity", 1)]
    story.ask(m.Operate(verb="release", task="w"))
    story.wait(1)
    history = story.scheduler.view.explain("w")["history"]
    assert [(sight["reason"], sight["count"]) for sight in history] == [("no_capacity", 2), ("held", 1)]
    assert history[0]["first_seen"] < history[1]["first_seen"] < history[0]["last_seen"]


def test_sights_are_bounded_and_the_oldest_goes_first() -> None:
    seen = Seen()
    for at in range(12):
        seen.note("t", f"reason-{at}", at)
    assert [sight.reason for sight in seen.of("t")] == [f"reason-{at}" for at in range(11, 3, -1)]
    for at in range(30_000):
        seen.note(at, "x", at)
    assert seen.of("t") == [] and seen.of(29_999)[0].times == 1
