"""Runs of plain tasks: told many at a time, held whole, replayed to the same tables; and what is kept of attempts that are over."""

from __future__ import annotations

import pytest

from hetsched import _core
from hetsched._core import NEVER_NS, NONE, Core, Run, array_keys, check_columns, part_keys
from hetsched.wire import Ids

GIB = 1 << 30
PLAIN, PECULIAR = 0, 1


def cluster() -> Core:
    core = Core(policy=_core.POLICY_FIRST_FIT, checked=True)
    core.begin(1)
    core.add_queue(NONE, 1)
    for _ in range(2):
        core.add_node(4000, 64 * GIB, [(0, 3, 40 * GIB, -1, -1)] * 2)
    core.add_shape(1000, GIB, [(0, 0, 1, 500, 0, ())], 0)
    core.set_plain(PLAIN, True)
    core.set_plain(PECULIAR, False)
    return core


def accept(core: Core, keys: bytes, template: int) -> bytes:
    count = keys.count(b"\n") + 1
    return core.accept_mixed(keys, bytes(2 * count), [(template, 0, 0, 1, 0, 0, NEVER_NS, 0)], 1)


def live_on(core: Core, node: int, *ids: str) -> bytes:
    columns = Ids.of(ids)
    return core.live_on(node, columns.heads, columns.which, columns.numbers, b"\1\0" * len(ids))


def runs_of(core: Core) -> list[tuple[object, ...] | Run]:
    return core.peek_runs(0)[0]


def test_facts_of_plain_tasks_are_told_together_and_by_node() -> None:
    core = cluster()
    accept(core, array_keys(b"t-", 0, 6), PLAIN)
    core.decide(15)
    _, run = runs_of(core)
    assert isinstance(run, Run)
    assert (len(run), run.placed, run.started, run.succeeded) == (6, 6, 0, 0)
    assert run.keys() == [b"t-%d" % at for at in range(6)]
    assert run.fact(4) == (_core.F_PLACED, b"t-4", 1, 1, 1, ((0, 500),))
    (node, templates, likes, *ids, attempts, devices), (other, *_) = run.starts()
    assert (node, other, templates, likes) == (0, 1, (PLAIN,), bytes(8))
    assert (list(Ids(*ids).each()), attempts) == ([f"t-{at}" for at in range(4)], b"\1\0" * 4)
    assert devices == b"".join(b"\1" + bytes([at]) + (500).to_bytes(2, "little") for at in (0, 0, 1, 1))


ODD = [
    "t-0",
    "t-00",
    "t-007",
    "t-10",
    "7",
    "0",
    "x",
    "x1y",
    "t-1234567890123",
    "t-1000000000",
    "t-999999999",
    "a/b.c:9",
]


def test_ids_in_columns_are_the_same_ids_again() -> None:
    assert list(Ids.of(ODD).each()) == ODD
    core = cluster()
    accept(core, "\n".join(ODD).encode(), PLAIN)
    core.decide(15)
    _, run = runs_of(core)
    assert isinstance(run, Run) and run.keys() == [ident.encode() for ident in ODD[: len(run)]]
    for at in range(len(run)):
        codes, levels, attempts, *ids, nodes, devices = run.columns(at)
        assert list(Ids(*ids).each()) == ODD[at : len(run)]
        assert (set(codes), set(levels), attempts) == ({_core.F_PLACED}, {1}, b"\1\0" * (len(run) - at))
        assert nodes == b"".join(run.fact(each)[4].to_bytes(4, "little") for each in range(at, len(run)))
        assert len(devices) == 4 * (len(run) - at)
    told = [ident for _, _, _, *ids, _, _ in run.starts() for ident in Ids(*ids).each()]
    assert sorted(told) == sorted(ODD[: len(run)])
    slots = (
        memoryview(live_on(core, 0, *ODD)).cast("I").tolist() + memoryview(live_on(core, 1, *ODD)).cast("I").tolist()
    )
    assert sorted(slot for slot in slots if slot != _core.NONE) == list(range(len(run)))


def test_keys_are_parted_as_ids_are() -> None:
    columns = Ids.of(ODD)
    assert part_keys("\n".join(ODD).encode()) == (columns.heads, columns.which, columns.numbers)
    assert part_keys(b"t-1\nt-2")[1] == b""
    with pytest.raises(ValueError, match="heads"):
        part_keys(b"\n".join(b"%dx" % at for at in range(65_536)))


def test_only_tasks_that_are_concerned_are_named() -> None:
    core = cluster()
    accept(core, array_keys(b"a-", 0, 3), PLAIN)
    accept(core, array_keys(b"b-", 0, 3), PECULIAR)
    flagged = core.accept([b"held"], template=7, shape=0, queue=0, qos=1, flags=_core.HELD_DEPENDENCY, submitted_ns=1)
    waiting = 1 << _core.QUEUED | 1 << _core.HELD
    peculiar = [core.find(b"b-%d" % at) for at in range(3)]
    assert core.concerned(waiting, b"\0\1", 0) == peculiar
    assert core.concerned(waiting, b"\0\1", _core.HELD_DEPENDENCY) == peculiar + flagged
    assert core.concerned(1 << _core.RUNNING, b"\1\1", 255) == []


def test_a_run_of_ids_without_a_common_head_ends_where_their_number_does() -> None:
    core = Core()
    core.add_queue(_core.NONE, 1)
    core.add_node(10**9, 1 << 50, [])
    core.add_shape(1, 1, [], 0)
    core.set_plain(PLAIN, True)
    accept(core, b"\n".join(b"%dx" % at for at in range(70_000)), PLAIN)
    core.decide(15)
    runs = [run for run in runs_of(core) if isinstance(run, Run)]
    assert [len(run) for run in runs] == [65_535, 4_465]
    assert [key for run in runs for key in run.keys()] == [b"%dx" % at for at in range(70_000)]


