"""Background tasks end, also those that miss a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from hetsched.store.ending import end


async def forever() -> None:
    while True:
        await asyncio.sleep(0.01)


async def misses_the_first() -> None:
    """As `asyncio.wait_for` of Python 3.11 does, when what it waited for is done in the same moment."""
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        pass
    await asyncio.sleep(10)


async def ends_with_an_error() -> None:
    try:
        await asyncio.sleep(10)
    finally:
        raise ValueError("while it was ended")


@pytest.mark.parametrize("work", [forever, misses_the_first, ends_with_an_error])
async def test_a_task_that_is_ended_is_done(work: object) -> None:
    task = asyncio.create_task(work())  # type: ignore[operator]
    other = asyncio.create_task(forever())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end(task, other, again_s=0.02)
    assert task.done() and other.done()


async def test_nothing_to_end_is_no_matter() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await end(task)
    await end()
