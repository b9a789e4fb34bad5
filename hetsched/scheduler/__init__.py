"""The scheduler: what a task's life is, who goes first, and what follows from every change. Sans-IO; see README.md."""

from hetsched.scheduler.messages import Event, Order, Reply, SubmitReply, Turn
from hetsched.scheduler.scheduler import PRESETS, Scheduler

__all__ = ["PRESETS", "Event", "Order", "Reply", "Scheduler", "SubmitReply", "Turn"]
