"""Cutting a journal behind its last good frame, so that it is whole again: what `hetsched journal truncate` does.

Promises: nothing but the frames from the named one on is lost, and those are in a file, on disk, before the first is dropped; what is kept is
an exact prefix that a start can read; the epoch goes up before anything is dropped, so no older daemon appends behind it. Interrupted at any
point it can be run again: frames go from the end, the head follows last.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from hetsched.errors import Conflict, NotFound
from hetsched.store.aof import behind, find_damage
from hetsched.store.archive import Archive, Entry
from hetsched.store.backend import Head, Manifest
from hetsched.store.base import START, JournalCorrupt, NewerVersion, Position
from hetsched.store.frame import follow
from hetsched.store.identity import Identity

AT_ONCE = 512


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: `cut` goes, `last` is the last that is kept. `snapshots`: those that stay."""

    head: Head
    at: str
    last: Position
    cut: list[Entry]
    snapshots: tuple[Manifest, ...]


async def plan_cut(archive: Archive, at: str) -> Cut:
    """What cutting at the frame with this stream id would do. Raises Conflict, with the rule, where that would not leave an exact prefix."""
    head = await archive.head()
    named = _order(at)
    last, snapshots = await _base(archive, head, at)
    cut = list[Entry]()
    async for entry in archive.entries(head, last):
        if _order(entry.id) >= named:
            cut.append(entry)
            continue
        try:
            last, _ = follow(last, entry.id, entry.data)
        except JournalCorrupt as damage:
            raise Conflict(f"{damage}; that is before {at}: cut there") from None
    _check_named(head, at, last, cut)
    return Cut(head=head, at=at, last=last, cut=cut, snapshots=snapshots)


async def make_cut(archive: Archive, plan: Cut, backup: Path, identity: Identity | None) -> Head:
    """Do it; the head as it is then. `identity`: of the daemon's data directory, which would else miss what was cut."""
    write_backup(backup, plan)
    fenced: Head = await archive.ask(partial(archive.backend.open_epoch, plan.head.cluster, False))
    if (fenced.seq, fenced.crc) != (plan.head.seq, plan.head.crc):
        raise Conflict("somebody has appended meanwhile; its daemon is deposed now. Look again before cutting")
    if identity is not None:  # before the frames go: were it to come after and fail, no start would take what is left
        identity.save(fenced.cluster, Position(fenced.epoch, plan.last.seq))
    ids = [entry.id for entry in reversed(plan.cut)]
    for first in range(0, len(ids), AT_ONCE):
        await archive.ask(partial(archive.backend.cut, fenced.epoch, ids[first : first + AT_ONCE]))
    head = fenced._replace(seq=plan.last.seq, crc=plan.last.crc, snapshots=plan.snapshots)
    await archive.ask(partial(archive.backend.end_at, head))
    for manifest in plan.head.snapshots:
        if manifest not in plan.snapshots:
            await archive.ask(partial(archive.backend.drop_chunks, manifest))
    return head


class Ending(NamedTuple):
    """What stays of a file."""

    path: Path
    end: int


def plan_file_cut(directory: Path, at: str) -> list[Ending]:
    """What dropping the damaged end of the journal server's own files, which it would not load, leaves of each. `at`: `byte:N`, as the refusal
    names it. Raises Conflict."""
    damage = find_damage(directory)
    if damage is None:
        raise Conflict(f"the journal server's files in {directory} can be read to their end: nothing has to be cut")
    if damage.whole_until is None:
        raise Conflict(f"{damage.path} {damage.reason}: nothing is won by cutting; restore it from a backup")
    if at != f"byte:{damage.whole_until}":
        raise Conflict(f"{damage.path} is whole up to byte {damage.whole_until}: name byte:{damage.whole_until}")
    return [Ending(damage.path, damage.whole_until), *(Ending(path, 0) for path in behind(damage, directory))]


def bytes_cut(plan: list[Ending]) -> int:
    """So many go."""
    return sum(path.stat().st_size - end for path, end in plan)


def make_file_cut(plan: list[Ending], backup: Path) -> None:
    """Do it. The server must not run. Raises Conflict."""
    _keep(backup, (path.read_bytes()[end:] for path, end in plan))
    for path, end in reversed(plan):  # from the end, so that what an interruption leaves is a prefix
        with open(path, "r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


async def settle_file(archive: Archive, identity: Identity) -> Head:
    """After `make_file_cut`: an epoch beyond all that were opened, and an identity that does not miss what is gone."""
    head = await archive.head()
    highest = max(head.epoch, identity.confirmed.epoch)
    while head.epoch <= highest:
        head = await archive.ask(partial(archive.backend.open_epoch, head.cluster, False))
    identity.save(head.cluster, Position(head.epoch, head.seq))
    return head


def write_backup(path: Path, plan: Cut) -> None:
    """One line about the journal, then one a frame, synced. Raises Conflict where it cannot be written, or is there already."""
    about = {"cut_at": plan.at, "cluster": plan.head.cluster, "head": plan.head.position.id, "kept_until": plan.last.id}
    frames = ({"id": entry.id, "frame": base64.b64encode(entry.data).decode()} for entry in plan.cut)
    _keep(path, (msgspec.json.encode(line) + b"\n" for line in (about, *frames)))


def _keep(path: Path, parts: Iterable[bytes]) -> None:
    try:
        with open(path, "xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Conflict(
            f"cannot write {path}: {error.strerror}; nothing was cut (--backup names another place)"
        ) from error


async def _base(archive: Archive, head: Head, at: str) -> tuple[Position, tuple[Manifest, ...]]:
    """Where a start would begin to read after the cut, and the snapshots that it would find."""
    snapshots = await archive.snapshots(head)
    whole = tuple(kept.manifest for kept in snapshots if kept.state is not None)
    if not whole:
        if len(snapshots) > 1:
            raise Conflict(
                "no snapshot can be read, and the journal does not reach back to before them; restore a backup"
            )
        return START, ()
    newest = whole[0].position
    if _order(at)[1] <= newest.seq:
        raise Conflict(f"frame {at} is older than the snapshot at {newest.id}, which is whole: no start reads it")
    return newest, whole


def _check_named(head: Head, at: str, last: Position, cut: list[Entry]) -> None:
    """Only at a frame that is there, or, where the head names one that is not, right behind the last."""
    if cut and isinstance(cut[0].fault, NewerVersion):
        raise Conflict(
            f"frame {at} is whole, of a newer version: install the hetsched that wrote it instead of cutting"
        )
    if cut and cut[0].id != at:
        raise NotFound(f"there is no frame {at}; the next one is {cut[0].id}")
    if not cut and (last.seq, last.crc) == (head.seq, head.crc):
        raise NotFound(f"there is no frame {at}; the journal ends with {last.id}, as it should")
    if not cut and _order(at)[1] != last.seq + 1:
        raise NotFound(f"there is no frame {at}; the journal ends with {last.id}: name {last.epoch}-{last.seq + 1}")


def _order(where: str) -> tuple[int, int]:
    epoch, dash, seq = where.partition("-")
    if not (dash and epoch.isdecimal() and seq.isdecimal()):
        raise NotFound(
            f"{where!r} is no frame; they are called EPOCH-SEQUENCE, as `hetsched journal inspect` shows them"
        )
    return int(epoch), int(seq)
