"""The events beside a command's work, at the end of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from muster.cli.feed import EventPrinter, Feed
from muster.config.project import Project
from patience import PATIENCE_S


class Quiet(ThreadingUnixStreamServer):
    """An owner that has an event at once, holds who waits for the next, and has that for who does not wait."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, Answer)
        self.waited_for = threading.Event()
        self.released = threading.Event()


class Answer(BaseHTTPRequestHandler):
    server: Quiet
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        waits, after = "wait=1" in self.path, int(self.path.partition("after=")[2].partition("&")[0])
        if waits and after:
            self.server.waited_for.set()
            self.server.released.wait()
            self.close_connection = True
            return
        found = [{"id": after + 1, "event": "completed"}] if after < 2 else []
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "a test"

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.state_dir.mkdir()
    return project


@pytest.fixture
def quiet(project: Project) -> Iterator[Quiet]:
    with Quiet(project.socket) as owner:
        threading.Thread(target=owner.serve_forever, args=(0.01,), daemon=True).start()
        yield owner
        owner.released.set()
        owner.shutdown()


def test_a_feed_that_is_closed_waits_for_no_event(
    project: Project, quiet: Quiet, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Feed(project, 0, EventPrinter(as_json=True, colour="never"))
    assert quiet.waited_for.wait(PATIENCE_S)
    feed.close()
    assert not quiet.released.is_set()
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
