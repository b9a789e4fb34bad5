"""Cells: a task that another one can take goes there once, is taken or comes back, and is never in two."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hetsched.errors import Elsewhere
from hetsched.model import Submission, Task
from hetsched.scheduler import Scheduler, words
from hetsched.scheduler.cells.clerk import Clerk
from hetsched.scheduler.cells.crossings import Crossings
from hetsched.scheduler.cells.letters import Delivered, Letter, Parcel, Verdict
from hetsched.scheduler.judge import Judged
from hetsched.scheduler.messages import Submit
from hetsched.scheduler.templates import template_body
from tests.scheduler.build import node, task
from tests.scheduler.cells_world import Cell, World

CPU = [node("n0", cpu=4), node("n1", cpu=4)]
GPU = [node("g0", cpu=8, gpus=4)]


def two(faults: float = 0.0, seed: int = 1, **config: Any) -> World:
    """A cell of cores, and one with devices."""
    world = World(seed, faults)
    world.add("a", CPU, **config)
    world.add("b", GPU)
    settle(world, 2)
    return world


def restored(cell: Cell) -> Scheduler:
    """What the next leader would know."""
    again = Scheduler.restore(cell.config, cell.snapshot, seed=1)
    for frame in cell.frames:
        again.apply(frame)
    return again


def settle(world: World, seconds: float) -> None:
    """Time passes and nothing goes wrong."""
    faults, world.faults = world.faults, 0.0
    for _ in range(round(seconds / 0.2)):
        world.tick(0.2)
    world.faults = faults


def test_what_no_node_here_could_ever_take_goes_where_one_could() -> None:
    world = two()
    world.cells["a"].submit(task("t", resources={"gpu": 2}))
    settle(world, 2)
    assert world.has("b", "t") and not world.has("a", "t")
    assert world.cells["b"].scheduler.view.task("t")["state"] == "running"
    with pytest.raises(Elsewhere) as elsewhere:
        world.cells["a"].scheduler.view.task("t")
    assert elsewhere.value.cell == "b"


def test_what_nobody_could_take_waits_where_it_was_asked_for() -> None:
    world = two()
    world.cells["a"].submit(task("t", resources={"tpu": 2}))
    settle(world, 2)
    assert world.cells["a"].scheduler.view.explain("t")["reason"] == "unsatisfiable"


def test_a_full_cell_sends_what_another_has_room_for_and_keeps_the_rest() -> None:
    world = two()
    world.cells["a"].submit([task(f"t{n}") for n in range(30)])
    settle(world, 2)
    homes = Counter(name for n in range(30) for name in world.cells if world.has(name, f"t{n}"))
    assert homes == {"a": 22, "b": 8}, "eight run here, eight there, and the others wait at home"
    settle(world, 30)
    world.check_end()


def test_nothing_is_sent_where_somebody_waits_already() -> None:
    world = two()
    world.cells["b"].submit([task(f"b{n}") for n in range(40)])
    settle(world, 2)
    world.cells["a"].submit([task(f"t{n}") for n in range(20)])
    settle(world, 1)
    assert all(world.has("a", f"t{n}") for n in range(20))


def test_what_is_soon_served_here_is_not_sent_elsewhere() -> None:
    """Ten times what fits at once, and all of it done within a second; as soon as one runs that takes longer, the next ones go."""
    world = two()
    cell = world.cells["a"]
    cell.submit([task(f"t{n}", duration=0.01) for n in range(80)])
    settle(world, 1)
    assert all(world.has("a", f"t{n}") for n in range(80))
    settle(world, 60)
    cell.submit([task(f"long{n}", duration=100) for n in range(8)])
    settle(world, 1)
    cell.submit([task(f"u{n}", duration=0.01) for n in range(8)])
    settle(world, 1)
    assert all(world.has("b", f"u{n}") for n in range(8)), "short as they are, nobody makes room for them here"


def test_spilling_can_be_switched_off() -> None:
    world = two(cells={"spill": False})
    world.cells["a"].submit([task(f"t{n}") for n in range(30)])
    settle(world, 2)
    assert all(world.has("a", f"t{n}") for n in range(30))


def test_a_queue_that_belongs_to_another_cell_is_served_there_although_there_is_room_here() -> None:
    world = two(cells={"queues": {"vision": ["b"]}})
    world.cells["a"].submit([task("t", queue="vision/deep"), task("u", queue="speech")])
    settle(world, 2)
    assert world.has("b", "t") and world.has("a", "u")


def test_a_gang_goes_whole_or_not_at_all() -> None:
    world = two()
    gang = {"id": "g", "size": 4}
    world.cells["a"].submit([task(f"m{n}", gang=gang, resources={"gpu": 1}) for n in range(4)])
    world.cells["a"].submit(task("lone", gang={"id": "h", "size": 2}, resources={"gpu": 1}))
    settle(world, 2)
    assert [world.cells["b"].scheduler.view.task(f"m{n}")["state"] for n in range(4)] == ["running"] * 4
    assert world.has("a", "lone"), "the others may still come, and come here"


def test_the_same_task_again_is_the_same_task_wherever_it_is() -> None:
    world = two()
    body = task("t", resources={"gpu": 2}, deadline=100)
    world.cells["a"].submit(body)
    world.cells["a"].submit(body)
    settle(world, 2)
    world.cells["a"].submit(body)
    settle(world, 2)
    assert world.where["t"] == {"b": 1}
    world.acknowledged.clear()
    world.cells["a"].submit(task("t", resources={"gpu": 3}))
    settle(world, 1)
    assert not world.acknowledged, "another body under this name is refused"


def test_a_task_on_its_way_waits_in_words_and_can_be_cancelled() -> None:
    world = two()
    cell = world.cells["a"]
    cell.submit(task("t", resources={"gpu": 2}))
    cell.act()
    told = cell.scheduler.view.task("t")
    assert (told["state"], told["reason"], told["cell"]) == ("queued", "in_cell", "b")
    assert cell.scheduler.view.explain("t")["reason"] == "in_cell"
    cell.cancel("t")
    settle(world, 3)
    assert world.cells["b"].scheduler.view.task("t")["state"] == "cancelled"


def test_room_that_is_gone_when_the_task_comes_sends_it_home_for_good() -> None:
    world = two()
    a, b = world.cells["a"], world.cells["b"]
    a.submit([task(f"t{n}") for n in range(12)])
    a.act()
    b.submit([task(f"b{n}") for n in range(8)])
    b.submit([task(f"c{n}") for n in range(8)])
    inbox = world.inboxes["b"]
    held, inbox.entries = inbox.entries, []
    b.act()
    inbox.entries = held
    settle(world, 1)
    assert all(world.has("a", f"t{n}") for n in range(12)) and a.scheduler.books.crossings.sent == {"b": 1}
    settle(world, 40)
    world.check_end()
    assert a.scheduler.books.crossings.sent == {"b": 1}, "what came back is never sent again"


def test_as_many_that_are_elsewhere_are_remembered_as_ended_tasks_are() -> None:
    world = two(limits={"retention_tasks": 5})
    cell = world.cells["a"]
    for number in range(9):
        cell.submit(task(f"t{number}", resources={"gpu": 0.1}))
        settle(world, 2)
    assert list(cell.scheduler.books.crossings.away) == [f"t{number}" for number in range(4, 9)]
    assert cell.scheduler.digest() == restored(cell).digest()


def test_a_letter_of_another_life_of_a_cell_counts_on_its_own() -> None:
    """A cell whose journal was given up begins its numbers anew."""
    world = two()
    world.cells["a"].submit(task("t", resources={"gpu": 1}))
    settle(world, 2)
    fresh = world.add("a", CPU)
    fresh.sender = "a/2"
    settle(world, 1)
    fresh.submit(task("u", resources={"gpu": 1}))
    settle(world, 2)
    assert world.has("b", "u")


@pytest.mark.parametrize("seed", range(12))
def test_whoever_dies_and_whatever_is_lost_each_task_runs_in_one_cell(seed: int) -> None:
    storm(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_storms(capsys: pytest.CaptureFixture[str]) -> None:
    happened, tasks = Counter[str](), 0
    for seed in range(1000):
        world = storm(seed)
        happened += world.happened
        tasks += len(world.acknowledged)
    with capsys.disabled():
        print(f"\n1000 storms over three cells, {tasks} tasks, 0 lost, 0 in two: {dict(happened)}")


# ---------------------------------------------------------------------- deliberate bugs, each of which a storm has to notice


def _every_parcel_is_new(clerk: Clerk, delivered: Delivered, parcel: Parcel) -> None:
    clerk.crossings.taken[delivered.sender] = parcel.number - 1
    on_parcel(clerk, delivered, parcel)


def _a_missing_one_is_skipped(clerk: Clerk, delivered: Delivered, parcel: Parcel) -> None:
    if parcel.number > clerk.crossings.taken.get(delivered.sender, 0):
        clerk.crossings.taken[delivered.sender] = parcel.number - 1
    on_parcel(clerk, delivered, parcel)


def _said_once(clerk: Clerk, delivered: Delivered, parcel: Parcel) -> None:
    if parcel.number > clerk.crossings.taken.get(delivered.sender, 0):
        on_parcel(clerk, delivered, parcel)


def _refuses_what_it_knows(clerk: Clerk, delivered: Delivered, parcel: Parcel) -> None:
    if parcel.number <= clerk.crossings.taken.get(delivered.sender, 0):
        everything = tuple(range(len(parcel.tasks)))
        clerk.world.letters.append(Letter(delivered.sender[0], Verdict(delivered.sender, parcel.number, everything)))
    else:
        on_parcel(clerk, delivered, parcel)


def _kept_and_sent(clerk: Clerk, asked: Submit, items: list[Judged]) -> list[Judged]:
    let_go(clerk, asked, items)
    return items


def _sent_again(clerk: Clerk, tasks: list[Task], why: str, cancelled: set[str]) -> None:
    items = [Judged(id=task.id, task=task, body=template_body(task)) for task in tasks]
    clerk._submissions.settle(items, Submit(submission=Submission(single=False, items=[*tasks])))


def _forgets_who_was_cancelled(clerk: Clerk, tasks: list[Task], why: str, cancelled: set[str]) -> None:
    take_back(clerk, tasks, why, set())


def _forgets_its_place(crossings: Crossings, word: words.Heard) -> None:
    apply_heard(crossings, word)
    crossings.taken.pop(word.sender, None)


on_parcel, let_go, take_back, apply_heard = Clerk._on_parcel, Clerk.let_go, Clerk._take_back, Crossings.apply_heard
SEEDS = 60
MUTANTS = {
    "every parcel is taken, also one that was": (Clerk, "_on_parcel", _every_parcel_is_new),
    "a parcel that is missing is passed over": (Clerk, "_on_parcel", _a_missing_one_is_skipped),
    "a verdict is said once": (Clerk, "_on_parcel", _said_once),
    "a parcel that was taken is refused when it comes again": (Clerk, "_on_parcel", _refuses_what_it_knows),
    "what was sent is kept as well": (Clerk, "let_go", _kept_and_sent),
    "what came back is sent again": (Clerk, "_take_back", _sent_again),
    "a cancellation is forgotten on the way": (Clerk, "_take_back", _forgets_who_was_cancelled),
    "nobody is reminded": (Clerk, "on_remind", lambda clerk, asked: None),
    "numbers that were taken are not kept": (Crossings, "apply_heard", _forgets_its_place),
    "letters leave before the frame is there": (World, "hasty", True),
}


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_storm_notices(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[bug])
    for seed in range(SEEDS):
        try:
            storm(seed)
        except (AssertionError, LookupError, ValueError):
            return
    pytest.fail(f"{SEEDS} storms, and nobody noticed that {bug}")


# ---------------------------------------------------------------------- the storm


def storm(seed: int) -> World:
    """Three cells under all faults for a minute, then peace."""
    world = World(seed, faults=0.05)
    world.add("a", CPU, cells={"queues": {"far": ["b", "c"]}})
    world.add("b", GPU)
    world.add("c", [node("c0", cpu=16)])
    settle(world, 8)  # all have heard of all: what nobody was known to take when it was asked for waits where it is
    chance = world.random
    for number in range(60):
        cell = chance.choice(list(world.cells.values()))
        ident = f"{cell.name}{number}"
        kind = chance.randrange(5)
        if kind == 0:
            cell.submit([task(f"{ident}-{n}", resources={"gpu": 1}, gang={"id": ident, "size": 2}) for n in range(2)])
        elif kind == 1:
            cell.submit([task(f"{ident}-{n}", cpu=chance.choice([1, 2])) for n in range(chance.randint(1, 12))])
        elif kind == 2:
            cell.submit(task(ident, queue="far"))
        elif kind == 3:
            cell.submit(task(ident, resources={"gpu": chance.randint(1, 4)}))
        elif crossing := world.on_their_way():
            home, ident = chance.choice(crossing)
            home.cancel(ident)
        elif world.acknowledged:
            chance.choice(list(world.cells.values())).cancel(chance.choice(sorted(world.acknowledged)))
        world.tick(chance.random() * 2)
        world.check()
    world.faults = 0.0
    for _ in range(600):
        world.tick(1.0)
        if all(ended(world, task) for task in world.acknowledged):
            break
    settle(world, 10)
    world.check_end()
    return world


def ended(world: World, ident: str) -> bool:
    having = world.homes(ident)
    return len(having) == 1 and world.cells[having[0]].scheduler.view.task(ident)["state"] in ("succeeded", "cancelled")
