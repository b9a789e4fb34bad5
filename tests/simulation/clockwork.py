"""Virtual time for asyncio, and processes that can be killed and frozen between any two callbacks.

Everything that runs belongs to a `Process` (a context variable that asyncio itself hands on to every callback), every process to a
`Machine` with clocks of its own. A dead process' callbacks are dropped, a frozen one's are kept for later. Nothing sleeps: when
nobody is ready, the time is that of the next timer.

Promise: the same program with the same seeds makes the same steps. Dead processes stay referenced until the end, because a coroutine
that is collected runs its `finally` blocks, and no kill -9 does that.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import sys
import time as real_time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
EPOCH_S = 1_700_000_000.0


class Nothing(Exception):
    """Nothing can ever happen any more."""


class Machine:
    """`rate`: seconds of its clocks per true second. `wall_offset_s`: what somebody set its wall clock wrong by."""

    def __init__(self, name: str, rate: float = 1.0) -> None:
        self.name = name
        self.rate = rate
        self.wall_offset_s = 0.0
        self.processes: list[Process] = []
        self._since_true_s, self._since_s = 0.0, 1000.0

    def monotonic_s(self, true_s: float) -> float:
        return self._since_s + (true_s - self._since_true_s) * self.rate

    def true_s(self, monotonic_s: float) -> float:
        return self._since_true_s + (monotonic_s - self._since_s) / self.rate

    def run_at(self, rate: float, true_s: float) -> None:
        """From now on; timers that were set before keep their moment."""
        self._since_true_s, self._since_s = true_s, self.monotonic_s(true_s)
        self.rate = rate


class Process:
    """`fuse`: callbacks until it dies, None = no such plan. `at_death` is called once, outside of any process."""

    def __init__(self, loop: VirtualLoop, machine: Machine, name: str) -> None:
        self.loop = loop
        self.machine = machine
        self.name = name
        self.alive = True
        self.frozen = False
        self.began_s = loop.true_s  # or was woken up
        self.fuse: int | None = None
        self.at_death: list[Callable[[], None]] = []
        self.steps = 0
        self._held: list[Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidy_at = 64
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)
        machine.processes.append(self)
        loop.processes.append(self)

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a coroutine as this process."""
        task = self.loop.create_task(work, context=self.context.copy())
        task.add_done_callback(
            self.loop.look_at, context=contextvars.Context()
        )  # also if it was begun by who is dead by then
        return task

    def kill(self) -> None:
        """kill -9: nothing of it runs any more."""
        if not self.alive:
            return
        self.alive = False
        self._held.clear()
        if self in self.machine.processes:
            self.machine.processes.remove(self)
        for call in self.at_death:
            call()

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self.began_s = self.loop.true_s
        held, self._held = self._held, []
        self.loop.go_on(held)

    def keep(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) >= self._tidy_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tidy_at = max(64, 2 * len(self._tasks))
        self._tasks.append(task)

    def finish(self) -> None:
        """Close what is left of its coroutines."""
        for task in self._tasks:
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()

    def may_run(self, handle: Handle) -> bool:
        """Whether this callback runs now; notes it down if it runs later."""
        if not self.alive:
            return False
        if self.frozen:
            self._held.append(handle)
            return False
        self.steps += 1
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                contextvars.Context().run(self.kill)
                return False
        return True


