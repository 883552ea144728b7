"""Server-sent events: the past and then what comes, to many at once, without a hole or a double."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from web_site import WOKEN_S, Site

from muster.model import commands as c
from muster.model.answers import TookOver
from muster.model.errors import BadInput
from muster.model.seals import GENESIS
from muster.stores.sqlite.reads import SqliteReads
from muster.web import feed as web_feed
from muster.web.pages import live as pages_live
from patience import PATIENCE_S, until
from serving import SIGNER

EVENTS = "/api/v1/events/stream"


class Sent(NamedTuple):
    id: int | None
    name: str
    data: Any


class Following:
    """A client that reads one stream, as a browser does."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.comments = 0

    async def chunk(self) -> bytes:
        """Empty at the clean end."""
        size = int(await self._reader.readline(), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def __aiter__(self) -> AsyncIterator[Sent]:
        text = b""
        while part := await self.chunk():
            text += part
            *whole, text = text.split(b"\n\n")
            for block in whole:
                lines = dict(line.partition(": ")[::2] for line in block.decode().split("\n"))
                self.comments += "" in lines
                if "data" in lines:
                    number = int(lines["id"]) if "id" in lines else None
                    yield Sent(number, lines.get("event", ""), json.loads(lines["data"]))
        assert not text, "an event was cut"

    async def first(self, count: int) -> list[Sent]:
        found: list[Sent] = []
        async for one in self:
            found.append(one)
            if len(found) == count:
                break
        return found


@asynccontextmanager
async def following(site: Site, target: str, *headers: str) -> AsyncIterator[Following]:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(site.socket))  # waits its turn; asyncio takes a full queue for a connection
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        writer.write("\r\n".join([f"GET {target} HTTP/1.1", "Host: muster", *headers, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK") and b"content-type: text/event-stream" in head, head
        yield Following(reader)
    finally:
        writer.close()


def stream(site: Site, target: str, count: int, *headers: str) -> list[Sent]:
    async def read() -> list[Sent]:
        async with asyncio.timeout(PATIENCE_S), following(site, target, *headers) as client:
            return await client.first(count)

    return asyncio.run(read())


@pytest.fixture
def tasks(site: Site) -> Iterator[list[str]]:
    yield list(site.enqueue(*(f"t{i}" for i in range(10))))


def test_the_past_comes_first(site: Site, tasks: list[str]) -> None:
    sent = stream(site, EVENTS, 10)
    assert [one.data for one in sent] == site.get("/api/v1/events")
    assert [one.id for one in sent] == [one.data["id"] for one in sent]


def test_a_stream_goes_on_behind_the_last_event(site: Site, tasks: list[str]) -> None:
    third = site.get("/api/v1/events")[2]["id"]
    for target, *headers in ((f"{EVENTS}?after={third}",), (f"{EVENTS}?after=0", f"Last-Event-ID: {third}")):
        assert [one.data["key"] for one in stream(site, target, 7, *headers)] == tasks[3:]
    assert site.refused("GET", EVENTS, **{"Last-Event-ID": "x"}) == (422, "bad_input")


def test_who_comes_from_a_store_that_was_replaced_is_told(site: Site, tasks: list[str]) -> None:
    """It would hear nothing until there are as many events again."""
    newest = site.get("/api/v1/events")[-1]["id"]
    for target, headers in (
        (EVENTS, {"Last-Event-ID": str(newest + 1)}),
        (f"{EVENTS}?after={newest + 1}", {}),
        (f"/api/v1/events?after={newest + 1}", {}),
        (f"/api/v1/events?after={newest + 1}&wait=20", {}),
    ):
        assert site.refused("GET", target, **headers) == (422, "bad_input")
    assert site.get(f"/api/v1/events?after={newest}") == []
    site.enqueue("next")
    (sent,) = stream(site, EVENTS, 1, f"Last-Event-ID: {newest}")
    assert sent.data["key"] == "next"


def prune_all(site: Site) -> int:
    """Retention has dropped all events; the last of them."""

    async def prune() -> int:
        engine, reads = site.backend.engine, site.backend.reads
        took = await engine.execute(c.NewBoot())
        assert isinstance(took, TookOver)
        seal = SIGNER.seal(await reads.numbered_events(0, None, 1000), GENESIS, 0)
        await engine.execute(c.AddSeal(term=took.term, seal=seal))
        proof = SIGNER.prune_proof(seal, 1)
        await engine.execute(c.PruneEvents(term=took.term, to_id=seal.to_id, at_ms=1, proof=proof))
        return seal.to_id

    return asyncio.run_coroutine_threadsafe(prune(), site._loop).result(PATIENCE_S)


def test_who_has_heard_all_that_was_dropped_since_goes_on(site: Site, tasks: list[str]) -> None:
    """Nothing is kept of it but its seal, and it comes from no other store for that."""
    last = prune_all(site)
    assert site.get(f"/api/v1/events?after={last}") == []
    assert site.refused("GET", f"/api/v1/events?after={last + 1}") == (422, "bad_input")
    assert site.refused("GET", EVENTS, **{"Last-Event-ID": str(last + 1)}) == (422, "bad_input")

    async def follow() -> Any:
        async with asyncio.timeout(PATIENCE_S), following(site, EVENTS, f"Last-Event-ID: {last}") as client:
            assert (await client.chunk()).startswith(b"retry: ")
            site.enqueue("next")
            (sent,) = await client.first(1)
            return sent.data["key"]

    assert asyncio.run(follow()) == "next"


def test_what_is_not_wanted_is_not_sent(site: Site, tasks: list[str]) -> None:
    ids = site.enqueue("other", plan="web")
    site.enqueue("last")
    assert [one.data["key"] for one in stream(site, f"{EVENTS}?plan=web", 1)] == ["other"]
    assert [one.data["key"] for one in stream(site, f"{EVENTS}?task={ids['t4']}", 1)] == ["t4"]

    async def read() -> list[Sent]:
        async with asyncio.timeout(PATIENCE_S), following(site, f"{EVENTS}?new=true&plan=web") as client:
            await client.chunk()
            await asyncio.to_thread(site.enqueue, "more")
            await asyncio.to_thread(site.enqueue, "mine", plan="web")
            return await client.first(1)

    assert [one.data["key"] for one in asyncio.run(read())] == ["mine"]


CLIENTS, ROUNDS, TASKS = 200, 30, 12


def test_many_follow_under_load_without_a_hole_or_a_double(site: Site) -> None:
    """A third from the start, a third that comes in the middle of it, a third that is cut off and comes again."""

    def load() -> None:
        for n in range(ROUNDS):
            added = [{"title": f"t{i}"} for i in range(TASKS)]
            site.post("/api/v1/plans", {"plan": f"p{n}", "source": None, "tasks": added, "actor": "ada"})

    async def stays(begin: asyncio.Event) -> list[int | None]:
        await begin.wait()
        async with following(site, EVENTS) as client:
            return [one.id for one in await client.first(ROUNDS * TASKS)]

    async def returns(cut: int) -> list[int | None]:
        async with following(site, EVENTS) as client:
            found = [one.id for one in await client.first(cut)]
        async with following(site, EVENTS, f"Last-Event-ID: {found[-1]}") as client:
            return found + [one.id for one in await client.first(ROUNDS * TASKS - cut)]

    async def all_of_them() -> list[list[int | None]]:
        now, later = asyncio.Event(), asyncio.Event()
        now.set()
        clients = [
            asyncio.create_task(returns(1 + n) if n % 3 == 0 else stays(now if n % 3 == 1 else later))
            for n in range(CLIENTS)
        ]
        writer = threading.Thread(target=load)
        writer.start()
        try:
            async with asyncio.timeout(PATIENCE_S * 4):
                await asyncio.to_thread(
                    until, lambda: len(site.get("/api/v1/events?limit=500")) > 100, "some"
                )
                later.set()
                return await asyncio.gather(*clients)
        finally:
            await asyncio.to_thread(writer.join)

    seen = asyncio.run(all_of_them())
    written, after = [], 0
    while page := site.get(f"/api/v1/events?after={after}&limit=1000"):
        written += [event["id"] for event in page]
        after = written[-1]
    assert len(written) == ROUNDS * TASKS
    assert all(one == written for one in seen)


def test_the_store_is_read_once_for_all_who_follow(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    real = SqliteReads.events

    def counted(self: Any, **given: Any) -> Any:
        nonlocal reads
        reads += 1
        return real(self, **given)

    monkeypatch.setattr(SqliteReads, "events", counted)

    async def read() -> None:
        ready, begun = asyncio.Semaphore(0), asyncio.Event()

        async def one() -> list[Sent]:
            async with following(site, f"{EVENTS}?new=true") as client:
                await client.chunk()
                ready.release()
                await begun.wait()
                return await client.first(20)

        clients = [asyncio.create_task(one()) for _ in range(CLIENTS)]
        for _ in clients:
            await ready.acquire()
        before = reads
        begun.set()
        for n in range(20):
            await asyncio.to_thread(site.enqueue, f"t{n}")
        assert len({tuple(sent) for sent in map(_ids, await asyncio.gather(*clients))}) == 1
        # Once a wake-up, and once a second while nothing comes: not for each of them.
        assert reads - before < CLIENTS

    asyncio.run(asyncio.wait_for(read(), PATIENCE_S * 2))


def _ids(sent: list[Sent]) -> list[int | None]:
    return [one.id for one in sent]


def test_a_client_that_does_not_read_is_not_written_to_without_end(site: Site) -> None:
    """What it has not taken stays in the store; it misses nothing."""
    long = [{"title": "x" * 5000, "key": f"k{i}"} for i in range(500)]

    async def read() -> list[Sent]:
        async with following(site, f"{EVENTS}?new=true") as client:
            await client.chunk()
            for n in range(12):
                body = {"plan": f"p{n}", "source": None, "tasks": long, "actor": "ada"}
                await asyncio.to_thread(site.post, "/api/v1/plans", body)
            return await client.first(12 * 500)

    sent = asyncio.run(asyncio.wait_for(read(), PATIENCE_S * 2))
    assert len({one.id for one in sent}) == len(sent) > web_feed.KEPT
    assert [one.id for one in sent] == sorted(one.data["id"] for one in sent)


def test_a_silence_is_filled_with_comments(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_feed, "HEARTBEAT_S", 0.01)

    async def read() -> None:
        async with asyncio.timeout(PATIENCE_S), following(site, EVENTS) as client:
            assert await client.chunk() == web_feed.BEGIN
            assert await client.chunk() == await client.chunk() == web_feed.ALIVE
            await asyncio.to_thread(site.enqueue, "a")
            assert [one.data["key"] for one in await client.first(1)] == ["a"]

    asyncio.run(read())


def test_a_page_is_told_that_its_server_lives(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of comments its script hears nothing."""
    monkeypatch.setattr(pages_live, "ALIVE_S", 0.01)
    sent = stream(site, "/live", 3)
    assert {(one.name, one.data) for one in sent} == {("moved", sent[0].data)}


def test_who_has_gone_is_forgotten(site: Site) -> None:
    site.enqueue("a")
    stream(site, EVENTS, 1)
    (feed,) = site.backend.feeds.values()
    until(lambda: feed._followers == 0 and feed._reading is None, "nothing is read for nobody")
    assert not any(site._wakeups._listeners.values())


def test_the_end_of_the_owner_is_a_clean_end(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    targets = [
        EVENTS,
        f"/api/v1/attempts/{job['taskId']}/1/output/stream",
        f"/api/v1/agent-tasks/{job['taskId']}/attempts/stream",
    ]

    async def read() -> float:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            begun = asyncio.Semaphore(0)

            async def to_the_end(target: str) -> None:
                async with following(site, target) as client:
                    assert await client.chunk() == web_feed.BEGIN
                    begun.release()
                    async for _ in client:
                        pass

            for target in targets:
                group.create_task(to_the_end(target))
            for _ in targets:
                await begun.acquire()
            return await asyncio.to_thread(site.shut_down)

    assert asyncio.run(read()) < WOKEN_S


def test_output_comes_as_it_is_printed_and_ends_with_its_attempt(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    target = f"/api/v1/attempts/{job['taskId']}/1/output/stream"

    def say(offset: int, data: str) -> None:
        site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": offset, "data": data})

    say(0, "YQ==")

    async def read() -> list[Sent]:
        async with asyncio.timeout(PATIENCE_S), following(site, target) as client:
            sent = await client.first(1)
            await asyncio.to_thread(say, 1, "Yg==")
            sent += await client.first(1)
            await asyncio.to_thread(site.post, "/worker/v1/complete", site.of(job))
            return sent + [one async for one in client]

    sent = asyncio.run(read())
    assert [one.data.get("data") for one in sent] == ["YQ==", "Yg==", None]
    assert sent[-1].name == "end"
    again = stream(site, target, 2, f"Last-Event-ID: {sent[0].id}")
    assert [one.data.get("data") for one in again] == ["Yg==", None]
    assert site.refused("GET", target.replace("/1/", "/7/")) == (404, "not_found")


def test_attempts_come_again_when_they_change(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()

    async def read() -> list[Sent]:
        target = f"/api/v1/agent-tasks/{job['taskId']}/attempts/stream"
        async with asyncio.timeout(PATIENCE_S), following(site, target) as client:
            sent = await client.first(1)
            await asyncio.to_thread(site.post, "/worker/v1/complete", site.of(job))
            return sent + await client.first(1)

    sent = asyncio.run(read())
    assert [(one.name, one.data["epoch"], one.data["status"]) for one in sent] == [
        ("attempt", 1, "running"),
        ("attempt", 1, "completed"),
    ]


def test_a_client_without_streams_says_so(site: Site) -> None:
    with pytest.raises(BadInput, match="goes on and on"):
        site.send("GET", EVENTS)
