"""Workers of several servers fall silent: few are given up when their leases are over, most of them at once are
waited for, since it is seldom they who are gone then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.engine.services.reaper import AGENTS_MIN
from muster.model.states import AttemptStatus
from muster.model.task import Attempt
from muster.stores.postgres.statements import load
from muster.stores.postgres.store import PostgresStore
from muster.stores.rows import attempt_of
from patience import until
from postgres_databases import USER, at, run_sql
from several_servers import QUICK, FarWorkers, Servers, SharedServer, at_once, several

LEASE_S = 10
SETTINGS = QUICK.replace('lease = "3s"', f'lease = "{LEASE_S}s"')
BRAKED = "the cause may be here"


@pytest.fixture
def store(postgres_database: str) -> str:
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


@pytest.fixture
def servers(tmp_path: Path, store: str) -> Iterator[Servers]:
    with several(tmp_path, store, 2, SETTINGS) as started:
        yield started


def leader_and_other(servers: Servers) -> tuple[SharedServer, SharedServer]:
    leader = servers.leader
    assert leader is not None
    (other,) = [server for server in servers.every if server is not leader]
    return leader, other


class Site:
    """Workers with a task each, which they were given by one server and speak of to another."""

    def __init__(self, servers: Servers, count: int, given_by: SharedServer) -> None:
        self.speaks_to = given_by
        with contextlib.closing(servers.api(given_by)) as api:
            for number in range(count):
                api.post("/api/v1/agent-tasks", {"title": f"t{number}", "plan": "p"})
        self.workers = at_once(
            [lambda: FarWorkers(lambda: servers.api(self.speaks_to), slots=1) for _ in range(count)]
        )
        self.jobs = [jobs[0] for jobs in at_once([worker.claim for worker in self.workers])]

    def fall_silent(self, database: str) -> int:
        """All at one moment, which requests cannot be; when their leases are over, by the database's clock."""
        over = f"(extract(epoch FROM now()) * 1000)::bigint + {LEASE_S * 1000}"
        heard = f"UPDATE muster.attempts SET lease_until_ms = {over} WHERE ended_at_ms IS NULL"
        rows = run_sql(database, f"{heard} RETURNING lease_until_ms")
        assert len(rows) == len(self.jobs), "none was given up before"
        over_ms: int = rows[0][0]
        return over_ms

    def beat(self) -> list[Any]:
        """What each is told of its task."""

        def one(worker: FarWorkers, job: Any) -> Any:
            held = [[job["taskId"], job["epoch"]]]
            return worker.post("heartbeat", workerId=worker.id, attempts=held)["attempts"][0]

        pairs = list(zip(self.workers, self.jobs, strict=True))
        return at_once([lambda w=w, j=j: one(w, j) for w, j in pairs])  # type: ignore[misc]


def attempts(store: str) -> list[Attempt]:
    async def read() -> list[Attempt]:
        opened = await PostgresStore.open(store)
        try:
            async with opened._seers.acquire() as connection:
                rows = await connection.fetch(load("history.sql")["all_attempts"])
                return [attempt_of(row) for row in rows]
        finally:
            await opened.aclose()

    return asyncio.run(read())


@pytest.mark.promise("L1", "S15")
@pytest.mark.parametrize(("count", "leases"), [(AGENTS_MIN - 1, 1), (AGENTS_MIN, 2)])
def test_who_falls_silent_is_given_up_after_its_lease_and_many_at_once_after_one_more(
    servers: Servers, store: str, postgres_database: str, count: int, leases: int
) -> None:
    leader, other = leader_and_other(servers)
    over_ms = Site(servers, count, other).fall_silent(postgres_database)
    until(lambda: not any(one.open for one in attempts(store)), "all of them are given up")
    for attempt in attempts(store):
        assert attempt.ended_at_ms is not None
        assert attempt.ended_at_ms >= over_ms + (leases - 1) * LEASE_S * 1000
    assert (BRAKED in leader.log()) == (leases > 1)
    assert BRAKED not in other.log()


@pytest.mark.promise("S15")
def test_a_leader_that_no_worker_reaches_does_not_give_up_the_crew(
    servers: Servers, store: str, postgres_database: str
) -> None:
    """It is cut off from all of them, and not from the database: meanwhile they find another server."""
    leader, other = leader_and_other(servers)
    site = Site(servers, AGENTS_MIN + 2, leader)
    site.fall_silent(postgres_database)
    until(lambda: BRAKED in leader.log(), "the leader waits")
    site.speaks_to = other
    looked = looked_at_ms(leader)
    while looked_at_ms(leader) - looked < 2 * LEASE_S * 1000:
        assert all(told["current"] for told in site.beat())
    assert [one.status for one in attempts(store)] == [AttemptStatus.ASSIGNED] * len(site.jobs)


def looked_at_ms(server: SharedServer) -> int:
    found: int = server.local("GET", "/api/v1/coordinator/status")["lastReconcileAtMs"]
    return found
