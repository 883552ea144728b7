"""Who follows the events and does not read costs the server little, holds up nobody, and misses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import over_network
import pytest
from over_network import OPENLY, Line, listening
from web_site import Site

from muster.app.network import bind
from muster.web import feed as web_feed
from muster.web import network as web_network
from muster.web.network import NetworkConnection
from patience import PATIENCE_S, until

ROUNDS, TASKS = 6, 500
SLOW = 8
PART_BYTES_MAX = (64 << 10) + 2000
"""With an event that begins just before."""
KERNEL_BYTES = 8192
"""Of what was sent and not read: the rest is the server's."""
BUFFER_BYTES = 64 << 10
"""What asyncio takes for a connection before it says that it is full."""


class Slow:
    """A client over TCP that asks for the events and then reads nothing, until it is told to."""

    def __init__(self, port: int, after: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(("127.0.0.1", port))
        ask = f"GET /api/v1/events/stream HTTP/1.0\r\nHost: localhost\r\nLast-Event-ID: {after}\r\n\r\n"
        self._socket.sendall(ask.encode())

    def rest(self, last: int = 0) -> list[int]:
        """The numbers of the whole events that it gets until it is cut off, or has that one."""
        text, found = b"", list[int]()
        with contextlib.suppress(ConnectionResetError):
            while (not last or last not in found) and (part := self._socket.recv(1 << 16)):
                *whole, text = (text + part).split(b"\n\n")
                found += [int(block.split(b"\n")[0][4:]) for block in whole if block.startswith(b"id: ")]
        self._socket.close()
        return found


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What lay in the server's memory for each of those that did not read, whenever it was too much."""
    found: list[int] = []
    pause = NetworkConnection.pause_writing

    def noted(self: NetworkConnection) -> None:
        found.append(self._transport.get_write_buffer_size())
        pause(self)

    def small(*addresses: str) -> list[socket.socket]:
        made = bind(*addresses)
        for one in made:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        return made

    monkeypatch.setattr(NetworkConnection, "pause_writing", noted)
    monkeypatch.setattr(over_network, "bind", small)
    return found


def fill(site: Site) -> list[int]:
    """More than a megabyte of events; their numbers."""
    for n in range(ROUNDS):
        tasks = [{"title": f"t{i}", "key": f"k{i}"} for i in range(TASKS)]
        site.post("/api/v1/plans", {"plan": f"p{n}", "source": None, "tasks": tasks, "actor": "ada"})
    return numbers(site)


def numbers(site: Site) -> list[int]:
    found: list[int] = []
    while page := site.get(f"/api/v1/events?after={found[-1] if found else 0}&limit=1000"):
        found += [event["id"] for event in page]
    return found


@pytest.mark.parametrize("when", ["while it happens", "afterwards"])
def test_who_does_not_read_is_held_little_and_cut_off_and_goes_on(
    site: Site, held: list[int], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(web_network, "WRITE_S", 1.0)
    site.enqueue("first", plan="first")
    (first,) = numbers(site)
    with listening(site, OPENLY) as port:
        every = [] if when == "while it happens" else fill(site)
        slow = [Slow(port, first) for _ in range(SLOW)]
        if when == "while it happens":
            every = fill(site)
        reader = Slow(port, 0)
        assert reader.rest(every[-1]) == every, "somebody who reads has all of it, beside them"
        until(lambda: len(held) >= SLOW, "what lies there for each of them was counted")
        (feed,) = site.backend.feeds.values()
        until(lambda: feed._followers == 0, "all of them were cut off")
        assert max(held) <= PART_BYTES_MAX + BUFFER_BYTES
        for one in slow:
            had = one.rest()
            assert had == every[1 : len(had) + 1] and len(had) < len(every) - 1
            again = Slow(port, had[-1] if had else first)
            assert had + again.rest(every[-1]) == every[1:]


def test_the_past_comes_in_parts_of_which_none_is_large(site: Site) -> None:
    tasks = [{"title": f"t{i}", "key": f"k{i}"} for i in range(1000)]
    site.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"})
    last = str(numbers(site)[-1]).encode()

    async def parts() -> list[bytes]:
        feed = web_feed.EventFeed(
            lambda after, task_id, limit: site.backend.queries.events(
                after_id=after, task_id=task_id, limit=limit
            ),
            site.backend.reads.last_event_id,
            site.backend.wakeups,
            site.backend.closing,
        )
        found: list[bytes] = []
        async for part in feed.follow(0, web_feed.Wanted()):
            found.append(part)
            if b"id: " + last + b"\n" in part:
                return found
        return found

    found = asyncio.run_coroutine_threadsafe(parts(), site._loop).result(PATIENCE_S)[1:]
    assert 3 < len(found) < 20
    assert max(map(len, found)) <= PART_BYTES_MAX
    blocks = b"".join(found).split(b"\n\n")[:-1]
    assert [json.loads(block.partition(b"data: ")[2])["id"] for block in blocks] == numbers(site)


def test_large_answers_that_nobody_reads_are_bounded_all_together(
    site: Site, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_network, "UNREAD_BYTES_MAX", 4 << 20)
    tasks = [{"title": f"t{i}", "key": f"k{i}", "description": "x" * 500_000} for i in range(7)]
    site.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"})
    with listening(site, OPENLY) as port:
        slow = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(2)]
        for n, one in enumerate(slow, start=1):
            one.sendall(b"GET /api/v1/agent-tasks HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda n=n: len(held) == n, "its answer lies there")
        with Line(port) as line:
            status, headers, told = line.ask("GET", "/api/v1/agent-tasks")
            assert (status, headers["retry-after"]) == (503, "1")
            assert told["detail"] == "too many large answers wait to be read"
            assert line.ask("GET", "/api/v1/agent-tasks?limit=1")[0] == 200, "small ones are sent anyway"
            slow[0].close()
            until(lambda: line.ask("GET", "/api/v1/agent-tasks")[0] == 200, "there is room for it")
        with slow[1], slow[1].makefile("rb") as file:
            assert file.readline() == b"HTTP/1.1 200 OK\r\n"
            size = next(int(field.split()[1]) for field in file if field.startswith(b"content-length"))
            assert file.readline(), "another header"
            while file.readline().strip():
                pass
            assert len(json.loads(file.read(size))) == 7, "who reads late has all of it"
