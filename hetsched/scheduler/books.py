"""All state of the scheduler, and the two ways in which it changes: `apply` (a word fact) and `record` (a packed fact).

Live, a handler calls a door of the core (which writes the packed fact and changes the tables) or `say` (which writes and applies
a word fact); the turn then passes every packed fact to `record`. A restart passes the journal's facts to the same two methods
and calls nothing else: it decides nothing. So whatever is not a consequence of facts must not be kept here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import msgspec

from hetsched import _core
from hetsched._core import NONE, Core, Run
from hetsched.config import Config
from hetsched.model import Qos, Task
from hetsched.policy.feedback import NEUTRAL, Controller
from hetsched.policy.presets import is_blended
from hetsched.policy.profiles import Profiles, Together, class_of
from hetsched.policy.rates import NO_DEVICE
from hetsched.scheduler import words
from hetsched.scheduler.attempts import Attempt, Attempts, Claimed
from hetsched.scheduler.cells.crossings import Crossings
from hetsched.scheduler.cluster import Cluster, same_hardware
from hetsched.scheduler.ended import Ended
from hetsched.scheduler.expectations import Expectations
from hetsched.scheduler.gangs import Gangs
from hetsched.scheduler.graphs.state import Graphs
from hetsched.scheduler.intern import Interned
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.queues import Queues
from hetsched.scheduler.reasons import EVICTIONS, Reason
from hetsched.scheduler.templates import Template, Templates, decode_body
from hetsched.scheduler.trying import Trying
from hetsched.scheduler.uses import Uses, beyond

QOS_OF_LEVEL = tuple(sorted(Qos, key=lambda qos: qos.level))

OUTCOME = {
    **dict.fromkeys(EVICTIONS, "preempted"),
    Reason.NODE_LOST: "lost",
    Reason.LOST_ATTEMPT: "lost",
}


class Books:
    """`backoff_until_ns`: per task that backs off. `keys`: Idempotency-Keys, oldest first. `ended`: terminal tasks in order of
    their end (they are forgotten from the left)."""

    def __init__(self, core: Core, config: Config) -> None:
        self.core = core
        self.config = config
        self.kinds = Interned("device kinds", _core.MAX_KINDS)
        self.models = Interned("device models", _core.MAX_MODELS)
        self.cluster = Cluster(core, self.kinds, self.models)
        self.queues = Queues(core, self.kinds, config.preemption.queue_delay)
        self.templates = Templates(core, self.kinds, self.models, self.cluster)
        self.templates.is_typed = is_blended(config.policy)
        self.templates.shares = config.sharing
        self.profiles = Profiles(config.limits.profiles)
        self.expectations = Expectations(core, self.profiles)
        self.learns = True  # not in a copy that only plays at running (rehearse/image.py)
        self.gangs = Gangs(core, self.cluster)
        self.attempts = Attempts(self)
        self.uses = Uses()
        self.feedback = Controller(config.feedback) if config.feedback.enabled else None
        self.trying = Trying(self)
        self.graphs = Graphs(config.limits.graphs, config.graphs.bandwidth_bytes, core.find)
        self.crossings = Crossings(config.limits.retention_tasks)
        self.backoff_until_ns: dict[int, int] = {}
        self.keys: OrderedDict[str, words.KeyRemembered] = OrderedDict()
        self.audit: deque[words.Audited] = deque(maxlen=config.limits.audit_kept)
        self.ended = Ended()
        self.event_seq = 1
        self.id_seq = 1
        self.now_ns = 0
        self.lanes = tuple("immediate" if str(qos) in config.lanes.immediate else "batch" for qos in QOS_OF_LEVEL)
        self.immediate = frozenset(qos.level for qos in map(Qos, config.lanes.immediate))
        self._apply: dict[type[words.Word], Callable[[Any], Any]] = {
            words.Submitted: self._apply_submitted,
            words.Bundled: self._apply_bundled,
            words.NodeKnown: self._apply_node,
            words.NodeMarked: self.cluster.apply_marked,
            words.DeviceMarked: self.cluster.apply_device,
            words.QueueKnown: lambda word: self.queues.apply(word.spec),
            words.AttemptNoted: lambda word: self.attempts.note(word.task, word.text, word.exit_code),
            words.BackoffNoted: self._apply_backoff,
            words.StopRenamed: self._apply_stop_renamed,
            words.KeyRemembered: self._apply_key,
            words.Audited: self.audit.append,
            words.Counted: self._apply_counted,
            words.ProfilesImported: self._apply_profiles,
            words.Measured: self._apply_measured,
            words.Graphed: self.graphs.apply,
            words.Sent: self.crossings.apply_sent,
            words.Answered: self.crossings.apply_answered,
            words.Heard: self.crossings.apply_heard,
            words.ShapeKnown: lambda word: self.templates.intern_shape(decode_body(word.body)),
        }

    # -- word facts

    def say(self, word: words.Word) -> Any:
        """Write a word fact and apply it."""
        self.core.words(words.KIND, words.encode(word))
        return self.apply(word)

    def bundle(self, word: words.Bundled, keys: bytes) -> bytes:
        """The same for tasks whose ids, `keys`, the core was just asked about: none of them is there. Their slots, uint32 each."""
        self.core.words(words.KIND, words.encode(word))
        return self._accept_bundled(word, keys, are_absent=True)

    def apply(self, word: words.Word) -> Any:
        """Make it so. Returns what the word made, if anything."""
        return self._apply[type(word)](word)

    def _apply_submitted(self, word: words.Submitted) -> list[int]:
        slots: list[int] = []
        for run in word.runs:
            slots += self._accept(run, word.at_ns)
        return slots

    def _accept(self, run: words.Run, at_ns: int) -> list[int]:
        keys = run.keys()
        template = self._use(run.template, run.body, len(keys))
        task = template.task
        gang = self.gangs.join(task, len(keys))
        slots = self.core.accept(
            [key.encode() for key in keys],
            template=run.template,
            shape=template.shape,
            queue=self.queues.ensure(task.queue),
            qos=task.qos.level,
            flags=run.flags,
            submitted_ns=at_ns,
            checkpoint_ns=coarse_ns(task.checkpoint or 0),
            gang=gang,
            deadlines_ns=run.deadlines_ns,
            priorities=run.priorities,
        )
        self.gangs.add_members(gang, slots)
        return slots

    def _apply_bundled(self, word: words.Bundled) -> bytes:
        return self._accept_bundled(word, word.keys(), are_absent=False)

    def _accept_bundled(self, word: words.Bundled, keys: bytes, *, are_absent: bool) -> bytes:
        """Slots of the tasks, uint32 each."""
        heads = [self._head(head) for head in word.heads]
        which = word.which or bytes(2 * sum(head.count for head in word.heads))
        return self.core.accept_mixed(keys, which, heads, word.at_ns, are_absent)

    def _head(self, head: words.Head) -> tuple[int, int, int, int, int, int, int, int]:
        template = self._use(head.template, head.body, head.count)
        task = template.task
        checkpoint_ns = 0 if task.checkpoint is None else coarse_ns(task.checkpoint)
        deadline_ns = _core.NEVER_NS if head.deadline_ns is None else head.deadline_ns
        queue = self.queues.ensure(task.queue)
        return (
            head.template,
            template.shape,
            queue,
            task.qos.level,
            head.flags,
            checkpoint_ns,
            deadline_ns,
            head.priority,
        )

    def _use(self, slot: int, body: bytes | None, count: int) -> Template:
        """The template that `count` more tasks name; a new one is told to the core."""
        template = self.templates.use(slot, body, count)
        if template.users == count:
            self.expectations.enter(slot, template.task)
            self.core.set_plain(slot, self._is_plain(template.task))
        return template

    def _drop(self, slot: int, count: int) -> None:
        gone = self.templates.drop(slot, count)
        if gone is not None:
            self.expectations.leave(gone.task)

    def _is_plain(self, task: Task) -> bool:
        """Nothing follows from what happens to such a task but what a Run of the core tells: no timer, no gang, nothing that looks at one
        end alone."""
        expires = task.on_deadline == "expire"  # a template does not say whether its tasks have a deadline
        return not (self.feedback is not None or expires or task.gang or task.time_limit or task.checkpoint is not None)

    def tell_plain(self) -> None:
        """The core keeps that for as long as it lives: again after a load."""
        for slot, template in self.templates.by_slot.items():
            self.core.set_plain(slot, self._is_plain(template.task))

    @property
    def takes_runs(self) -> bool:
        """Whether plain facts may be recorded many at a time: nobody counts attempts one by one."""
        return not (self.trying.is_asked or self.graphs.has_tasks or self.uses.by_task)

    def _apply_node(self, word: words.NodeKnown) -> None:
        old = self.cluster.by_name.get(word.spec.name)
        if old is not None and same_hardware(old.spec, word.spec):
            self.cluster.apply_described(word.spec)
        else:
            if old is not None:
                self.attempts.write_down(old.slot)
            self.cluster.apply_known(word.spec)
        self.templates.level_node(self.cluster.by_name[word.spec.name].slot, word.spec)

    def _apply_backoff(self, word: words.BackoffNoted) -> None:
        self.backoff_until_ns[word.task] = word.until_ns

    def _apply_stop_renamed(self, word: words.StopRenamed) -> None:
        self.attempts.stopping[word.task] = Reason(word.reason)

    def _apply_key(self, word: words.KeyRemembered) -> None:
        self.keys[word.key] = word
        while len(self.keys) > self.config.limits.idempotency_keys:
            self.keys.popitem(last=False)

    def _apply_profiles(self, word: words.ProfilesImported) -> None:
        for profile in word.profiles:
            self.profiles.put(msgspec.structs.replace(profile, times_ms=list(profile.times_ms)))
            self.expectations.tell(profile.of_class)

    def _apply_measured(self, word: words.Measured) -> None:
        for task, cpu_milli, memory_bytes, utilization_milli in word.uses:
            self.uses.measured(task, cpu_milli, memory_bytes, utilization_milli, word.at_ns)
            self.core.set_use(task, cpu_milli, memory_bytes)
        if word.settings is not None and self.feedback is not None:
            self.feedback.set(word.settings)
            self.steer()

    def steer(self) -> None:
        """Tell the core what is in effect: by configuration, and as the controller has turned it."""
        settings = NEUTRAL if self.feedback is None else self.feedback.settings
        self.core.set_steering(settings.gang_share_milli, settings.sharers)
        self.core.set_overcommit(*(milli * settings.overcommit_milli // 1000 for milli in beyond(self.config)))

    def _apply_counted(self, word: words.Counted) -> None:
        self.event_seq, self.id_seq = word.event_seq, word.id_seq

    # -- packed facts

    def record(self, fact: tuple[Any, ...]) -> None:
        """Keep the books that hang on a packed fact which the core has applied."""
        code = fact[0]
        if code == _core.F_TURN:
            self.now_ns = fact[1]
        elif code == _core.F_PLACED:
            self._record_placed(fact[1])
        elif code == _core.F_STOPPING:
            self.attempts.stopping[fact[1]] = Reason(fact[3])
        elif code in (_core.F_ENDED, _core.F_REQUEUED, _core.F_BACKED_OFF):
            self._record_over(fact)
        elif code in (_core.F_READY, _core.F_HELD):
            self.backoff_until_ns.pop(fact[1], None)
        elif code == _core.F_CLAIMED:
            self._record_claimed(*fact[1:])

    def record_run(self, run: Run) -> None:
        """The same for facts of plain tasks, many at a time."""
        self.ended.extend(run.ended())

    def _record_placed(self, task: int) -> None:
        if self.feedback is not None and (predicted_ms := self._predicted_ms(task, self.attempts.live[task])):
            self.attempts.predicted_ms[task] = predicted_ms
        if self.trying.is_asked:
            self.trying.placed(task, self.attempts.live[task])

    def _predicted_ms(self, task: int, attempt: Attempt) -> int:
        found = self.profiles.predict(self.body(task), self.model_of(attempt))
        return 0 if found is None else round(found.p50_s * 1000)

    def _learn(self, task: int, body: Task) -> None:
        """How long the attempt that has succeeded ran. One that went on from a checkpoint ran for a part only."""
        attempt = self.attempts.last(task)
        if attempt is None or not attempt.started_ns or (body.checkpoint is not None and attempt.number > 1):
            return
        run_ms = (self.now_ns - attempt.started_ns) // 1_000_000
        if self.feedback is not None and attempt.predicted_ms:
            use = self.uses.by_task.get(task)
            self.feedback.observe(attempt.predicted_ms, run_ms, -1 if use is None else use.mean_milli(self.now_ns))
        if not self.core.learn(task):
            self._learned(body, self.model_of(attempt), Together.of([run_ms]))

    def learn_turn(self) -> None:
        """What plain tasks have shown in this turn, by template and model. Before anything is forgotten; live and at replay alike."""
        for slot, model, count, median_ms, last_ms in self.core.take_learned():
            if self.learns:
                word = "" if model < 0 else self.models.words[model]
                self._learned(self.templates.task(slot), word, Together(count, median_ms, last_ms))

    def _learned(self, body: Task, model: str, shown: Together) -> None:
        self.profiles.learn(body, model, shown)
        self.expectations.tell(class_of(body))

    def _record_over(self, fact: tuple[Any, ...]) -> None:
        task, reason = fact[1], Reason(fact[-1])
        self.trying.over(task)
        if fact[0] == _core.F_ENDED:
            if self.graphs.has_tasks:
                self._tell_graph(task, fact[3], reason)
            if fact[3] == _core.SUCCEEDED:
                if self.learns:
                    self._learn(task, self.body(task))
                self.attempts.done(task)
            else:
                self.attempts.over(task, str(STATE_OF_CODE[fact[3]]), reason, self.now_ns)
            self.backoff_until_ns.pop(task, None)
            self.ended.append(task)
        elif fact[0] == _core.F_REQUEUED:
            self.attempts.over(task, OUTCOME.get(reason, "stopped"), reason, self.now_ns)
        else:
            self.attempts.over(task, "failed", reason, self.now_ns)
        self.uses.over(task)

    def _tell_graph(self, task: int, state: int, reason: Reason) -> None:
        attempt = self.attempts.last(task)
        model = "" if attempt is None else self.model_of(attempt) if attempt.devices else NO_DEVICE
        self.graphs.ended(task, state, reason, attempt, model, self.now_ns)

    def _record_claimed(
        self, task: int, node_slot: int, cost: int, grants: tuple[tuple[int, int], ...], victims: tuple[int, ...]
    ) -> None:
        node = self.cluster.by_slot[node_slot]
        names = tuple(self.id_of(victim) for victim in victims)
        gang = self.gangs.of(self.core.task(task).gang)
        self.attempts.claims[task] = Claimed(
            node=node.name,
            devices=self.device_ids(node_slot, grants),
            victims=names,
            price_device_seconds=cost / 1e3,
            at_ns=self.now_ns,
            proof=_proof(node.name, names, None if gang is None else gang.name),
        )

    # -- forgetting: a door of the core, but the books must read the row first

    def forget(self, task: int) -> None:
        """A terminal task leaves the table. Live: writes the fact. At replay: `about_to_forget` and the core's own record."""
        self.about_to_forget(task)
        self.core.forget(task)

    def forget_oldest(self, count: int) -> None:
        """So many of those that ended, oldest end first."""
        while count > 0:
            slots = self.ended.first(count)
            templates = self.core.forget_all(slots)
            done = sum(templates.values())
            self.forgotten(slots[: 4 * done], templates)
            count -= done
            if count > 0:  # the next one is in a gang
                self.forget(self.ended.oldest())
                count -= 1

    def forgotten(self, slots: bytes, templates: dict[int, int]) -> None:
        """The core has forgotten these (uint32 each), so many of each template."""
        if self.attempts.past or self.attempts.claims:
            for task in memoryview(slots).cast("I"):
                self.attempts.forget(task)
        for template, count in templates.items():
            self._drop(template, count)
        self.ended.forget(slots)

    def about_to_forget(self, task: int) -> None:
        """Drop all that the books keep of a task that the core is about to forget."""
        row = self.core.task(task)
        self.attempts.forget(task)
        self._drop(row.template, 1)
        gang = self.gangs.of(row.gang)
        self.ended.forget(task.to_bytes(4, "little"))
        if gang is not None:
            self.gangs.forget(gang, task)

    # -- small questions

    def body(self, task: int) -> Task:
        """The task's body (without id, deadline and priority)."""
        return self.templates.task(self.core.task(task).template)

    def lane(self, qos_level: int) -> str:
        """immediate or batch, by configuration."""
        return "immediate" if qos_level in self.immediate else "batch"

    def id_of(self, task: int) -> str:
        """The task's id; "" for NONE."""
        return "" if task == NONE else self.core.task(task).key.decode()

    def model_of(self, attempt: Attempt) -> str:
        """Model of the attempt's first device; "" where it has none, or the model is not known."""
        node = self.cluster.by_name.get(attempt.node)
        index = node.index_of(attempt.devices[0][0]) if node is not None and attempt.devices else -1
        return "" if node is None or index < 0 else node.device(index).model or ""

    def device_ids(self, node_slot: int, grants: tuple[tuple[int, int], ...]) -> tuple[tuple[str, int], ...]:
        """Grants in the core's numbers → (device id, share in thousandths)."""
        devices = self.cluster.by_slot[node_slot].spec.devices
        return tuple((devices[index].id, share) for index, share in grants)


def _proof(node: str, victims: tuple[str, ...], gang: str | None) -> str:
    """`victims`: those of this claim; a seat of a gang may have none."""
    names = ", ".join(victims)
    if gang is None:
        return f"fits on {node} once {names} are gone, and without any one of them gone it does not"
    gone = f" once {names} are gone" if victims else ""
    return (
        f"has its seat on {node}{gone}; gang {gang} finds all its seats once the victims of all its claims are gone, "
        "and with any one of them there it does not"
    )


def coarse_ns(seconds: float) -> int:
    """Nanoseconds to three digits: the core keeps one of 65,534 different checkpoint intervals per task, only to price evictions by."""
    return round(float(f"{seconds:.3g}") * 1e9)
