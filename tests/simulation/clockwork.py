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
import sys
import time as real_time
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

    def monotonic_s(self, true_s: float) -> float:
        return 1000.0 + true_s * self.rate

    def true_s(self, monotonic_s: float) -> float:
        return (monotonic_s - 1000.0) / self.rate


class Process:
    """`fuse`: callbacks until it dies, None = no such plan. `at_death` is called once, outside of any process."""

    def __init__(self, loop: VirtualLoop, machine: Machine, name: str) -> None:
        self.loop = loop
        self.machine = machine
        self.name = name
        self.alive = True
        self.frozen = False
        self.fuse: int | None = None
        self.at_death: list[Callable[[], None]] = []
        self.steps = 0
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
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
        held, self._held = self._held, []
        for callback, args, context in held:
            self.loop.call_soon(callback, *args, context=context)

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finish(self) -> None:
        """Close what is left of its coroutines."""
        for task in list(self._tasks):
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()

    def may_run(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Whether this callback runs now; notes it down if it runs later."""
        if not self.alive:
            return False
        if self.frozen:
            self._held.append((callback, args, contextvars.copy_context()))
            return False
        self.steps += 1
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                contextvars.Context().run(self.kill)
                return False
        return True


class _Sleeper:
    """In the selector's place: waiting is setting the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Nothing("everybody waits for somebody else")
        if timeout > 0:
            self._loop.advance()
        return []

    def close(self) -> None:
        return None


class VirtualLoop(asyncio.BaseEventLoop):
    """`true_s`: seconds since the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleeper(self)
        self.true_s = 0.0
        self.processes: list[Process] = []
        self.over = False
        self.broken: BaseException | None = None  # first error of a process that caught none
        self.disk_s: Callable[[], float] = lambda: 0.0002
        self.set_task_factory(_make_task)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        process = CURRENT.get()
        return self.true_s if process is None else process.machine.monotonic_s(self.true_s)

    def advance(self) -> None:
        self.true_s = max(self.true_s, self._scheduled[0]._when)  # type: ignore[attr-defined]

    def look_at(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self.broken = self.broken or task.exception()

    def finish(self) -> None:
        """End of the world: coroutines are closed and whatever their `finally` blocks want is not done."""
        self.over = True
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for process in self.processes:
                process.alive = False
                process.finish()
            self.processes.clear()
            self._ready.clear()  # type: ignore[attr-defined]
            self._scheduled.clear()  # type: ignore[attr-defined]
            gc.collect()
        finally:
            sys.unraisablehook = hook
        self.close()

    def _check_closed(self) -> None:
        return None

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        if self.over:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(_guarded(callback, context), *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        if self.over:
            return asyncio.TimerHandle(when, callback, args, self, context)
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None:
            when = process.machine.true_s(when)
        return super().call_at(when, _guarded(callback, context), *args, context=context)

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

    def _process_events(self, event_list: list[Any]) -> None:
        return None

    def _write_to_self(self) -> None:
        return None


def _guarded(callback: Callable[..., Any], context: contextvars.Context | None) -> Callable[..., Any]:
    process = CURRENT.get() if context is None else context.get(CURRENT)
    if process is None:
        return callback

    def run(*args: Any) -> None:
        if process.may_run(callback, args):
            callback(*args)

    return run


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
