"""`muster report` where several servers are named, of which one hangs."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from muster.client import reports
from muster.client.http import Connection
from muster.client.reports import ReportingAttempt


class Answers(BaseHTTPRequestHandler):
    """A server that takes every report."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_: object) -> None: ...


def test_the_next_server_is_asked_soon_where_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPLY_S", 3600.0)
    monkeypatch.setattr(reports, "NEXT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as hangs, HTTPServer(("127.0.0.1", 0), Answers) as answers:
        threading.Thread(target=answers.serve_forever, daemon=True).start()
        ports = (hangs.getsockname()[1], answers.server_port)
        servers = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        with contextlib.closing(Connection(servers)) as connection:
            attempt = ReportingAttempt(servers, "token", 1, 1)
            assert attempt.send(connection, "progress", {"percent": 5}, 60.0) is True
        answers.shutdown()
