"""The typed reference of the core: tables of nodes, devices, shapes, tasks and allocations, and the decisions over them.

Everything here is slots (small integers), exact integers and opaque keys. Units: `_ns` nanoseconds, `_bytes` bytes,
`_milli` thousandths (of a core, of a device). Words (names, labels, commands, reasons) live in the scheduler.

A *door* (every method here) checks its arguments, changes the tables and, where the table says "fact", appends one
packed record to the fact buffer. `take_facts` hands the buffer out; `apply` replays it: same records, same tables.
Doors without "fact" are driven by word facts that the scheduler writes (`words`) and replays itself.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NONE: Final[int]  # 0xFFFFFFFF, "no slot"
NEVER_NS: Final[int]  # largest int64, "no deadline"

# ---- task states (lifecycle); TERMINAL is every state >= SUCCEEDED
FREE: Final[int]
QUEUED: Final[int]
HELD: Final[int]
BACKOFF: Final[int]
PLACED: Final[int]
RUNNING: Final[int]
STOPPING: Final[int]
SUCCEEDED: Final[int]
FAILED: Final[int]
CANCELLED: Final[int]
EXPIRED: Final[int]
SKIPPED: Final[int]

# ---- task flags
PREEMPTIBLE: Final[int]
HELD_OPERATOR: Final[int]
HELD_DEPENDENCY: Final[int]
CLAIMING: Final[int]  # a preemptor whose victims have not all ended; holds a claim, is in no lane
DEADLINE_RELATIVE: Final[int]
SHAKEN: Final[
    int
]  # evicted twice within DAMPED_NS: not evictable until DAMPED_NS after its next start. The core's own, never given
DAMPED_NS: Final[int]

# ---- lanes of a placement, presets, resources of a queue
LANE_BATCH: Final[int]
LANE_IMMEDIATE: Final[int]
TRUST_NOTHING: Final[int]
TRUST_ESTIMATE: Final[int]
TRUST_WORD: Final[int]
ORDER_DRF: Final[int]
ORDER_WEIGHTED: Final[int]
ORDER_FIFO: Final[int]
POLICY_FRAGMENT: Final[int]
POLICY_PACK: Final[int]
POLICY_SPREAD: Final[int]
POLICY_FIRST_FIT: Final[int]
TERM_NAMES: Final[
    tuple[str, ...]
]  # of the weights of set_shape_scores, in order: told, preset, fragment, pack, spread, load
PRICE_PART_NAMES: Final[
    tuple[str, ...]
]  # of what a placement costs under POLICY_PRICE: devices, premium, apart, cpu, memory, wide
POLICY_PRICE: Final[int]
POLICY_RANDOM: Final[int]  # this one and the following as published (_core/published.pxi)
POLICY_BEST_FIT: Final[int]
POLICY_DOT_PRODUCT: Final[int]
POLICY_PACKING: Final[int]
POLICY_CLUSTERING: Final[int]
POLICY_FGD: Final[int]
RESOURCE_CPU: Final[int]  # 0; RESOURCE_MEMORY 1; device kind k is 2 + k
RESOURCE_MEMORY: Final[int]
RESOURCE_KIND: Final[int]  # 2
MAX_KINDS: Final[int]  # 16
MAX_MODELS: Final[int]  # 64
REASON_PREEMPTED: Final[int]  # 1: a reason code that the core gives by itself; all but these two are passed through
REASON_RECLAIM: Final[int]  # 11: stopped for cpu or memory that was lent to it
REASON_CONSOLIDATE: Final[int]  # 16: moved: stopped for another, with room elsewhere
MOVE_NEVER: Final[int]
MOVE_LOWER: Final[int]
MOVE_EQUAL: Final[int]
STATE_NAMES: Final[tuple[str, ...]]  # index = state
CHECKED_BUILD: Final[bool]  # HETSCHED_CHECKED=1: every core calls check() after every door, whatever `checked` says

# ---- fact codes; the tuple that read_facts yields for each
F_TURN: Final[int]  # (F_TURN, now_ns)                                    first record of every turn that has one
F_WORDS: Final[int]  # (F_WORDS, kind, payload: bytes)
F_PLACED: Final[int]  # (F_PLACED, task, attempt, node, lane, ((device_index, share_milli), ...))
F_STARTED: Final[int]  # (F_STARTED, task, attempt)
F_STOPPING: Final[int]  # (F_STOPPING, task, attempt, reason, by_task or NONE)
F_ENDED: Final[int]  # (F_ENDED, task, attempt (0: never placed), state, reason)
F_REQUEUED: Final[int]  # (F_REQUEUED, task, attempt, reason)
F_BACKED_OFF: Final[int]  # (F_BACKED_OFF, task, attempt, reason)
F_READY: Final[int]  # (F_READY, task)                          back in its lane after backoff or hold
F_HELD: Final[int]  # (F_HELD, task, flags)
F_CLAIMED: Final[int]  # (F_CLAIMED, task, node, cost, ((device_index, share_milli), ...), (victim_task, ...))
F_UNCLAIMED: Final[int]  # (F_UNCLAIMED, task)                  the claim is given up; the task is in its lane again
F_PRIORITISED: Final[int]  # (F_PRIORITISED, task, priority)
F_FORGOTTEN: Final[int]  # (F_FORGOTTEN, task)                  a terminal task left the table; its slot is free

class Placement(NamedTuple):
    """Where an attempt is: `devices` are (index on the node, share_milli)."""

    node: int
    attempt: int
    lane: int
    placed_ns: int
    started_ns: int  # 0 until started
    devices: tuple[tuple[int, int], ...]

class TaskRow(NamedTuple):
    """One task's record as plain numbers."""

    key: bytes
    state: int
    flags: int
    qos: int
    queue: int
    shape: int
    template: int
    priority: int
    attempt: int  # attempts begun so far
    gang: int
    sequence: int  # submission order, never changes
    submitted_ns: int
    deadline_ns: int
    changed_ns: int  # time of the last change of state
    failures: int  # attempts that count against `retries`
    preemptions: int