class Handle:
    """A callback that waits for its turn, as asyncio wants to hold it; what `call_soon` and `call_at` give."""

    __slots__ = ("args", "callback", "context", "process", "when_s")

    def __init__(
        self,
        callback: Callable[..., Any] | None,
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process | None,
        when_s: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.when_s = when_s

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        """By the clock of the machine that asked."""
        return self.when_s if self.process is None else self.process.machine.monotonic_s(self.when_s)


class Bell:
    """What one coroutine sleeps by until it is rung, or for so long: an event and its timeout at a third of the cost."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self, most_s: float = float("inf")) -> None:
        self._sleeper = self._loop.create_future()
        timer = None if most_s == float("inf") else self._loop.call_later(most_s, self.ring)
        try:
            await self._sleeper
        finally:
            if timer is not None:
                timer.cancel()


class VirtualLoop(asyncio.BaseEventLoop):
    """`true_s`: seconds since the beginning.

    Its own queue in place of asyncio's: a tenth of the cost, and the same order: all that is ready, then the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.true_s = 0.0
        self.processes: list[Process] = []
        self.over = False
        self.broken: BaseException | None = None  # first error of a process that caught none
        self.disk_s: Callable[[], float] = lambda: 0.0002
        self.set_task_factory(_make_task)
        self._soon: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        process = CURRENT.get()
        if process is None:
            return self.true_s
        machine = process.machine  # its `monotonic_s`, asked for more often than anything
        return machine._since_s + (self.true_s - machine._since_true_s) * machine.rate

    def look_at(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self.broken = self.broken or task.exception()

    def finish(self) -> None:
        """End of the world: coroutines are closed and whatever their `finally` blocks want is not done."""
        self.over = True
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # coroutines that nobody came to await
                for process in self.processes:
                    process.alive = False
                    process.finish()
            self.processes.clear()
            self._soon.clear()
            self._timers.clear()
            gc.collect()
        finally:
            sys.unraisablehook = hook
        self.close()

    def go_on(self, held: list[Handle]) -> None:
        """What a frozen process did not do, unless it is cancelled meanwhile."""
        self._soon.extend(held)

    # ------------------------------------------------------------------ asyncio's doors

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(CURRENT))
        if not self.over:
            self._soon.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        if context is None:
            context = contextvars.copy_context()
        process = context.get(CURRENT)
        when_s = when if process is None else process.machine.true_s(when)
        handle = Handle(callback, args, context, process, when_s)
        if not self.over:
            heapq.heappush(self._timers, (when_s, next(self._count), handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_outside(self, callback: Any, *args: Any, after_s: float = 0.0) -> Any:
        """As nobody's doing: networks, kernels, fate."""
        return self.call_at(self.true_s + after_s, callback, *args, context=contextvars.Context())

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """A thread's work: done at once, some disk time from now, if the process still lives then."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self.disk_s(), work)
        return future

    # ------------------------------------------------------------------ turning

    def _run_once(self) -> None:
        soon, timers = self._soon, self._timers
        while not self._stopping:  # type: ignore[attr-defined]
            if soon:
                handle = soon.popleft()
            elif timers:
                when_s, _, handle = heapq.heappop(timers)
                if handle.callback is None:
                    continue
                if when_s > self.true_s:
                    self.true_s = when_s
            else:
                raise Nothing("everybody waits for somebody else")
            callback, process = handle.callback, handle.process
            if callback is None or (process is not None and not process.may_run(handle)):
                continue
            try:
                handle.context.run(callback, *handle.args)
            except Exception as error:
                self.broken = self.broken or error

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Whatever breaks is in `broken`; what was never asked for, ended with the world."""

    def _check_closed(self) -> None:
        return None

    def _write_to_self(self) -> None:
        return None


def _make_task(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = CURRENT.get() if context is None else context.get(CURRENT)
    if process is not None:
        process.keep(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


# ---------------------------------------------------------------------- the time module


class VirtualTime:
    """What `import time` gives to hetsched's modules in here: the clocks of the machine that asks."""

    CLOCK_BOOTTIME = real_time.CLOCK_BOOTTIME

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    perf_counter_ns = monotonic_ns

    def clock_gettime_ns(self, clock: int) -> int:
        return self.monotonic_ns()

    def time(self) -> float:
        process = CURRENT.get()
        return EPOCH_S + self._loop.true_s + (process.machine.wall_offset_s if process else 0.0)

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)


def virtual_time(loop: VirtualLoop) -> Callable[[], None]:
    """Give every module of hetsched the loop's time; the answer undoes it."""
    shim = VirtualTime(loop)
    changed = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("hetsched.") and getattr(module, "time", None) is real_time
    ]
    for module in changed:
        module.time = shim  # type: ignore[attr-defined]

    def undo() -> None:
        for module in changed:
            module.time = real_time  # type: ignore[attr-defined]

    return undo
