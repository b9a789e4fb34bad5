"""Commands that remedies name, typed: through the command line's own parser, with the story's scheduler for a daemon."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from hetsched import cli
from hetsched.model import parse_queue
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story


class Hand:
    """What the commands ask of a client."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def _do(self, asked: m.Input) -> dict[str, Any]:
        answer = self.story.ask(asked)
        assert not isinstance(answer, Exception), (asked, answer)
        return {}

    def queue(self, name: str) -> dict[str, Any]:
        return self.story.scheduler.view.queue(name)

    def set_queue(self, name: str, body: Mapping[str, Any]) -> Any:
        return self._do(m.SetQueue(queue=parse_queue({"name": name, **body})))

    def operate(self, verb: str, ident: str, *, priority: int = 0) -> Any:
        return self._do(m.Operate(verb=verb, task=ident, priority=priority))

    def operate_node(self, verb: str, name: str) -> Any:
        return self._do(m.OperateNode(verb=verb, node=name))


def typed(story: Story, commands: str) -> None:
    """As a shell takes the line apart; every command ends well."""
    hand = Hand(story)
    with (
        patch("hetsched.cli.cluster.client_of", lambda _: hand),
        patch("hetsched.cli.operate.client_of", lambda _: hand),
    ):
        for command in commands.split(" && "):
            program, *words = shlex.split(command)
            assert program == "hetsched" and cli.main(words) == 0, command
