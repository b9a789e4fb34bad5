"""Safe mode: the journal cannot be read to its end, so the daemon shows what it knows and changes nothing.

Promises: reads are answered from the exact prefix that is whole, or refused where nothing is; every write is refused with 503, the reason and
the way out; agents are welcomed and keep their leases, and are told to stop nothing. The daemon has opened its epoch, so no other one decides
meanwhile; when one does, this one ends.

*Why leases go on (2026-11-30).* A shim ends its task when its lease ends. Without a daemon that acknowledges heartbeats one flipped bit in the
journal would, 15 seconds later, have stopped every task of the cluster.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from hetsched.store import FileDamaged, HeadDamaged, JournalCorrupt, NewerVersion, SnapshotLost


class SafeMode(msgspec.Struct, frozen=True, kw_only=True):
    """`stream_id`: the frame, or the snapshot's chunk, or the head's key; `offset`: byte in it. `prefix`: id of the last frame that is known,
    "" = none, so that nothing can be read either. `fix`: what to do, a command line where there is one."""

    stream_id: str
    offset: int
    reason: str
    prefix: str
    fix: str

    @property
    def story(self) -> str:
        """What is wrong, for everybody."""
        known = f"everything up to frame {self.prefix} is known" if self.prefix else "nothing can be known"
        return f"safe mode: journal {self.stream_id}, byte {self.offset}: {self.reason}; {known}"

    @property
    def refusal(self) -> str:
        """Why a write is refused, with the way out."""
        return f"{self.story} and nothing is changed. To mend it: {self.fix}"


def safe_mode(damage: JournalCorrupt, prefix: str, store_url: str, data_dir: Path) -> SafeMode:
    """`prefix`: id of the last frame that was taken."""
    return SafeMode(
        stream_id=damage.where,
        offset=damage.offset,
        reason=damage.reason,
        prefix=prefix,
        fix=way_out(damage, store_url, data_dir),
    )


def way_out(damage: JournalCorrupt, store_url: str, data_dir: Path) -> str:
    """The command that makes the journal whole again, or what a person has to do where there is none."""
    where = _where(store_url, data_dir)
    match damage:
        case NewerVersion():
            return "install the hetsched that wrote it, or a later one, and start that"
        case HeadDamaged():
            return f"stop the daemon, then: hetsched journal mend {where} --yes"
        case SnapshotLost():
            return f"stop the daemon and restore the store from a backup; `hetsched journal inspect {where}` shows what is left"
        case FileDamaged(cut=""):
            return f"stop the daemon and restore {damage.where.removeprefix('file ')} from a backup; no file beside it is changed until then"
        case _:
            return f"stop the daemon, then: hetsched journal truncate {where} --at {damage.cut} --yes"


def _where(store_url: str, data_dir: Path) -> str:
    """Options that name the store; never a password."""
    from hetsched.store import without_secrets

    named = [] if store_url.startswith("embedded:") else ["--store", without_secrets(store_url)]
    return shlex.join(["--data", str(data_dir), *named])
