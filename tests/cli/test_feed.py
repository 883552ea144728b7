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

CODES = {401: "not_allowed", 403: "forbidden", 404: "not_found", 503: "unavailable"}


class Quiet(ThreadingUnixStreamServer):
    """An owner that has an event at once, holds who waits for the next, and has that for who does not wait."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, Answer)
        self.waited_for = threading.Event()
        self.released = threading.Event()
        self.refusals: list[int] = []
        """With which statuses it answers first."""


class Answer(BaseHTTPRequestHandler):
    server: Quiet
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.server.refusals:
            status = self.server.refusals.pop(0)
            problem = {
                "status": status,
                "code": CODES[status],
                "detail": "it is refused",
                "hint": "muster up",
            }
            self._answer(status, problem)
            return
        waits, after = "wait=1" in self.path, int(self.path.partition("after=")[2].partition("&")[0])
        if waits and after:
            self.server.waited_for.set()
            self.server.released.wait()
            self.close_connection = True
            return
        found = [{"id": after + 1, "event": "completed"}] if after < 2 else []
        self._answer(200, found)

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
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


def test_a_feed_goes_on_while_its_owner_is_away(
    project: Project, quiet: Quiet, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet.refusals += [503, 503]
    feed = Feed(project, 0, EventPrinter(as_json=True, colour="never"))
    assert quiet.waited_for.wait(PATIENCE_S)
    feed.close()
    told = capsys.readouterr()
    assert (len(told.out.splitlines()), told.err) == (2, "")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_feed_that_is_refused_says_why_and_ends(
    project: Project, quiet: Quiet, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """It would be refused again and again, and show nothing for as long as the crew is up."""
    quiet.refusals += [status]
    feed = Feed(project, 0, EventPrinter(as_json=True, colour="never"))
    feed._thread.join(PATIENCE_S)
    assert not feed._thread.is_alive()
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "no more events are shown: it is refused (muster up)\n")
    assert quiet.refusals == []
    feed.close()
