"""A wire between agents and their daemon that can be held, in either direction or both: what is sent meanwhile waits in the sockets, as it does
behind a dead switch or a frozen peer, and comes late or never."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

PIECE_BYTES = 1 << 16


class Wire:
    """Listens on `port` and passes everything on to the port that `upstream` names at that moment."""

    def __init__(self, upstream: Callable[[], int]) -> None:
        self._upstream = upstream
        self._open = {"up": threading.Event(), "down": threading.Event()}
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.heal(late=True)
        self._spawn(self._accept)

    def hold(self, *directions: str) -> None:
        """Nothing passes in these directions ("up" is towards the daemon)."""
        for direction in directions:
            self._open[direction].clear()

    def heal(self, *, late: bool) -> None:
        """All passes again; what was held comes now if `late`, else its connections are gone."""
        if not late:
            for pair in list(self._pairs):
                self._close(pair)
        for opened in self._open.values():
            opened.set()

    def close(self) -> None:
        self._listener.close()
        self.heal(late=False)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._upstream()), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            pair = near, far
            self._pairs.add(pair)
            self._spawn(self._pump, pair, near, far, "up")
            self._spawn(self._pump, pair, far, near, "down")

    def _pump(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, direction: str
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._open[direction].wait()
                sink.sendall(piece)
            self._open[direction].wait()  # an end, too, does not pass a held wire
        self._close(pair)

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()
