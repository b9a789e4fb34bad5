"""A storm: a cluster under work while faults strike its parts at random moments, and the judges that watch it.

Everything random comes from one seed. The judges are independent of the scheduler: the record that the processes write themselves (each holds
a lock for as long as anything of it lives, so two lives of one task cannot be missed), and the sums of what the API says.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.client import ENDED
from hetsched.client.problems import Unreachable
from hetsched.errors import Unavailable
from tests.end_to_end.cluster import Cluster, eventually
from tests.faults.weather import Weather

# Appended lines are short and O_APPEND: they never mix. The lock goes down with the last process that holds it.
LIFE = """\
exec 9>>"$1/lock.$HETSCHED_TASK"
flock -n 9 || echo "$HETSCHED_TASK $HETSCHED_ATTEMPT overlap" >> "$1/record"
echo "$HETSCHED_TASK $HETSCHED_ATTEMPT start" >> "$1/record"
sleep "$2"
echo "$HETSCHED_TASK $HETSCHED_ATTEMPT end" >> "$1/record"
"""
SHAPES: tuple[dict[str, Any], ...] = (
    {"cpu": 0.1},
    {"cpu": 0.2, "gpu": 0.25},
    {"cpu": 0.2, "gpu": 0.5},
    {"cpu": 0.5, "gpu": 1},
)
QOS = ("production", "production", "best_effort", "background", "critical")


class Size(NamedTuple):
    """How large a storm: tasks by kind, how often each fault strikes, seconds over which the tasks are spread."""

    processes: int
    leases: int
    faults: Mapping[str, int]
    spread_s: float


class Storm:
    """One storm on one cluster."""

    def __init__(self, cluster: Cluster, weather: Weather, directory: Path, size: Size) -> None:
        self.cluster, self.size = cluster, size
        self.random = weather.random
        self.weather = weather
        self.directory = directory
        self.acknowledged: set[str] = set()
        self.struck: Counter[str] = Counter()
        self.looks = self.still_looks = 0
        self.complaints: list[str] = []
        self._ended: dict[str, tuple[str, int]] = {}
        self._submitted = threading.Event()
        self._over = threading.Event()

    def rage(self) -> None:
        """Submits while faults strike; returns when all was submitted and every fault is over."""
        (self.directory / "life.sh").write_text(LIFE)
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._submit, self._watch)]
        for thread in threads:
            thread.start()
        try:
            self._strike()
            self._submitted.wait(120)
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)

    def settle(self, within_s: float) -> dict[str, dict[str, Any]]:
        """Waits until everything acknowledged has ended; the tasks by id."""

        def none_left() -> bool:
            self.weather.keep()
            return not list(self.cluster.client.tasks(state="queued,held,backoff,placed,running,stopping", limit=1))

        eventually(none_left, within_s=within_s, every_s=0.5, why="every task ends")
        self._look()
        return {task["id"]: task for task in self.cluster.client.tasks()}

    # ---- work

    def _bodies(self) -> list[Any]:
        """Submissions in all forms: single tasks, lists, arrays."""
        bodies: list[Any] = []
        for number in range(self.size.processes):
            seconds = self.random.choice((0.05, 0.2, 0.5, 1.5))
            bodies.append(
                {
                    "id": f"p{number}",
                    "command": ["sh", str(self.directory / "life.sh"), str(self.directory), str(seconds)],
                    "resources": self.random.choice(SHAPES),
                    "qos": self.random.choice(QOS),
                    "retries": 20,
                    "grace": 1,
                }
            )
        left, number = self.size.leases, 0
        while left > 0:
            count = min(left, self.random.choice((1, 10, 50)))
            lease = {
                "resources": self.random.choice(SHAPES),
                "duration": self.random.choice((0.1, 0.5, 1)),
                "retries": 20,
                "grace": 1,
            }
            name = f"l{number}"
            if self.random.random() < 0.5:
                bodies.append({"template": {"id": name, **lease}, "count": count})
            else:
                bodies.append([{"id": f"{name}.{index}", **lease} for index in range(count)])
            left, number = left - count, number + 1
        self.random.shuffle(bodies)
        return bodies

    def _submit(self) -> None:
        bodies = self._bodies()
        pause_s = self.size.spread_s / len(bodies)
        for body in bodies:
            self.acknowledged.update(_ids(body, self._insist(body)))
            time.sleep(pause_s * 0.5)
        self._submitted.set()

    def _insist(self, body: Any) -> dict[str, Any]:
        """Who gets no answer, or a 503 for longer than a client is patient, sends the same again."""
        while True:
            try:
                return dict(self.cluster.client.submit(body))
            except (Unreachable, Unavailable):
                time.sleep(0.5)

    # ---- faults

    def _strike(self) -> None:
        faults = [fault for fault, count in self.size.faults.items() for _ in range(count)]
        self.random.shuffle(faults)
        for fault in faults:
            self.weather.wait(self.random.expovariate(len(faults) / self.size.spread_s))
            self.weather.strike(fault)
            self.struck[fault] += 1

    # ---- judges

    def _watch(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Unreachable, Unavailable):
                self._look()
            time.sleep(0.2)

    def _look(self) -> None:
        """One look: the ledger of every device is the sum of the live attempts on it, and no end is taken back."""
        self.looks += 1
        client = self.cluster.client
        before = _holders(client.devices())
        placements = [task["placement"] for task in client.tasks(state="placed,running,stopping")]
        devices = client.devices()
        self.complaints += _ledger_faults(devices)
        if before == _holders(devices):  # nothing moved while one asked: what the tasks say of themselves has to agree
            used, held = _used(devices), _held(placements)
            self.still_looks += bool(used)  # an empty cluster proves little
            if held != used:
                self.complaints.append(f"only devices know of {used - held}, only tasks of {held - used}")
        for task in client.tasks(state=",".join(sorted(ENDED))):
            end = (task["state"], task["attempt"])
            if self._ended.setdefault(task["id"], end) != end:
                self.complaints.append(f"{task['id']} ended as {self._ended[task['id']]} and as {end}")

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.complaints.append(f"{work.__name__} broke off: {error!r}")
            self._submitted.set()


def _ledger_faults(devices: dict[str, Any]) -> list[str]:
    """Devices whose use is not the sum of the attempts on it, or more than the whole."""
    faults = []
    for device in devices["devices"]:
        shares = sum(holder["share"] for holder in device["tasks"])
        if not shares == device["share_used"] <= 1000:
            faults.append(f"{device['node']}/{device['id']}: {device['share_used']} used, attempts hold {shares}")
    return faults


def _held(placements: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """(node, device) → thousandths, summed over placements."""
    held = Counter[tuple[str, str]]()
    for placement in placements:
        for device in placement["devices"]:
            held[placement["node"], device["id"]] += device["share"]
    return held


def _holders(devices: dict[str, Any]) -> list[Any]:
    """Who holds what: another task on the same device is a change."""
    return [(device["node"], device["id"], device["tasks"]) for device in devices["devices"]]


def _used(devices: dict[str, Any]) -> Counter[tuple[str, str]]:
    """(node, device) → thousandths in use."""
    return +Counter({(device["node"], device["id"]): device["share_used"] for device in devices["devices"]})


def _ids(body: Any, answer: dict[str, Any]) -> list[str]:
    if isinstance(body, list):
        return [task["id"] for task in body]
    if "template" in body:
        return [f"{body['template']['id']}-{index}" for index in range(body["count"])]
    return [answer["id"]]


def lives(record: Path) -> dict[str, dict[str, list[int]]]:
    """What the processes wrote: task → what → attempts."""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in record.read_text().splitlines():
        task, attempt, what = line.split()
        found[task][what].append(int(attempt))
    return found
