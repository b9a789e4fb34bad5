"""How a connection changes hands: its descriptor and the bytes that were read of it, over a socket of packets.

The first packet says who the client is and how many bytes follow, and carries the descriptor; packets with the bytes follow it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

import msgspec

PACKET = 32 * 1024


class Came(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A connection that somebody else accepted. `connection`: its number there. `is_tls`: it is the inner end of a tunnel, and knows no
    half-closed connection. `size`: bytes that were read of it."""

    connection: int
    address: str
    is_tls: bool
    size: int


class Giver:
    """Gives connections away, in order."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._packets: deque[tuple[bytes, int]] = deque()  # with a descriptor of ours, -1 = none
        self._is_waiting = False

    def give(self, fd: int, came: Came, data: bytes) -> None:
        """`fd` is ours from now on."""
        self._packets.append((msgspec.msgpack.encode(came), fd))
        self._packets.extend((data[at : at + PACKET], -1) for at in range(0, len(data), PACKET))
        if not self._is_waiting:
            self._send()

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while self._packets:
            packet, fd = self._packets[0]
            try:
                socket.send_fds(self._channel, [packet], [] if fd < 0 else [fd])
            except BlockingIOError:
                if not self._is_waiting:
                    self._is_waiting = True
                    loop.add_writer(self._channel, self._send)
                return
            self._packets.popleft()
            if fd >= 0:
                os.close(fd)
        if self._is_waiting:
            self._is_waiting = False
            loop.remove_writer(self._channel)

    async def empty(self) -> None:
        """Until all are given."""
        while self._packets:
            await asyncio.sleep(0.01)


class Receiver:
    """Takes them: `take(socket, came, data)` for each. `close` when the giver has gone."""

    def __init__(self, channel: socket.socket, take: Callable[[socket.socket, Came, bytes], None]) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._take = take
        self._present: tuple[socket.socket, Came] | None = None
        self._data = b""
        asyncio.get_running_loop().add_reader(channel, self._receive)

    def close(self) -> None:
        """What came only in part is dropped: its client sees a broken connection."""
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        if self._present is not None:
            self._present[0].close()
            self._present = None

    def _receive(self) -> None:
        while self._channel.fileno() >= 0:
            try:
                packet, fds, _, _ = socket.recv_fds(self._channel, PACKET, 1)
            except (BlockingIOError, ConnectionResetError):
                return
            if not packet and not fds:
                asyncio.get_running_loop().remove_reader(self._channel)
                return
            self._packet(packet, fds)

    def _packet(self, packet: bytes, fds: list[int]) -> None:
        if self._present is None:
            if not fds:  # we have no descriptor left
                return
            self._present = socket.socket(fileno=fds[0]), msgspec.msgpack.decode(packet, type=Came)
        else:
            self._data += packet
        connection, came = self._present
        if len(self._data) >= came.size:
            data, self._data, self._present = self._data, b"", None
            self._take(connection, came, data)
