"""`journal`: looks at a store without a daemon, writes its frames out in words, and cuts it where it is damaged."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import exits, words
from hetsched.cli.offline import Place, add_place, place_of
from hetsched.cli.output import emit, emit_json, emit_json_line, note, one_line, pairs, table
from hetsched.cli.table import Command

if TYPE_CHECKING:
    from hetsched.store.archive import Entry
    from hetsched.store.surgery import Cut


def _inspect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", action="store_true", help="a line for every frame")
    add_place(parser)


def _inspect(options: argparse.Namespace) -> int:
    """REFUSED where a start would not get to the end."""
    report = asyncio.run(_report(place_of(options), options.frames))
    emit_json(report) if options.json else _tell_report(report)
    return exits.OK if report["whole"] else exits.REFUSED


async def _report(place: Place, listing: bool) -> dict[str, Any]:
    from hetsched.daemon.inspection import inspect
    from hetsched.daemon.safe import way_out
    from hetsched.store import FileDamaged, HeadDamaged

    try:
        async with place.open() as archive:
            return await inspect(archive, place.config, place.url, place.data_dir, listing=listing)
    except (FileDamaged, HeadDamaged) as damage:
        reason = f"{damage.reason}. To mend it: {way_out(damage, place.url, place.data_dir)}"
        raise type(damage)(damage.where, damage.offset, reason, cut=damage.cut) from None


def _tell_report(report: dict[str, Any]) -> None:
    span = (
        f"{report['first']} to {report['last']}, {report['from']} to {report['until']}" if report["first"] else "none"
    )
    state = report["state"] or {}
    pairs(
        [
            ("cluster", report["cluster"]),
            ("epoch", report["epoch"]),
            ("head", report["head"]),
            ("frames", f"{report['frames']} ({words.size(report['bytes'])}): {span}"),
            *((f"snapshot at {one['at']}", _snapshot(one)) for one in report["snapshots"]),
            ("whole", "yes" if report["damage"] is None else f"no: up to {report['prefix'] or 'nothing'}"),
            ("state there", state.get("digest") and f"{state['digest']}, {_counts(state['tasks'])}"),
        ]
    )
    if report.get("list"):
        emit()
        table(("FRAME", "BYTES", "AT", "HOLDS"), map(_row, report["list"]))
    for fault in report["faults"]:
        emit(one_line(f"damaged: {fault['stream_id']}, byte {fault['offset']}: {fault['reason']}"))
    if report["damage"]:
        damage = report["damage"]
        emit(one_line(f"a start stops at {damage['stream_id']}, byte {damage['offset']}: {damage['reason']}"))
        emit(f"to mend it: {damage['fix']}")
    if report["refused"]:
        emit(one_line(f"a start refuses it: {report['refused']}"))


def _snapshot(one: dict[str, Any]) -> str:
    return one["fault"] or f"whole, {words.size(one['bytes'])} in {one['chunks']} chunks"


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items()) or "nothing"


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    return row["id"], row["bytes"], row["at"] or "-", row.get("fault") or _counts(row["facts"])


# ---------------------------------------------------------------------- export


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="first", metavar="FRAME", help="from this stream id on")
    parser.add_argument("--to", dest="last", metavar="FRAME", help="up to this one")
    add_place(parser)


def _export(options: argparse.Namespace) -> int:
    """REFUSED where a frame could not be read; the others are there."""
    return asyncio.run(_write_out(place_of(options), options.first, options.last))


async def _write_out(place: Place, first: str | None, last: str | None) -> int:
    whole = True
    async for line in _lines(place, first, last):
        emit_json_line(line)
        whole = whole and "fault" not in line
    return exits.OK if whole else exits.REFUSED


async def _lines(place: Place, first: str | None, last: str | None) -> AsyncIterator[dict[str, Any]]:
    from hetsched.daemon.export import lines

    async with place.open() as archive:
        async for line in lines(archive, place.config, first, last):
            yield line


# ---------------------------------------------------------------------- truncate


def _truncate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", required=True, metavar="FRAME", help="stream id: this frame and all after it go")
    parser.add_argument("--yes", action="store_true", help="do it; without, only say what would be cut")
    parser.add_argument("--backup", type=Path, metavar="FILE", help="where to (default: in the data directory)")
    add_place(parser)


def _truncate(options: argparse.Namespace) -> int:
    cut = _cut_file if options.at.startswith("byte:") else _cut
    told = asyncio.run(cut(place_of(options), options.at, options.backup, really=options.yes))
    emit_json(told) if options.json else _tell_cut(told)
    return exits.OK


async def _cut(place: Place, at: str, backup: Path | None, *, really: bool) -> dict[str, Any]:
    from hetsched.store import without_secrets
    from hetsched.store.identity import Identity
    from hetsched.store.surgery import make_cut, plan_cut

    identity = Identity(place.data_dir / "identity.json", without_secrets(place.url))
    async with place.open() as archive:
        plan = await plan_cut(archive, at)
        told = _plan_json(plan)
        if not really:
            return told
        backup = backup or _new_backup(place, at, "ndjson")
        head = await make_cut(archive, plan, backup, identity if identity.known else None)
    if not identity.known:
        note(
            f"{place.data_dir} knows of no store: give the daemon's --data, or its identity.json will miss what was cut"
        )
    return {**told, "done": True, "backup": str(backup), "epoch": head.epoch}


async def _cut_file(place: Place, at: str, backup: Path | None, *, really: bool) -> dict[str, Any]:
    """The journal server's own file, which it does not load."""
    from hetsched.store.identity import DirectoryLock, Identity
    from hetsched.store.surgery import bytes_cut, make_file_cut, plan_file_cut, settle_file

    directory = place.data_dir / "valkey"
    identity = Identity(place.data_dir / "identity.json", place.url)
    if not really:
        size = bytes_cut(plan_file_cut(directory, at))
        return {"at": at, "frames": None, "bytes": size, "facts": {}, "done": False}
    backup = backup or _new_backup(place, at, "aof")
    lock = DirectoryLock(place.data_dir)
    try:
        plan = plan_file_cut(directory, at)
        gone = bytes_cut(plan)
        make_file_cut(plan, backup)
    finally:
        lock.release()
    async with place.open() as archive:
        head = await settle_file(archive, identity)
    told: dict[str, Any] = {"at": at, "frames": None, "bytes": gone, "facts": {}, "kept_until": head.position.id}
    return {**told, "done": True, "backup": str(backup), "epoch": head.epoch}


