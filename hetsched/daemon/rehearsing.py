"""The helper process that plans and advises: `python -m hetsched.daemon.rehearsing`, started by `planner.py`.

It holds one image of the scheduler and works on copies of it, at low priority. Frames come on stdin, one answer a question goes to stdout;
with the end of stdin it ends. It knows no file, no network and no token.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from hetsched._core import NONE
from hetsched.daemon.sidecar import LENGTH_BYTES, frame
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import rehearse
from hetsched.scheduler.rehearse import Advice, Image

NICENESS = 10

log = logging.getLogger("hetsched.daemon.rehearsing")


class Show(msgspec.Struct, tag="image", frozen=True):
    """The image for the questions that follow. Not answered."""

    image: Image


class Plan(msgspec.Struct, tag="plan", frozen=True):
    """Answered with the plan, its tasks and refusals numbered as these tasks."""

    tasks: list[Task]
    now_ns: int


class Advise(msgspec.Struct, tag="advise", frozen=True):
    """Answered with Advice, or null where the task does not wait in the image."""

    task: str
    now_ns: int


class Explain(msgspec.Struct, tag="explain", frozen=True):
    """Answered with the whole explanation, and Advice where the task waits; with neither where the image does not know it."""

    task: str
    now_ns: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """To a question. `fault`: it went wrong; the text is for the log of the daemon."""

    plan: dict[str, Any] = {}
    told: dict[str, Any] | None = None
    advice: Advice | None = None
    fault: str = ""


Question = Show | Plan | Advise | Explain

encode = msgspec.msgpack.Encoder().encode
answer_of = msgspec.msgpack.Decoder(Answer).decode
_decode = msgspec.msgpack.Decoder(Question).decode


def main() -> None:
    """Answer until stdin ends."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal means the daemon
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    image: Image | None = None
    while (payload := _read(sys.stdin.buffer)) is not None:
        question = _decode(payload)
        if isinstance(question, Show):
            image = question.image
            continue
        assert image is not None, "a question comes after its image"
        sys.stdout.buffer.write(frame(_answer(image, question)))
        sys.stdout.buffer.flush()


def _read(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    payload = pipe.read(length)
    return payload if len(payload) == length else None


def _answer(image: Image, question: Plan | Advise | Explain) -> bytes:
    try:
        return encode(_work_out(image, question))
    except Exception as error:
        log.exception("a question went wrong")
        return encode(Answer(fault=f"{type(error).__name__}: {error}"))


def _work_out(image: Image, question: Plan | Advise | Explain) -> Answer:
    began_s, whole_s = time.monotonic(), image.config.limits.plan_time

    def share(part: float) -> Callable[[], bool]:
        return lambda: time.monotonic() - began_s > part * whole_s

    if isinstance(question, Advise):
        return Answer(advice=rehearse.advise(image, question.task, question.now_ns, share))
    if isinstance(question, Explain):
        copy = rehearse.open_copy(image, question.now_ns)
        if copy.core.find(question.task.encode()) == NONE:
            return Answer()
        copy.look(copy.world.now_ns)
        return Answer(
            told=copy.view.explain(question.task), advice=rehearse.advise(image, question.task, question.now_ns, share)
        )
    items: list[Task | Rejection] = list(question.tasks)
    told = rehearse.plan(image, Submission(single=False, items=items), question.now_ns, share)
    assert isinstance(told, dict), "a list is never refused as a whole"
    return Answer(plan=told)


if __name__ == "__main__":
    main()