def array_keys(prefix: bytes, first: int, count: int) -> bytes:
    """`prefix` followed by each of the numbers from `first` on, parted by newlines."""

def check_columns(heads: bytes, which: bytes, numbers: bytes, attempts: bytes) -> None:
    """ValueError unless these could be keys in columns, at least one: `heads`, parted by newlines, are what they begin with, `which` an uint16 for
    each that names its head (b"": there is one), `numbers` an uint32 for each that stands behind it (NONE: nothing does), `attempts` an uint16 for each."""

def pattern_weights(sizes: Sequence[int], demand: Sequence[int], most_pivots: int) -> tuple[list[int], int] | None:
    """What `policy.patterns` finds for ascending sizes, 1..100 cells and at most 40 of them, and devices asked for by each: weights (they may be below 0
    when pivots run out) and the denominator that they are over. None: numbers outgrow what is exact here."""

def part_keys(keys: bytes) -> tuple[bytes, bytes, bytes]:
    """(heads, which, numbers) of keys that are parted by newlines. ValueError where they have too many heads."""

class Room:
    """Memory for one copy of the tables, of so many bytes. Made in a thread, it lets other threads run meanwhile, and copying then takes a third."""

    def __init__(self, size: int) -> None: ...

def sealed(copied: list[bytes]) -> list[bytes]:
    """A dump in pieces: to be joined by who needs it as one."""

def fact_at(facts: bytes, offset: int) -> tuple[int, tuple[Any, ...]]:
    """(byte after the last, record as a tuple) of the record at the offset."""

def split_facts(facts: bytes) -> list[tuple[int, int, tuple[object, ...]]]:
    """Decode a frame: (first byte, byte after the last, record as a tuple) of every record. ValueError names the offset of a malformed one.
    The scheduler replays record by record: words by itself, every other record through `Core.apply(facts[first:after], …)`."""