def _new_backup(place: Place, at: str, suffix: str) -> Path:
    return place.data_dir / f"journal-cut-{at.replace(':', '-')}-{time.strftime('%Y%m%dT%H%M%S')}.{suffix}"


def _plan_json(plan: Cut) -> dict[str, Any]:
    lost = Counter[str]()
    for entry in plan.cut:
        lost.update(_facts(entry))
    return {
        "at": plan.at,
        "frames": len(plan.cut),
        "bytes": sum(len(entry.data) for entry in plan.cut),
        "kept_until": plan.last.id,
        "facts": dict(lost),
        "done": False,
    }


def _facts(entry: Entry) -> dict[str, int]:
    from hetsched.scheduler import telling

    try:
        return {"unreadable frame": 1} if entry.payload is None else telling.kinds(entry.payload)
    except ValueError:
        return {"frame of a newer version": 1}


def _tell_cut(told: dict[str, Any]) -> None:
    frames = "" if told["frames"] is None else f" in {told['frames']} frames: {_counts(told['facts'])}"
    count = f"{words.size(told['bytes'])} bytes{frames}"
    if told["done"]:
        emit(one_line(f"cut {count}"))
        emit(f"they are in {told['backup']}")
        emit(
            f"the journal ends with {told['kept_until']}, epoch {told['epoch']}; start the daemon, agents reconcile with it"
        )
        return
    emit(one_line(f"would cut {count}"))
    if "kept_until" in told:
        emit(f"the journal would end with {told['kept_until']}")
    emit("what is cut is written to a file first. Nothing was changed")
    note("give --yes to do it")


# ---------------------------------------------------------------------- mend


def _mend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it; without, only say what the head would be")
    add_place(parser)


def _mend(options: argparse.Namespace) -> int:
    told = asyncio.run(_rehead(place_of(options), really=options.yes))
    emit_json(told) if options.json else _tell_head(told)
    return exits.OK


async def _rehead(place: Place, *, really: bool) -> dict[str, Any]:
    from hetsched.store import without_secrets
    from hetsched.store.identity import Identity
    from hetsched.store.rehead import mend_head, plan_head

    identity = Identity(place.data_dir / "identity.json", without_secrets(place.url))
    async with place.open() as archive:
        head, stream = await plan_head(archive, identity)
        if really:
            await mend_head(archive, head, identity)
    return {
        "cluster": head.cluster,
        "epoch": head.epoch,
        "head": head.position.id,
        "ends_at": stream.ends.id,
        "snapshots": [one.position.id for one in head.snapshots],
        "unread": stream.unread,
        "done": really,
    }


def _tell_head(told: dict[str, Any]) -> None:
    pairs(
        [
            ("cluster", told["cluster"]),
            ("epoch", told["epoch"]),
            ("last frame", told["ends_at"]),
            ("snapshots at", ", ".join(told["snapshots"]) or "none"),
        ]
    )
    if told["unread"]:
        emit(f"{told['unread']} entries cannot be read; the next start, and hetsched journal inspect, name the first")
    emit("the head is written; start the daemon" if told["done"] else "nothing was changed")
    if not told["done"]:
        note("give --yes to write this head")


COMMANDS = {
    "journal inspect": Command(_inspect_arguments, _inspect),
    "journal export": Command(_export_arguments, _export),
    "journal truncate": Command(_truncate_arguments, _truncate),
    "journal mend": Command(_mend_arguments, _mend),
}
