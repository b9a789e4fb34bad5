"""The line between a front end and the deciding process: messages in order, each behind its length in four bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import msgspec

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class Line(asyncio.Protocol):
    """One end. `heard(message)` is called for each message of the other, `closed()` once when the line is cut. `kinds`: a union of messages."""

    def __init__(self, kinds: Any, heard: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds).decode
        self._heard = heard
        self._closed = closed
        self._transport: asyncio.WriteTransport | None = None
        self._pieces = bytearray()

    @property
    def is_open(self) -> bool:
        """Neither end has closed it."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._transport = None
        self._closed()

    def data_received(self, data: bytes) -> None:
        pieces = self._pieces
        pieces += data
        at = 0
        while at + _LENGTH.size <= len(pieces):
            end = at + _LENGTH.size + _LENGTH.unpack_from(pieces, at)[0]
            if end > len(pieces):
                break
            with memoryview(pieces) as whole:
                message = self._decode(whole[at + _LENGTH.size : end])
            at = end
            self._heard(message)
        del pieces[:at]

    def say(self, *messages: Any) -> None:
        """To the other end; nothing where the line is cut."""
        if self._transport is not None:
            said = [_encode(message) for message in messages]
            self._transport.write(b"".join(piece for each in said for piece in (_LENGTH.pack(len(each)), each)))

    def close(self) -> None:
        """After what was said."""
        if self._transport is not None:
            self._transport.close()
