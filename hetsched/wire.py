"""Messages between daemon and agent, msgpack over one WebSocket that the agent opens (`GET /v1/agents/connect`).

Every message is a tagged array. Orders carry the session that the Welcome named; an agent ignores those of another session and
refuses epochs below the highest it has seen. Starting and stopping are idempotent by (task, attempt).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence

import msgspec

from hetsched.model import NodeSpec
from hetsched.model.ids import Ids as Ids

PROTOCOL = 3

_INDEX = re.compile(r"-(0|[1-9][0-9]{0,9})\Z")


def array_env(task: str) -> dict[str, str]:
    """What a task of an array is told of itself. Nothing but the id remembers that it came from one, so the index is the number at its end;
    a task that was given such a name by hand is told it as well."""
    index = _INDEX.search(task)
    return {"HETSCHED_ARRAY_INDEX": index[1]} if index else {}


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="type"):
    """Base of all messages."""


# ---------------------------------------------------------------------- agent → daemon


class AttemptState(msgspec.Struct, frozen=True, array_like=True):
    """state: running | ended. Times are agent wall clock, seconds."""

    task: str
    attempt: int
    state: str
    succeeded: bool = False
    exit_code: int | None = None
    reason: str = ""
    started_at: float = 0.0


class DeviceReading(msgspec.Struct, frozen=True, array_like=True):
    """One device, one moment; None = the vendor does not tell. Percent, bytes, °C, W, counts."""

    device: str
    health: str
    reason: str = ""
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    ecc_uncorrected: int | None = None
    xids: tuple[int, ...] = ()


class AttemptUse(msgspec.Struct, frozen=True, array_like=True):
    """What a running attempt uses of what it holds; `utilization_milli`: of its devices. -1 = not measured."""

    task: str
    attempt: int
    cpu_milli: int
    memory_bytes: int
    utilization_milli: int = -1


class Hello(Message, frozen=True, array_like=True, tag="hello"):
    """First message. `highest_epoch`: largest the agent ever obeyed. `cluster`: id it belongs to ("" = none yet).
    `instance`: which data directory, made up once with it ("" = not told); two agents on one machine differ in nothing else. `cell`: whose
    daemon it wants to be told by ("" = any)."""

    protocol: int
    node: NodeSpec
    attempts: tuple[AttemptState, ...]
    readings: tuple[DeviceReading, ...]
    highest_epoch: int
    cluster: str
    version: str
    instance: str = ""
    cell: str = ""


class Heartbeat(Message, frozen=True, array_like=True, tag="heartbeat"):
    """`sent_ns`: the agent's monotonic clock; the lease runs from it once HeartbeatSeen comes back."""

    sent_ns: int


class Started(Message, frozen=True, array_like=True, tag="started"):
    task: str
    attempt: int
    pid: int = 0


class Ended(Message, frozen=True, array_like=True, tag="ended"):
    """Repeated until Settled."""

    task: str
    attempt: int
    succeeded: bool
    exit_code: int | None = None
    reason: str = ""


class StartedMany(Message, frozen=True, array_like=True, tag="started_many"):
    """`Started` of each. `attempts`: an uint16 each."""

    tasks: Ids
    attempts: bytes


class SucceededMany(Message, frozen=True, array_like=True, tag="succeeded_many"):
    """`Ended` of each, which did its work: exit code 0, or a lease that is over. Columns as of StartedMany."""

    tasks: Ids
    attempts: bytes


class Report(Message, frozen=True, array_like=True, tag="report"):
    """Answer to a Pull, or a push: any device above 90 % utilisation, any change of health, any use that changed enough, at once."""

    readings: tuple[DeviceReading, ...]
    pushed: bool = False
    load: float = 0.0
    memory_available_bytes: int = 0
    uses: tuple[AttemptUse, ...] = ()


class LogData(Message, frozen=True, array_like=True, tag="log"):
    """Answer to ReadLog. `end`: nothing more will ever come. `error`: code if it cannot be read ("gone", "unknown")."""

    request: int
    offset: int
    data: bytes
    end: bool
    error: str = ""


# ---------------------------------------------------------------------- daemon → agent


class Welcome(Message, frozen=True, array_like=True, tag="welcome"):
    """Answer to Hello. Orders that follow carry `session`."""

    session: int
    epoch: int
    cluster: str
    lease_s: float
    heartbeat_s: float


class Refused(Message, frozen=True, array_like=True, tag="refused"):
    """The daemon will not have this agent; the connection closes after it."""

    reason: str


class HeartbeatSeen(Message, frozen=True, array_like=True, tag="heartbeat_seen"):
    sent_ns: int


