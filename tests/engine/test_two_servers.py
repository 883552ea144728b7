"""Two servers over one PostgreSQL: a plan that all work on and change at the same time, until it is quiet."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import test_big_dags
from driven_postgres import read_history
from engine_rig import FakeClock, FixedChance
from test_big_dags import LATER, TASKS, WORKERS, Crowd

from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.retry import RetryPolicy
from muster.model.rows import DEFAULT_WORKSPACE
from muster.stores.postgres.store import PostgresStore
from muster.testing import promises
from searches import new_seed

FEWER, FEWER_LATER = 300, 60
"""Tasks: each command is a round trip here."""


class Servers:
    """Whoever asks is answered by one of them."""

    def __init__(self, stores: list[PostgresStore], dice: random.Random) -> None:
        policy = Policy(
            lease_s=10**6, failures_max=0, retry=RetryPolicy(first_s=0.01, cap_s=0.02, losses_max=10**6)
        )
        now = FakeClock().now  # the database's clock counts
        self._dice = dice
        self.batchers = [
            AsyncBatcher(Engine(store, FixedChance(), policy), now, lambda _: None) for store in stores
        ]

    async def execute(self, command: c.Command) -> Answer:
        return await self._dice.choice(self.batchers).of(DEFAULT_WORKSPACE).execute(command)


class CrowdOfTwo(Crowd):
    def __init__(self, seed: int, stores: list[PostgresStore]) -> None:
        self.dice = random.Random(seed)
        self.servers = Servers(stores, self.dice)
        self.served = self.servers  # type: ignore[assignment]
        self.rig = SimpleNamespace(reads=stores[0].reads.of(DEFAULT_WORKSPACE))  # type: ignore[assignment]
        self.ids: dict[str, int] = {}
        self.cycles: list[str] = []
        self.quiet = False

    async def coordinate(self) -> None:
        while not self.quiet:
            now = await self.rig.reads.now(FakeClock().now())
            for task_id in await self.rig.reads.due(now.wall_ms, 500):
                await self.give(c.Promote(task_id=task_id))
            await asyncio.sleep(0.05)


@pytest.mark.promise("S1", "S3", "S4", "S7", "S8", "S12", "L3")
def test_two_servers_bring_a_plan_to_its_end_once(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_big_dags, "TASKS", FEWER)
    monkeypatch.setattr(test_big_dags, "LATER", FEWER_LATER)
    assert (TASKS, LATER) != (FEWER, FEWER_LATER) and len(WORKERS) > 2
    seed = new_seed()
    print(f"seed {seed}")  # a failure shows it

    async def run() -> tuple[CrowdOfTwo, Any, list[str]]:
        stores = [await PostgresStore.open(postgres_store) for _ in range(2)]
        crowd = CrowdOfTwo(seed, stores)
        try:
            await crowd.run()
            for batcher in crowd.servers.batchers:
                await batcher.aclose()
            return crowd, await read_history(stores[0]), await stores[1].check()
        finally:
            for store in stores:
                await store.aclose()

    crowd, rows, damage = asyncio.run(run())
    history = promises.History(**rows._asdict())
    found = promises.check(history)
    assert [violation for finding in found for violation in finding.violations] == []
    granted = Counter((event.task_id, event.epoch) for event in history.events if event.event == "claimed")
    assert set(granted.values()) == {1}
    assert all(finding.looked_at > FEWER for finding in found if finding.promise in {"S1", "S3", "S7", "S8"})
    assert damage == [] and len(history.tasks) == FEWER
    assert not any(attempt.open for attempt in history.attempts)
    assert all(" -> " in message for message in crowd.cycles)
