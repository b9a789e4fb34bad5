"""The head hash as a server answers it, checked."""

from __future__ import annotations

import msgspec

from hetsched.errors import ConfigError, StoreLost
from hetsched.store import scripts
from hetsched.store.backend import Head, Manifest
from hetsched.store.base import HeadDamaged
from hetsched.store.scripts import Keys

_MANIFESTS = msgspec.json.Decoder(tuple[Manifest, ...])
_MANIFEST = msgspec.json.Decoder(Manifest)

_OPEN_REFUSED = {
    b"EMPTY": "the store became empty while it was opened",
    b"CHANGED": "the store changed hands while it was opened",
}


def opened(keys: Keys, answer: list[bytes]) -> Head:
    """The head after an opening; StoreLost says why there was none."""
    if answer == [b"HEADLESS"]:
        raise lost_head(keys)
    if len(answer) == 1:
        raise StoreLost(_OPEN_REFUSED[answer[0]])
    return head_of(keys, {answer[i].decode(errors="replace"): answer[i + 1] for i in range(0, len(answer), 2)})


def lost_head(keys: Keys) -> HeadDamaged:
    """There are frames, and nothing that names the last."""
    return HeadDamaged(keys.head, 0, f"is missing, but there is a journal ({keys.journal})")


def head_of(keys: Keys, fields: dict[str, bytes]) -> Head:
    """The head hash, checked: it is small and written by us alone, so what cannot be read is damage."""
    try:
        if int(fields["format"]) != scripts.FORMAT:
            raise ConfigError(f"the store has format {int(fields['format'])}; this program reads {scripts.FORMAT}")
        return Head(
            cluster=fields["cluster"].decode(),
            epoch=int(fields["epoch"]),
            seq=int(fields["seq"]),
            crc=int(fields["crc"]),
            snapshots=_MANIFESTS.decode(fields.get("snapshots", b"[]")),
            unfinished=_MANIFEST.decode(fields["unfinished"]) if "unfinished" in fields else None,
        )
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise HeadDamaged(keys.head, 0, f"cannot be read: {error!r}") from None
