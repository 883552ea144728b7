"""The network between a worker and its server: it may be cut, or carry bytes one way only, without a word."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class Wire:
    """Passes on what is sent to `url`, until it is cut."""

    def __init__(self, far: str) -> None:
        parts = urlsplit(far)
        self._far = (str(parts.hostname), parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept)
        self._pumps: list[threading.Thread] = []
        self._there, self._back = threading.Event(), threading.Event()
        """Set while bytes pass to the server, and from it."""

    def __enter__(self) -> Self:
        self.heal()
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listening)
        self._accepting.join()
        self._listening.close()
        self.heal()
        for pump in self._pumps:
            pump.join()

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """From now on nothing arrives, and nobody is told."""
        for way, wanted in ((self._there, there), (self._back, back)):
            if wanted:
                way.clear()

    def heal(self) -> None:
        """As if nothing that was sent meanwhile had ever been: who still waits has to send again."""
        self._hang_up()
        self._there.set()
        self._back.set()

    def _hang_up(self) -> None:
        with self._lock:
            for end in self._ends:
                _shut(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(self._far)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._ends |= {near, far}
                for source, target, way in ((near, far, self._there), (far, near, self._back)):
                    self._pumps.append(threading.Thread(target=self._pump, args=(source, target, way)))
                    self._pumps[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket, way: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not way.is_set():
                    continue  # lost, and so is all that follows on this connection
                target.sendall(data)
        _shut(target)
        with source, self._lock:
            self._ends.discard(source)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