@pytest.mark.parametrize(
    "heads, which, numbers, attempts",
    [
        (b"t-", b"", b"", b""),
        (b"t-", b"", bytes(4), bytes(4)),
        (b"t-", b"", bytes(5), bytes(2)),
        (b"t-\nu-", b"", bytes(8), bytes(4)),
        (b"t-\nu-", b"\0\0\2\0", bytes(8), bytes(4)),
        (b"t" * 250, b"", bytes(4), bytes(2)),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(
    heads: bytes, which: bytes, numbers: bytes, attempts: bytes
) -> None:
    with pytest.raises(ValueError):
        check_columns(heads, which, numbers, attempts)
    with pytest.raises(ValueError):
        cluster().live_on(0, heads, which, numbers, attempts)


def test_a_run_holds_what_it_tells_when_its_tasks_are_gone() -> None:
    core = cluster()
    slots = accept(core, b"a\nb", PLAIN)
    core.decide(15)
    core.begin(2_000_000_001)
    assert core.succeeded(slots) == b""
    run = runs_of(core)[-1]
    core.forget_all(slots)
    assert isinstance(run, Run) and (run.started, run.succeeded, run.ended()) == (2, 2, slots)
    assert [run.fact(at)[:3] for at in range(-4 + len(run), len(run))] == [
        (_core.F_STARTED, b"a", 1),
        (_core.F_ENDED, b"a", 1),
        (_core.F_STARTED, b"b", 1),
        (_core.F_ENDED, b"b", 1),
    ]
    assert run.waits(_core.F_ENDED, 2_000_000_001, (1.0, 5.0)) == {PLAIN: [[0, 2, 0], pytest.approx(4.0)]}


def test_who_is_peculiar_is_told_alone_and_in_order() -> None:
    core = cluster()
    accept(core, b"a", PLAIN)
    accept(core, b"b", PECULIAR)
    accept(core, b"c", PLAIN)
    core.decide(15)
    told = runs_of(core)
    assert [fact.keys() if isinstance(fact, Run) else fact[0] for fact in told[1:]] == [[b"a"], _core.F_PLACED, [b"c"]]


def test_a_replay_by_runs_reaches_the_same_tables() -> None:
    core, again = cluster(), cluster()
    for one in (core, again):
        accept(one, array_keys(b"t-", 0, 5), PLAIN)
    core.decide(15)
    core.succeeded(live_on(core, 0, "t-0", "t-2", "nobody", "t-4"))
    core.forget_all(core.find(b"t-0").to_bytes(4, "little"))
    facts = core.take_facts()
    again.replaying = True
    run, at = again.apply_run(facts, 9)  # after the turn's own record
    slots, templates, at = again.apply_forgotten(facts, at)
    again.replaying = False
    assert (run.placed, run.succeeded, slots, templates) == (5, 2, (0).to_bytes(4, "little"), {PLAIN: 1})
    assert at == len(facts) and again.digest() == core.digest()
    assert Core.load(core.dump()).digest() == core.digest()


def test_a_run_that_contradicts_the_tables_is_refused() -> None:
    core, again = cluster(), cluster()
    for one in (core, again):
        accept(one, b"a", PLAIN)
    core.decide(15)
    facts = core.take_facts()
    again.replaying = True
    again.apply_run(facts, 9)
    with pytest.raises(ValueError, match="offset 9"):
        again.apply_run(facts, 9)


def test_what_was_learned_is_told_by_template_and_model() -> None:
    core = cluster()
    slots = accept(core, b"a\nb\nc", PLAIN)
    peculiar = accept(core, b"d", PECULIAR)
    core.decide(15)
    core.started_all(slots + peculiar)
    core.begin(3_000_000_001)
    core.succeeded(slots + peculiar)
    core.peek_runs(0)
    assert core.take_learned() == [(PLAIN, 3, 3, 3000, [3000, 3000, 3000])]
    assert core.take_learned() == []
    assert core.learn(int.from_bytes(slots[:4], "little")) and not core.learn(int.from_bytes(peculiar, "little"))


def test_the_story_of_who_succeeded_is_kept_until_it_is_forgotten_and_of_others_for_a_turn() -> None:
    core = cluster()
    well, badly = (int.from_bytes(accept(core, key, PLAIN), "little") for key in (b"well", b"badly"))
    core.decide(15)
    where = core.placement(well), core.placement(badly)
    core.ended(well, _core.SUCCEEDED, 0)
    core.requeue(badly, 2)
    assert (core.story(well), core.story(badly)) == where
    core.begin(5)
    assert (core.story(well), core.story(badly)) == (where[0], None)
    assert Core.load(core.dump()).story(well) == where[0]
    assert core.stories_on(0) == [well]
    core.drop_story(well)
    assert core.stories_on(0) == [] and core.story(well) is None


def test_keys_that_are_there_or_twice_are_not_absent() -> None:
    core = cluster()
    accept(core, b"a", PLAIN)
    assert core.absent(b"b\nc")
    assert not core.absent(b"b\na") and not core.absent(b"b\nc\nb")
    before = core.digest()
    with pytest.raises(KeyError, match="c"):
        accept(core, b"b\nc\nc", PLAIN)
    assert core.digest() == before


def test_keys_of_arrays_are_written_out() -> None:
    assert array_keys(b"x-", 8, 4) == b"x-8\nx-9\nx-10\nx-11"
    assert array_keys(b"", 0, 0) == b""