class Start(Message, frozen=True, array_like=True, tag="start"):
    """Begin an attempt. devices: (device id, share_milli). command None: lease-only, hold the devices for `duration_s` (None: until told).
    `cpu_limit_milli`, `memory_limit_bytes`: most that it may use, 0 = no limit."""

    session: int
    epoch: int
    task: str
    attempt: int
    devices: tuple[tuple[str, int], ...]
    cpu_milli: int
    memory_bytes: int
    command: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    duration_s: float | None = None
    time_limit_s: float | None = None
    grace_s: float = 30.0
    name: str = ""
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0


class Starts(Message, frozen=True, array_like=True, tag="starts"):
    """`Start` of many. The i-th is `likes[which[i]]` but for session, task, attempt, devices and its array index. `names`: of the node's
    devices, by index. `which`, `attempts`: an uint16 each; `devices`: of each a byte that counts them, then index and share_milli (uint16) of
    each device. Little-endian."""

    session: int
    epoch: int
    names: tuple[str, ...]
    likes: tuple[Start, ...]
    which: bytes
    tasks: Ids
    attempts: bytes
    devices: bytes

    def each(self) -> Iterator[Start]:
        """One by one, in order."""
        at = 0
        which, attempts = memoryview(self.which).cast("H"), memoryview(self.attempts).cast("H")
        for like, task, attempt in zip(which, self.tasks.each(), attempts, strict=True):
            end = at + 1 + 3 * self.devices[at]
            devices = tuple(
                (self.names[self.devices[one]], int.from_bytes(self.devices[one + 1 : one + 3], "little"))
                for one in range(at + 1, end, 3)
            )
            at = end
            order = self.likes[like]
            env = {**order.env, **array_env(task)}
            own = {"session": self.session, "task": task, "attempt": attempt, "devices": devices, "env": env}
            yield msgspec.structs.replace(order, **own)


class Stop(Message, frozen=True, array_like=True, tag="stop"):
    """End an attempt: SIGTERM, `grace_s`, SIGKILL to the whole tree; reported with Ended."""

    session: int
    epoch: int
    task: str
    attempt: int
    grace_s: float
    reason: str


class Settled(Message, frozen=True, array_like=True, tag="settled"):
    """The attempt's end is durable; the agent may forget all but its log."""

    session: int
    task: str
    attempt: int


class SettledMany(Message, frozen=True, array_like=True, tag="settled_many"):
    """`Settled` of each. Columns as of StartedMany."""

    session: int
    tasks: Ids
    attempts: bytes

    def each(self) -> Iterator[Settled]:
        """One by one, in order."""
        for task, attempt in attempts_in(self.tasks, self.attempts):
            yield Settled(self.session, task, attempt)


def attempts_in(tasks: Ids, attempts: bytes) -> Iterator[tuple[str, int]]:
    """(task, attempt) of two columns. ValueError where they do not belong together."""
    return zip(tasks.each(), memoryview(attempts).cast("H"), strict=True)


def columns(attempts: Sequence[tuple[str, int]]) -> tuple[Ids, bytes]:
    """(task, attempt) of each → the two columns."""
    return Ids.of([task for task, _ in attempts]), array("H", (number for _, number in attempts)).tobytes()


LEAST_TOGETHER = 4
"""Fewer are said one by one, in full: a column knows no pid."""


def together(said: Sequence[Message]) -> list[Message]:
    """Starts and successes in columns, the rest after them as it was. An attempt that began and ended since is in both columns."""
    began = [one for one in said if type(one) is Started]
    done = [one for one in said if type(one) is Ended and one.succeeded]
    if len(began) + len(done) < LEAST_TOGETHER:
        return list(said)
    rest = [one for one in said if not (type(one) is Started or (type(one) is Ended and one.succeeded))]
    return [
        *([StartedMany(*columns([(one.task, one.attempt) for one in began]))] if began else []),
        *([SucceededMany(*columns([(one.task, one.attempt) for one in done]))] if done else []),
        *rest,
    ]


class Pull(Message, frozen=True, array_like=True, tag="pull"):
    """Send a Report now."""


class ReadLog(Message, frozen=True, array_like=True, tag="read_log"):
    """stream: stdout | stderr. attempt 0: the latest. follow: keep sending as it grows, until the attempt has ended."""

    request: int
    task: str
    attempt: int
    stream: str
    offset: int
    limit_bytes: int
    follow: bool = False


class CloseLog(Message, frozen=True, array_like=True, tag="close_log"):
    request: int


FromAgent = Hello | Heartbeat | Started | Ended | StartedMany | SucceededMany | Report | LogData
FromDaemon = (
    Welcome | Refused | HeartbeatSeen | Start | Starts | Stop | Settled | SettledMany | Pull | ReadLog | CloseLog
)

encode = msgspec.msgpack.Encoder().encode
decode_from_agent = msgspec.msgpack.Decoder(FromAgent).decode
decode_from_daemon = msgspec.msgpack.Decoder(FromDaemon).decode