class Run:
    """Consecutive facts of plain tasks: placed, started, succeeded. Made by the core; holds all it tells, ids included."""

    placed: int
    started: int
    succeeded: int
    def __len__(self) -> int: ...
    def fact(self, index: int) -> tuple[int, bytes, int, int, int, tuple[tuple[int, int], ...]]:
        """(F_PLACED | F_STARTED | F_ENDED, key, attempt, qos, node or NONE, ((device_index, share_milli), ...)); the last two of F_PLACED only."""
    def keys(self) -> list[bytes]:
        """Whom each fact is about."""
    def ended(self) -> bytes:
        """Slots (uint32) of those that succeeded, in order."""
    def placed_by_level(self) -> list[int]:
        """How many of each qos level were placed."""
    def templates(self) -> list[int]: ...
    def columns(self, begin: int = ...) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]:
        """From the fact `begin` on: (codes, qos levels, attempts (uint16), heads, which (uint16), numbers (uint32), nodes (uint32, NONE but of
        F_PLACED), devices as in `wire.Starts` of every F_PLACED). Heads, which, numbers: the keys, as `check_columns` says."""
    def starts(self) -> list[tuple[int, tuple[int, ...], bytes, bytes, bytes, bytes, bytes, bytes]]:
        """What was placed, by node: (node, templates, likes, heads, which, numbers, attempts, devices), the columns of `wire.Starts`."""
    def waits(
        self, code: int, now_ns: int, bounds_s: tuple[float, ...], first: bool = ...
    ) -> dict[int, tuple[list[int], float]]:
        """Seconds from submission until `now_ns` of the facts of this code (`first`: of first attempts only), by template: how many up to each
        bound and beyond the last, and their sum."""

