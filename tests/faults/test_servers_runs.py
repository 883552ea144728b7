"""The history of a crew of servers: one run, from the first one that came to the end of the last."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_rig import FakeClock, FixedChance

from muster.app.servers_run import ServersRun, note_last_end
from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model.answers import Led
from muster.model.commands import Lead
from muster.model.errors import TermOver
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.runs import RUNS, CrewRun, runs_of
from muster.stores.postgres.store import PostgresStore
from patience import until
from several_servers import QUICK, SharedServer, several


def runs(server: SharedServer) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = server.local("GET", "/api/v1/coordinator/runs")
    return found


def test_a_run_lasts_from_the_first_server_to_the_last(tmp_path: Path, postgres_store: str) -> None:
    with several(tmp_path, postgres_store, 2, QUICK) as servers:
        leader = servers.leader
        assert leader is not None
        (other,) = [one for one in servers.every if one is not leader]
        until(lambda: runs(other), "a run has begun")
        (run,) = runs(other)
        assert (run["startedBy"], run["how"]) == (leader.named, "")
        leader.end()
        until(lambda: other.leads, "the other one leads")
        assert runs(other) == [run], "it goes on"
        other.end()
        other.start()
        until(lambda: len(runs(other)) == 2, "another one has begun")
        newest, first = runs(other)
        assert (first["id"], first["how"]) == (run["id"], "stopped")
        assert first["endedAtMs"] >= first["startedAtMs"] and newest["how"] == ""
        other.end(signal.SIGKILL)
        other.start()
        until(lambda: len(runs(other)) == 3, "and another one")
        assert [one["how"] for one in runs(other)] == ["", "died", "stopped"]


class Ours:
    """What a server notes runs through; its place is over as soon as it has it, as after a long stop."""

    def __init__(self, store: PostgresStore, named: str) -> None:
        self.named, self.clock = named, FakeClock()
        self.batcher = AsyncBatcher(Engine(store, FixedChance(), Policy()), self.clock.now, lambda _: None)
        reads = store.reads.of(DEFAULT_WORKSPACE)
        owner = SimpleNamespace(started_at_ms=0, left_off_ms=0)
        self.web: Any = SimpleNamespace(engine=self.batcher.of(DEFAULT_WORKSPACE), reads=reads, owner=owner)

    async def ask(self, *, give_up: bool = False) -> Led:
        lead = Lead(server=self.named, named=self.named, lease_ms=0, give_up=give_up)
        led = await self.batcher.execute(lead)
        assert isinstance(led, Led)
        return led

    async def note_run(self, term: int, *, first: bool = False) -> None:
        noting = ServersRun(self.clock, self.web, server=self.named, named=self.named, first=first, term=term)
        await noting.run_once()

    async def runs(self) -> list[CrewRun]:
        return runs_of(await self.web.reads.meta(RUNS))


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Ours, Ours]]:
    stores = [await PostgresStore.open(url) for _ in range(2)]
    servers = [Ours(store, named) for store, named in zip(stores, ("ada", "bob"), strict=True)]
    try:
        yield servers[0], servers[1]
    finally:
        for server in servers:
            await server.batcher.aclose()
        for store in stores:
            await store.aclose()


@pytest.mark.promise("S10")
@pytest.mark.parametrize("begun", [True, False])
def test_a_leader_that_wakes_late_begins_no_run_under_its_old_term(postgres_store: str, begun: bool) -> None:
    async def run() -> None:
        async with two(postgres_store) as (old, new):
            old_term = (await old.ask()).term
            new_term = (await new.ask()).term
            if begun:
                await new.note_run(new_term)
            before = await new.runs()
            with pytest.raises(TermOver):
                await old.note_run(old_term, first=True)
            assert await new.runs() == before
            await new.note_run(new_term)
            assert [(one.started_by, one.how) for one in await new.runs()] == [("bob", "")]

    asyncio.run(run())


@pytest.mark.promise("S10")
def test_a_last_server_that_wakes_late_ends_no_run_of_the_next_one(postgres_store: str) -> None:
    async def run() -> None:
        async with two(postgres_store) as (old, new):
            await old.note_run((await old.ask()).term)
            gone = await old.ask(give_up=True)
            await new.note_run((await new.ask()).term, first=True)
            before = await new.runs()
            assert [one.how for one in before] == ["died", ""]
            await note_last_end(old.web, old.named, gone.last_term)
            assert await new.runs() == before
            last = await new.ask(give_up=True)
            await note_last_end(new.web, new.named, last.last_term)
            assert [one.how for one in await new.runs()] == ["died", "stopped"]

    asyncio.run(run())
