"""Every command of the program: its name, the module that holds it, and one line about it. To add one: a line here, and in
that module an entry of `COMMANDS`. Modules are loaded only for the command that was called."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """`arguments` fills the parser, `run` does it and returns the exit code. `usage`: instead of argparse's own line.
    `raw`: the words go to `run` unread, as `options.argv`; the program behind it has a parser of its own."""

    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    usage: str | None = None
    raw: bool = False


class Entry(NamedTuple):
    module: str
    about: str


TABLE: dict[str, Entry] = {
    "submit": Entry("submit", "hand in a command, or a file of tasks or of a graph"),
    "plan": Entry("plan", "show what submitting this would do, without doing it"),
    "list": Entry("tasks", "list tasks"),
    "show": Entry("tasks", "show one task: state, placement, attempts"),
    "why": Entry("why", "why a task waits, or why it is where it is"),
    "logs": Entry("logs", "print what a task wrote"),
    "wait": Entry("waiting", "wait until tasks have ended"),
    "cancel": Entry("operate", "cancel tasks"),
    "hold": Entry("operate", "keep queued tasks from starting"),
    "release": Entry("operate", "let held tasks go"),
    "requeue": Entry("operate", "stop a task and queue it again"),
    "priority": Entry("operate", "set a task's priority"),
    "events": Entry("events", "print the event log"),
    "top": Entry("top", "the cluster as it is now, again and again"),
    "status": Entry("status", "how the daemon is, and the way out where something is wrong"),
    "node list": Entry("cluster", "list nodes"),
    "node show": Entry("cluster", "show one node"),
    "node drain": Entry("cluster", "place nothing new there; running tasks finish"),
    "node cordon": Entry("cluster", "place nothing new there"),
    "node uncordon": Entry("cluster", "place there again"),
    "device list": Entry("cluster", "list devices, their shares and health"),
    "cell list": Entry("cluster", "list cells: leader, room, backlog, age of what is known"),
    "queue list": Entry("cluster", "list tenant queues"),
    "queue set": Entry("cluster", "set a queue's weight, guarantee and limit"),
    "graph list": Entry("graph", "list graphs of operators"),
    "graph show": Entry("graph", "show one graph: progress, critical path, bound"),
    "graph cancel": Entry("graph", "cancel a graph"),
    "profile list": Entry("profile", "list learned run times by type of task, size and device model"),
    "profile show": Entry("profile", "show what is learned of one type of task"),
    "profile export": Entry("profile", "print all that is learned, to be imported elsewhere"),
    "profile import": Entry("profile", "bring in what was exported elsewhere"),
    "journal inspect": Entry("journal", "say what is in a journal, and which frame is damaged"),
    "journal export": Entry("journal", "write its frames out in words, one JSON object a line"),
    "journal truncate": Entry("journal", "cut a damaged journal behind its last good frame"),
    "journal mend": Entry("journal", "write the head of a journal anew from its frames and snapshots"),
    "replay": Entry("replay", "rebuild the state at a moment, and explain what was decided then"),
    "handover": Entry("handover", "let a standby lead"),
    "doctor": Entry("doctor", "say whether this machine is fit, and the fix where it is not"),
    "serve": Entry("serve", "run the daemon"),
    "agent": Entry("agent", "run the agent of this machine"),
    "demo": Entry("local", "a daemon, agents and a mixed workload on this machine"),
    "simulate": Entry("simulate", "run a scenario or a trace on a virtual clock"),
    "load": Entry("local", "the Poisson load generator"),
    "config check": Entry("local", "check a configuration file"),
    "config show": Entry("local", "show the configuration in effect"),
    "version": Entry("local", "print the version"),
}

GROUPS = {name.split()[0] for name in TABLE if " " in name}
