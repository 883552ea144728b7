"""A receiver of webhooks on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from patience import PATIENCE_S


class Hook(ThreadingHTTPServer):
    """Holds its answers back while `held` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.answers = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.append(self.path)
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.server.answers.wait(PATIENCE_S)
        try:
            self.send_response(204)
            self.end_headers()
        except OSError:
            pass  # the one who asked was killed

    def log_message(self, *_: object) -> None: ...


@contextmanager
def receiving() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
            thread.join()