class Core:
    replaying: bool
    """While true, doors without "fact" (open_node, set_device_usable, …) trigger nothing and write nothing: what they triggered when live
    is in the journal and comes as records of its own."""

    def __init__(self, *, policy: int = ..., blast_radius: int = 8, checked: bool = False) -> None:
        """`blast_radius`: most stopped devices per requested device, 0 = no cap. `checked`: call check() after every door."""

    # ------------------------------------------------------------------ facts
    def begin(self, now_ns: int) -> None:
        """Open a turn. `now_ns` stamps everything that follows and never goes back (ValueError)."""
    def words(self, kind: int, payload: bytes) -> None:
        """Append a word fact. The caller applies it itself (live) or is called by `apply` (replay)."""
    def take_facts(self) -> bytes: ...
    def peek_facts(self, offset: int) -> tuple[list[tuple[object, ...]], int]:
        """Decode the records appended since byte `offset` of the buffer; returns (records, new offset)."""
    def set_plain(self, template: int, plain: bool) -> None:
        """Whether nothing but what a Run tells follows from facts of the tasks of this template. Not dumped."""
    def peek_runs(self, offset: int) -> tuple[list[tuple[object, ...] | Run], int]:
        """As peek_facts, with consecutive facts of plain tasks together."""
    def apply_run(self, facts: bytes, offset: int) -> tuple[Run, int]:
        """While replaying: apply the facts of plain tasks that follow one another from `offset` on, maybe none; returns where others begin."""
    def apply_forgotten(self, facts: bytes, offset: int) -> tuple[bytes, dict[int, int], int]:
        """While replaying: apply the F_FORGOTTEN that follow one another from `offset` on, up to one in a gang. (slots, how many of each template,
        where others begin)."""
    def learn(self, task: int) -> bool:
        """Take up, as in a Run, how long the last attempt of a task ran that has succeeded; False: its template is not plain."""
    def take_learned(self) -> list[tuple[int, int, int, int, list[int]]]:
        """(template, model of the first device or -1, how many, the lower median of their run times in ms, the last 64 of those in order) of all
        that succeeded in runs since this was last asked."""
    def apply(self, facts: bytes, on_words: Callable[[int, bytes], None]) -> None:
        """Replay. Raises ValueError naming the byte offset where a record is malformed or contradicts the tables."""

    # ------------------------------------------------------------------ cluster (no facts)
    def add_node(self, cpu_milli: int, memory_bytes: int, devices: Sequence[tuple[int, ...]]) -> int:
        """devices: (kind, model or -1, memory_bytes or -1 if unknown, numa or -1, nvlink group or -1, PCIe switch or -1). The last may be
        left out: none. Starts open. At most 64 devices."""
    def remove_node(self, node: int) -> None:
        """Only when nothing is allocated or claimed there (ValueError)."""
    def open_node(self, node: int, is_open: bool) -> None:
        """Closed: nothing new is placed there (down, drained, cordoned); what runs is untouched. Closing gives up claims there (facts)."""
    def set_device_usable(self, node: int, device: int, usable: bool) -> None:
        """Unusable: nothing new. Claims on it are given up (facts)."""
    def set_node_domain(self, node: int, column: int, value: int) -> None:
        """Topology label `column` (0..7) of the node has interned `value` (-1: none); see add_gang."""
    def set_order(self, order: int) -> None:
        """Who goes first within a level: ORDER_DRF by fair share, priority, deadline; ORDER_WEIGHTED by urgency, match and efficiency;
        ORDER_FIFO by submission."""
    def set_backfill(self, backfill: bool) -> None:
        """False: nobody goes before a blocked task or gang that goes first, unless no machine could ever take that. Not dumped."""
    def set_policy(self, policy: int) -> None: ...
    def set_overcommit(self, cpu_milli: int, memory_milli: int) -> None:
        """Most that a node lends to soft tasks beyond its own, in thousandths of its cpu and memory; 0 = nothing. No fact: it follows from
        configuration and words."""
    def set_steering(self, gang_share_milli: int, sharers_most: int) -> None:
        """Gangs go before single tasks of their level while they hold less than this share of the cluster's devices and cores (0: never); and
        parts go to another device of the node, where one has room, rather than to one that so many share (0: as the preset likes)."""
    def add_queue(self, parent: int, weight: int) -> int: ...
    def set_queue(
        self, queue: int, weight: int, guaranteed: Sequence[tuple[int, int]], limit: Sequence[tuple[int, int]]
    ) -> None:
        """(resource, amount) pairs; limits hold for the queue and everything below it, and are hard."""

    # ------------------------------------------------------------------ shapes (no facts)
    def add_shape(
        self,
        cpu_milli: int,
        memory_bytes: int,
        asks: Sequence[tuple[int, int, int, int, int, Collection[int]]],
        same: int,
        is_wish: bool = False,
        *,
        soft: bool = False,
    ) -> int:
        """asks: (kind, whole, parts, part_milli, memory_bytes per device, models best first, in a set: as good as each other; empty = any), one per kind, at most 4.
        same: 0 none, 1 all devices on one NUMA node, 2 in one NVLink group, 3 on one PCIe switch; `is_wish`: preferred to all else, and the
        fewest of them where it cannot be one; else required. `soft`: may stand on cpu and memory that others hold and do not use, and gives
        way to them."""
    def set_shape_node(self, shape: int, node: int, level: int) -> None:
        """What only words can say of a pair: 0 ruled out (selector, taint), 1..7 allowed, higher is liked better (data, PreferNoSchedule)."""
    def set_shape_nodes(self, shape: int, levels: bytes) -> None:
        """The same for all node slots at once, one byte each."""

    def set_shape_scores(
        self, shape: int, scores: bytes, weights: Sequence[int], level_top: int = 7, models: Sequence[int] = ()
    ) -> bool:
        """Score the shape by the weighted mean of terms instead of the preset. `scores`: the term `told`, a byte a node slot, 255 best, 0
        where none is given. `weights`: one a term of TERM_NAMES, at least 0; all 0 = the preset decides again. Levels above `level_top` count
        as it. `models`: which devices of a node a task without a list of models takes first, best first. False if nothing changed. Derived: not dumped, not in the digest; tell it again after load and when nodes come."""
    def shape_terms(self, shape: int, node: int) -> tuple[int, int]:
        """(byte told, mean free milli of all that the node has, as it is now), for people."""

    # ------------------------------------------------------------------ gangs (no facts)
    def add_gang(self, size: int, min_size: int, column: int, wish: int = -1) -> int:
        """column: -1 none; 0..7 members must share that domain; 8: one node. `wish`: the same, preferred: one if it can be, else few."""
    def remove_gang(self, gang: int) -> None:
        """Only when all members that are still in the table have ended (ValueError); their rows say NONE from then on."""

    # ------------------------------------------------------------------ tasks
    def accept(
        self,
        keys: Sequence[bytes],
        *,
        template: int,
        shape: int,
        queue: int,
        qos: int,
        flags: int,
        submitted_ns: int,
        priority: int = 0,
        deadline_ns: int = ...,
        checkpoint_ns: int = 0,
        gang: int = ...,
        deadlines_ns: Sequence[int] | None = None,
        priorities: Sequence[int] | None = None,
    ) -> list[int]:
        """A run of tasks that differ in key (and deadline, priority) only; sequence in the order given. No fact: the words of the submission are.
        HELD_* in flags: they start HELD, else QUEUED in their lane. KeyError if a key is present (nothing is accepted then)."""
    def absent(self, keys: bytes) -> bool:
        """Whether none of these keys (parted by newlines) is in the table, nor twice among them: they can be accepted."""
    def accept_mixed(
        self,
        keys: bytes,
        which: bytes,
        heads: list[tuple[int, int, int, int, int, int, int, int]],
        submitted_ns: int,
        are_absent: bool = ...,
    ) -> bytes:
        """Tasks of many templates at once, in the order given, without gangs: `keys` are parted by newlines, `which` has an uint16 a key, the index of its head
        (template, shape, queue, qos, flags, checkpoint_ns, deadline_ns, priority). Returns their slots, an uint32 each. Refuses as `accept` does;
        heads that no key names are not looked at. `are_absent`: `absent` has just
        said so, and is not asked again."""
    def states(self, slots: bytes) -> bytes:
        """State of each of these slots (uint32 each), a byte a slot."""
    def set_template(
        self, template: int, *, said_ns: int = 0, grace_ns: int = 0, expectation: int = ..., trust: int = ...
    ) -> None:
        """What is said of the tasks that name this template: run time (0 = nothing), time to stop; the slot of what was learned of their like (NONE), and
        whether that counts for more (TRUST_…). No fact: follows from the words that made the template."""
    def expectation_slot(self, template: int) -> int:
        """That was told last; NONE."""
    def set_expectation(
        self,
        expectation: int,
        *,
        expected_ns: int = 0,
        typical_ns: int = 0,
        efficiency_milli: int = -1,
        beats_estimates: bool = False,
    ) -> None:
        """What was learned of tasks of one type and size: run time that few exceed and that half exceed (0 = unknown), historical efficiency (-1 = unknown).
        No fact: follows from the attempts that have succeeded."""
    def expected(self, task: int) -> tuple[int, int]:
        """Run time (ns, 0 = unknown) that it is not expected to exceed; that half of its like exceed."""
    def find(self, key: bytes) -> int:
        """Slot of the task with this key, or NONE."""
    def started(self, task: int, attempt: int) -> None:
        """fact. PLACED → RUNNING (no-op if STOPPING or already RUNNING)."""
    def live_on(self, node: int, heads: bytes, which: bytes, numbers: bytes, attempts: bytes) -> bytes:
        """Slot (uint32) of each task whose live attempt is this one on this node, or NONE. Columns as of `check_columns`."""
    def started_all(self, tasks: bytes) -> None:
        """fact(s). Those of these (uint32 each; NONE is passed over) that are PLACED → RUNNING."""
    def stop(self, task: int, reason: int, by: int = ...) -> None:
        """fact. PLACED or RUNNING → STOPPING. It holds its devices until ended/requeued/backed_off."""
    def set_use(self, task: int, cpu_milli: int, memory_bytes: int) -> None:
        """What its live attempt uses, as measured (no fact: words say it); below 0 = not known, so all that it holds."""
    def give_back(self, node: int, by: int) -> int:
        """fact(s). Where firm tasks use and soft ones hold more than the node has, the fewest and least urgent of the soft ones are told to stop
        (REASON_RECLAIM, by that owner). Returns how many."""
    def ended(self, task: int, state: int, reason: int) -> None:
        """fact. Any live or waiting state → terminal; releases what it held; a claim that waited for it may become a placement (fact)."""
    def succeeded(self, tasks: bytes) -> bytes:
        """fact(s). These (uint32 each; NONE is passed over) have done their work: PLACED → RUNNING → SUCCEEDED. Returns those that do not run or
        were told to stop, of which nothing is changed."""
    def requeue(self, task: int, reason: int, *, hold: int = 0, preempted: bool = False) -> None:
        """fact. Live attempt over, no retry used; back in its old place (or HELD with flags `hold`)."""
    def back_off(self, task: int, reason: int) -> None:
        """fact. Live attempt failed (failures + 1), waits in BACKOFF until ready()."""
    def ready(self, task: int) -> None:
        """fact. BACKOFF → QUEUED."""
    def hold(self, task: int, flag: int) -> None:
        """fact. QUEUED/BACKOFF/HELD → HELD with that flag added; a claim is given up."""
    def release(self, task: int, flag: int) -> None:
        """fact. Flag removed; when none is left HELD → QUEUED."""
    def set_priority(self, task: int, priority: int) -> None:
        """fact."""
    def unclaim(self, task: int) -> None:
        """fact(s). Give a claim up (its time ran out); those of a gang all together."""
    def forget(self, task: int) -> None:
        """fact. Drop a terminal task from the table."""
    def forget_all(self, tasks: bytes) -> dict[int, int]:
        """fact(s). The same for many, uint32 each, in order, up to the first that is in a gang. Returns how many of each template, in the order in which each comes first."""

    # ------------------------------------------------------------------ deciding
    def decide(self, levels: int, preempt: bool = True, *, lane: int = ..., most: int = ...) -> int:
        """fact(s). Walk the lanes of the qos levels in `levels` (bit q), best first, and place what fits; then, for blocked heads, claim with
        proof (stop facts for the victims, F_CLAIMED first). Gangs all (>= min_size) or nothing, under mark and rewind. Returns placements made.
        Cheap when nothing changed since the last call: blocked shapes cost one byte read each. A level claims before the next one may place.
        `lane`: what the placements say; by default LANE_IMMEDIATE for critical, else LANE_BATCH. `most`: placements after which it stops (a gang is
        not cut); the next call goes on from there.
        A gang claims a seat for each member that must start (F_CLAIMED each, some without victims); all are placed with the last victim's end.
        While a single task claims nobody of its queue and shape that goes after it is placed; who of them finds no room may claim."""
    def claim_before(self, task: int) -> int | None:
        """One that claims, asks for the same in the same queue and starts first, so that this task does not start before it. None: there is none."""
    def settle(self) -> bool:
        """fact(s). Claims whose last victim ended while an earlier one claimed the same become placements (F_PLACED) if that has started or is
        gone. To be called before each decision; `decide` does it first. False: there was none."""
    def has_more(self) -> bool:
        """The last call of `decide` stopped at `most`."""
    def next_ns(self) -> int | None:
        """When time alone changes what `decide` does: a delay before evicting is over, room is no longer kept for a gang. None = never."""
    def time_told(self) -> bool:
        """`next_ns` is over: it is forgotten, and `decide` will look at everybody again."""
    def set_wishes(self, wishes: Sequence[tuple[int, int]]) -> None:
        """(task, node) pairs, all there are: a task that is placed while it fits on its wished node goes there, whatever its shape's best is.
        Changes neither who goes first nor what fits. Not dumped: tell it again after a load. No fact."""
    def waiting(self, levels: int) -> int:
        """Tasks QUEUED in lanes of these levels (claiming ones not counted)."""

    # ------------------------------------------------------------------ prices (no facts; policy/price.py)
    @property
    def asked(self) -> int:
        """Device tasks accepted so far; after a load, as far as the shapes' counts remember."""
    @property
    def left(self) -> int:
        """Device tasks that gave back for good what they held; after a load, those asked that are no longer there."""
    def know(self, shape: int, times: int) -> None:
        """Count the shape as asked so often, without tasks: history."""
    def set_repair(self, repair_ns: int) -> None:
        """How long room is kept for members that a gang lost, after the last loss; 0 (as made) = not at all. Not dumped."""
    def set_consolidate(self, moves: int) -> None:
        """MOVE_NEVER (as made), MOVE_LOWER: where all victims have room elsewhere that is preferred at equal cost and said (REASON_CONSOLIDATE);
        MOVE_EQUAL: tasks may also move others of their own level, best_effort or below, who are smaller. Not dumped."""
    def set_preemption_delay(self, delay_ns: int, queue: int = ...) -> None:
        """A task waits so long before it may evict: in this queue and those below it that say nothing else, or (NONE) everywhere else. Not dumped."""
    def set_strand_limit(self, milli: int) -> None:
        """POLICY_PRICE: a task without devices fits only where it strands at most so many milli of devices a core; 0 = anywhere. Not dumped."""
    def set_patience(self, patience_ns: int) -> None:
        """POLICY_PRICE, where below 10 % of a kind are free: a task that could only leave a rest of no use waits so long from its submission; 0 (as
        made) = not at all. Not dumped."""
    def waits_until(self, task: int) -> int | None:
        """Until when the task, or the one ahead of it with its shape, waits by that rule; None: it does not."""
    def demand(self) -> list[tuple[int, int, int, tuple[tuple[int, int, int, int, int], ...]]]:
        """(times asked, cpu_milli, memory_bytes, asks (kind, whole, parts, part_milli, mask of models or 0)) of every device shape that was
        asked for, placed or not; counts are halved now and then."""
    def supply(self) -> dict[tuple[int, int], int]:
        """Milli of usable devices on open nodes by (kind, model or -1)."""
    def set_prices(
        self,
        kind: int,
        values: Sequence[int],
        premiums: Mapping[int, int] | Iterable[tuple[int, int]],
        cpu_rate: int,
        memory_rate: int,
        apart: Sequence[int] = (),
        wide: Sequence[int] = (),
    ) -> None:
        """What free devices of the kind are worth to POLICY_PRICE. `values`: milli by free milli, 0..1000; `premiums`: thousandths by model;
        rates: milli of a device that go with a millicore and with a MiB, times 2^20; `apart`: thousandths that what is free on a node is
        worth less, by its wholly free devices, never rising, 0 beyond its end; `wide`: and worth more, by its devices, free or not, never
        falling. Not part of dump and digest."""

    # ------------------------------------------------------------------ questions (change nothing)
    def task(self, task: int) -> TaskRow: ...
    def placement(self, task: int) -> Placement | None: ...
    def ranked(self, task: int) -> tuple[dict[str, int], dict[str, int]]:
        """Of a task that is on a node, as if it were placed there now, on its devices: thousandths by name of TERM_NAMES (not `told`; `preset` only
        where it has a score), and under POLICY_PRICE by PRICE_PART_NAMES what the node's free room is worth less by it, tenths of a milli of
        a device (below 0: more). Both empty where a claim has its devices already."""
    def story(self, task: int) -> Placement | None:
        """What its attempt was that was over last: of a task that succeeded, or whose attempt was over this turn (asked in order of the facts)."""
    def stories_on(self, node: int) -> list[int]:
        """Tasks that succeeded on the node, by slot."""
    def drop_story(self, task: int) -> None:
        """Forget where it succeeded (somebody else keeps that). No fact: words say it."""
    def claim(self, task: int) -> tuple[int, int, tuple[int, ...]] | None:
        """(node, cost in device-milliseconds, victims still to end) of a claiming task."""
    def tasks_on(self, node: int) -> list[int]:
        """Tasks with a live allocation on the node, by slot."""
    def claims_on(self, node: int) -> list[int]:
        """Claiming tasks whose claim is on the node."""
    def gang_members(self, gang: int) -> list[int]: ...
    def gang_room(self, gang: int) -> tuple[int, int]:
        """(waiting members that find a seat now, members that would with nobody else anywhere, every node open and every device in order);
        in the best domain if they must share one; equal members first fit, so for unlike ones it may be some more."""
    def newest(self) -> int:
        """The highest sequence that was given to a task."""
    def page(
        self, after_sequence: int, limit: int, states: int, queue: int = ..., qos: int = ..., templates: bytes = ...
    ) -> list[int]:
        """Slots with sequence > after_sequence, in sequence order; `states` a bit mask; NONE = any queue or qos; `templates` as in `concerned`,
        b"" = any."""
    def concerned(self, states: int, templates: bytes, flags: int) -> list[int]:
        """Slots, in sequence order, of the tasks in one of the states (a bit mask) that name a template whose byte in `templates` is not 0, or have
        one of these flags."""
    def by_queue(self, states: int) -> list[int]:
        """Tasks in one of the states (a bit mask) by queue."""
    def ahead(self, task: int) -> int:
        """Waiting tasks that go before it by the order in use, all lanes counted, those too that wait for something else than room."""
    def counts(self) -> list[int]:
        """Tasks per state, index = state."""
    def verdict(self, shape: int) -> dict[str, int]:
        """Nodes by first reason that rules them out now: closed, words, model, devices, device_memory, topology, cpu, memory, stranding; `fits` = could take one now;
        `ever` = could take one if empty and open."""
    def node_state(self, node: int) -> tuple[int, int, int, int, int]:
        """(cpu_free_milli, memory_free_bytes, cpu_milli, memory_bytes, live allocations). Free counts claims as taken; may be negative while victims end."""
    def lent(self, node: int) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
        """For cpu and memory: (held by soft tasks, held by others and not used, of that may be lent, lent or claimed beyond the node's own)."""
    def device_state(self, node: int, device: int) -> tuple[int, int, bool]:
        """(share_used_milli by live attempts, memory_used_bytes by live attempts, usable)."""
    def queue_used(self, queue: int) -> list[int]:
        """Used per resource: [cpu_milli, memory_bytes, kind 0 milli, kind 1 milli, ...], children included."""
    def totals(self) -> list[tuple[int, int]]:
        """(capacity, used by live attempts) per resource, closed nodes and unusable devices not counted as capacity."""
    def fragmentation(self, kind: int) -> tuple[int, int]:
        """(fragment_milli, free_milli): of the kind's free capacity the part that the recent mix of shapes cannot use, each shape weighted by how
        often it was asked (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4)."""
    def reservation(self) -> tuple[int, int, tuple[tuple[int, int], ...]] | None:
        """(blocked task that goes first, start in ns, ((member, node), ...)): what those behind it may not delay, as last found."""
    def oscillations(self) -> int:
        """Evictions of tasks that had been evicted within the last ten minutes, ever."""
    def memory(self) -> dict[str, int]:
        """Bytes held per table; `per_waiting_task` = all that grows with a waiting task, divided."""
    def shape_pending(self, shape: int) -> int: ...
    def shape_patient(self, shape: int) -> int:
        """Of these, those that wait by choice, or behind one that does (set_patience)."""
    def match(self, shape: int) -> int:
        """What the weighted order takes for `match`, as of now, in 2^-30: how well the best node suits the shape, 0 where none can take it, half
        where there is no node. (The shape gets its column of scores, as it does when a task of it is tried.)"""
    def is_owed(self, task: int) -> bool:
        """Its queue is guaranteed what it, or as many as its gang needs, would take: of a task that has not begun, whatever it waits for."""
    def apart(self, kind: int) -> tuple[int, ...]:
        """POLICY_PRICE: by wholly free devices of a node, thousandths that they are worth less for want of more; another preset: (0,)."""

    # ------------------------------------------------------------------ whole
    def dump(self) -> bytes:
        """Every table, checksummed, with what its records look like. Derived structures (lanes, score trees, hash) are rebuilt by load."""
    def bytes_to_copy(self) -> int:
        """Of the room that `copied` needs now: the tables that grow with the tasks."""
    def copied(self, room: "Room | None" = None) -> list[bytes]:
        """Every table as it is now; `sealed` makes a dump of it, whatever becomes of the tables meanwhile. `room`: for the large ones, as far as
        it goes."""
    @staticmethod
    def load(data: bytes, *, checked: bool = False) -> "Core":
        """From a dump of this or another version, field by field by name. ValueError: damaged, or it says something (the message names
        the field and who reads it) that this version cannot mean."""
    def digest(self) -> int:
        """Equal for equal states, however they were reached (live, replay, load)."""
    def check(self) -> None:
        """State every invariant in turn; AssertionError with the sentence that does not hold."""
