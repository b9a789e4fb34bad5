"""What there is to say of a journal: a summary, every frame, and what a start would stumble over.

The verdict is reached as a start reaches it, by reading from the newest whole snapshot and applying every frame, so both name the same one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsched.config import Config
from hetsched.daemon.history import Base, History, open_history
from hetsched.daemon.recover import apply
from hetsched.daemon.safe import way_out
from hetsched.errors import NotFound
from hetsched.scheduler import Scheduler, telling
from hetsched.scheduler.rendering import iso
from hetsched.store import IdentityMismatch, JournalCorrupt, Position, SnapshotLost, without_secrets
from hetsched.store.archive import Archive, Entry, Kept
from hetsched.store.backend import Head
from hetsched.store.frames import FramesAfter
from hetsched.store.identity import Identity


async def inspect(archive: Archive, config: Config, store_url: str, data_dir: Path, *, listing: bool) -> dict[str, Any]:
    """The whole report, as JSON. `listing`: with a line for every frame."""
    head = await archive.head()
    kept = await archive.snapshots(head)
    seen = Seen(listing)
    async for entry in archive.entries(head):
        seen.take(entry)
    prefix, damage, scheduler = await _verdict(archive, head, kept, config)
    refused = _refused(head, store_url, data_dir)
    report: dict[str, Any] = {
        "cluster": head.cluster,
        "epoch": head.epoch,
        "head": head.position.id,
        "snapshots": [_snapshot(one) for one in kept],
        **seen.told,
        "whole": damage is None and not refused,
        "refused": refused,
        "prefix": prefix,
        "damage": None,
        "faults": seen.faults,
        "state": None if scheduler is None else _state(scheduler),
    }
    if damage is not None:
        fix = way_out(damage, store_url, data_dir)
        report["damage"] = {"stream_id": damage.where, "offset": damage.offset, "reason": damage.reason, "fix": fix}
    if listing:
        report["list"] = seen.rows
    return report


def _refused(head: Head, store_url: str, data_dir: Path) -> str:
    """Why a daemon of this directory would not take the store, however whole: it is another one, or older than what it has confirmed."""
    try:
        Identity(data_dir / "identity.json", without_secrets(store_url)).check(head)
    except IdentityMismatch as mismatch:
        return mismatch.detail
    return ""


class Seen:
    """What is remembered of the frames that were looked at; not the frames, of which there may be half a gigabyte."""

    def __init__(self, listing: bool) -> None:
        self._listing = listing
        self.told: dict[str, Any] = {"frames": 0, "bytes": 0, "first": None, "last": None, "from": None, "until": None}
        self.faults: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []

    def take(self, entry: Entry) -> None:
        """One more."""
        told, at = self.told, _time(entry)
        told["frames"] += 1
        told["bytes"] += len(entry.data)
        told["first"], told["last"] = told["first"] or entry.id, entry.id
        told["from"], told["until"] = told["from"] or at, at or told["until"]
        if entry.fault is not None:
            fault = entry.fault
            self.faults.append({"stream_id": fault.where, "offset": fault.offset, "reason": fault.reason})
        if self._listing:
            self.rows.append(_row(entry, at))


async def _verdict(
    archive: Archive, head: Head, kept: list[Kept], config: Config
) -> tuple[str, JournalCorrupt | None, Scheduler | None]:
    """(id of the last frame of the exact prefix, what ends it, the state there)."""
    if len(kept) > 1 and all(one.fault for one in kept):
        assert kept[0].fault is not None
        return "", SnapshotLost(kept[0].fault.where, kept[0].fault.offset, kept[0].fault.reason), None
    try:
        history = await open_history(archive, config)
    except NotFound as error:
        return "", SnapshotLost("snapshot", 0, error.detail), None
    base = history.bases[-1]
    damage, last, scheduler = await _replay(history, base, None)
    if damage is not None and damage.cut == last.id:  # it may have been applied in part
        _, last, scheduler = await _replay(history, base, last)
    return last.id, damage, scheduler


async def _replay(
    history: History, base: Base, until: Position | None
) -> tuple[JournalCorrupt | None, Position, Scheduler]:
    """What a start would do. `until`: stop before that frame."""
    head = history.head
    frames = FramesAfter(history.archive.backend, base.at, head._replace(epoch=head.epoch + 1), history.archive.ask)
    scheduler, last = history.scheduler(base), base.at
    try:
        async for facts in frames:
            if until is not None and frames.at.seq >= until.seq:
                break
            apply(scheduler, facts, frames.at)
            last = frames.at
    except JournalCorrupt as damage:
        return damage, frames.at, scheduler
    return None, last, scheduler


def _snapshot(one: Kept) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "name": manifest.name,
        "at": manifest.position.id,
        "bytes": manifest.state_bytes,
        "chunks": manifest.chunks,
        "fault": None if one.fault is None else f"{one.fault.where}, byte {one.fault.offset}: {one.fault.reason}",
    }


def _row(entry: Entry, at: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"id": entry.id, "bytes": len(entry.data), "at": at, "facts": {}}
    if entry.payload is not None:
        row["crc"] = f"{entry.position.crc:08x}" if entry.position else None
        try:
            row["facts"] = telling.kinds(entry.payload)
        except ValueError as error:
            row["fault"] = f"says what this program does not know: {error}"
    if entry.fault is not None:
        row["fault"] = f"byte {entry.fault.offset}: {entry.fault.reason}"
    return row


def _time(entry: Entry) -> str | None:
    """Of its turn, if that can be read."""
    try:
        at_ns = None if entry.payload is None else telling.at_ns(entry.payload)
    except ValueError:
        return None
    return None if at_ns is None else iso(at_ns)


def _state(scheduler: Scheduler) -> dict[str, Any]:
    tasks = {state: count for state, count in scheduler.view.cluster()["tasks"].items() if count}
    return {"digest": f"{scheduler.digest():08x}", "at": iso(scheduler.books.now_ns), "tasks": tasks}
