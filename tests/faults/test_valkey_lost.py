"""What becomes of Valkey changes nothing but how soon servers hear of each other (S14)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_rig import complete, enqueue
from valkey import Valkey

from muster.app.runtime import runtime_of
from muster.config.settings import RuntimeSettings
from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.services.mirror import Mirror
from muster.model import commands as c
from muster.model.answers import Claimed
from muster.model.events import fold
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import TaskStatus
from muster.model.views import TaskFilter
from muster.ports.runtime import READY, Runtime
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.postgres.store import PostgresStore
from muster.stores.sqlite.store import SqliteStore
from muster.web.backend import POLL_S
from patience import HOURS_S, PATIENCE_S, until
from real_servers import own_folder
from shared_store import SharedStore
from valkey_faults import HarmedValkey

STEPS = 6
AGENTS = ("here", "there")
"""The first server's and the second's: they take turns, so that each step is one's work and the other's news."""


class PeerServer:
    """One of two on the same store: its engine, and a worker that waits for a hint, or looks."""

    def __init__(self, store: Any, runtime: Runtime, agent: str, poll_s: float) -> None:
        self.store, self.runtime = store, runtime
        self._agent, self._poll_s = agent, poll_s
        self._worker_id = f"worker-{secrets.token_hex(4)}"
        self._clock = SystemClock("boot-a")
        chance = SystemChance()
        self.batcher = AsyncBatcher(Engine(store, chance, Policy()), self._clock.now, runtime.wakeups.publish)
        self.engine = self.batcher.of(DEFAULT_WORKSPACE)
        self.waits = 0

    async def work(self, done: Callable[[int, int], None]) -> None:
        """`done` is told of each step, and how often this worker had waited by then."""
        plain = {"hostname": "here", "pid": 1, "pid_start": 1, "boot_id": "boot-a", "slots": 1}
        agents = {"agents": (self._agent,), "general": ()}
        await self.engine.execute(c.Register(worker_id=self._worker_id, **plain, **agents))  # type: ignore[arg-type]
        with self.runtime.wakeups.listen(READY) as hints:
            while True:
                request = secrets.token_hex(16)
                found = await self.engine.execute(
                    c.Claim(worker_id=self._worker_id, slots=1, request_id=request, start=True)
                )
                assert isinstance(found, Claimed)
                for job in found.jobs:
                    waits = self.waits
                    await self.engine.execute(complete(job))
                    done(int(job.key), waits)
                if not found.jobs:
                    await hints.wait(self._poll_s)
                    self.waits += 1

    async def show(self) -> None:
        await Mirror(self._clock, self.store.reads, self.runtime, lambda *_: None).run()


@contextlib.asynccontextmanager
async def two_servers(
    database: str | Path, url: str, poll_s: float = POLL_S
) -> AsyncIterator[list[PeerServer]]:
    """On a database of PostgreSQL, or on SQLite as several servers see a store."""
    async with contextlib.AsyncExitStack() as stack:
        made, store = [], None
        for agent in AGENTS:
            if isinstance(database, str):
                store = await PostgresStore.open(database)
                stack.push_async_callback(store.aclose)
            elif store is None:
                store = SharedStore(SqliteStore.open(database), suspends=True)
                stack.callback(store.close)
            runtime = runtime_of(RuntimeSettings(url=url))
            runtime.start()
            stack.push_async_callback(runtime.aclose)
            made.append(PeerServer(store, runtime, agent, poll_s))
            stack.push_async_callback(made[-1].batcher.aclose)
        yield made


async def steps_done(servers: list[PeerServer], fault: Callable[[int], None]) -> list[int]:
    """Runs a chain of tasks, each of another server's agent than the one before, `fault` before each is begun;
    how often who had the next one waited before it was found."""
    done: asyncio.Queue[int] = asyncio.Queue()
    ready_at, waited = [servers[0].waits], list[int]()

    def note(step: int, waits: int) -> None:
        waited.append(waits - ready_at[step])
        ready_at.append(servers[(step + 1) % 2].waits)
        done.put_nowait(step)

    tasks = {str(step): [str(step - 1)] if step else [] for step in range(STEPS)}
    specs = {key: {"agent": AGENTS[int(key) % 2]} for key in tasks}
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(server.work(note)) for server in servers]
        loops += [group.create_task(servers[0].show())]
        await asyncio.to_thread(fault, 0)
        await servers[1].engine.execute(enqueue(tasks, specs=specs))
        for step in range(STEPS):
            async with asyncio.timeout(PATIENCE_S):
                assert await done.get() == step
            await asyncio.to_thread(fault, step + 1)
        for loop in loops:
            loop.cancel()
    return waited[1:]  # nobody knows at which look of its worker the first one was there


async def final_state(server: PeerServer) -> list[tuple[Any, ...]]:
    """With each task's history, which is whole."""
    reads, found = server.store.reads.of(DEFAULT_WORKSPACE), []
    numbered = await server.store.reads.numbered_events(0, None, 1_000)
    for view in sorted(await reads.task_views(TaskFilter()), key=lambda view: view.key):
        events = await reads.last_events(view.id, 100)
        history = [(event.seq, event.event, event.new_status, event.epoch) for event in events]
        found.append((view.key, view.status, view.epoch, view.generation, view.attempt_count, history))
        folded = fold(one.event for one in numbered if one.event.task_id == view.id)
        assert folded.status is view.status
    return found


EXPECTED_STATUS = [(str(step), TaskStatus.COMPLETED, 1, 1) for step in range(STEPS)]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "sqlite":
        return tmp_path / "muster.db"
    found: str = request.getfixturevalue("postgres_store")
    return found


@pytest.fixture
def harmed() -> Iterator[HarmedValkey]:
    with own_folder() as folder:
        folder.mkdir()
        made = HarmedValkey(folder)
        try:
            yield made
        finally:
            made.end()


def _nothing(harmed: HarmedValkey, step: int) -> None:
    pass


def _flushed(harmed: HarmedValkey, step: int) -> None:
    harmed.flush()


def _killed(harmed: HarmedValkey, step: int) -> None:
    if step == 2:
        harmed.kill()


def _restarted(harmed: HarmedValkey, step: int) -> None:
    if step in {1, 4}:
        harmed.kill()
    if step in {2, 4}:
        harmed.start()


def _restarted_at_once(harmed: HarmedValkey, step: int) -> None:
    """The hint of the step that was just done may be under way, and lost with it."""
    if step in {1, 4}:
        harmed.kill()
        harmed.start()


def _stopped(harmed: HarmedValkey, step: int) -> None:
    if step == 1:
        harmed.stop()
    if step == 4:
        harmed.go_on()


def _absent_at_start(harmed: HarmedValkey, step: int) -> None:
    if step == 3:
        harmed.start()


def _stale_copy(harmed: HarmedValkey, step: int) -> None:
    if step == 1:
        harmed.take_a_copy()
    if step == 4:
        harmed.promote_the_copy()


FAULTS = {
    "none": _nothing,
    "flushed": _flushed,
    "killed": _killed,
    "restarted": _restarted,
    "stopped": _stopped,
    "absent at start": _absent_at_start,
    "never there": _nothing,
    "a stale copy": _stale_copy,
}


@pytest.mark.promise("S14")
@pytest.mark.parametrize("name", list(FAULTS))
def test_what_becomes_of_valkey_changes_no_state(
    name: str, database: str | Path, harmed: HarmedValkey
) -> None:
    """Nobody waits for more than one look: whoever has not heard of a task finds it then."""
    if name not in {"absent at start", "never there"}:
        harmed.start()

    async def run() -> tuple[list[int], list[tuple[Any, ...]]]:
        async with two_servers(database, harmed.url) as servers:
            waited = await steps_done(servers, lambda step: FAULTS[name](harmed, step))
            return waited, await final_state(servers[0])

    waited, found = asyncio.run(run())
    assert [row[:4] for row in found] == EXPECTED_STATUS
    assert {row[4] for row in found} == {1}, "each was done once"
    assert all(history == found[1][5] for *_, history in found[1:]), "each went the same way"
    assert max(waited) <= 1


def test_with_valkey_nobody_needs_to_look(database: str | Path, harmed: HarmedValkey) -> None:
    """Whoever waits would wait for hours: hints alone lead from step to step, over a restart as well."""
    harmed.start()

    async def run() -> list[tuple[Any, ...]]:
        async with two_servers(database, harmed.url, poll_s=HOURS_S) as servers:
            await steps_done(servers, lambda step: _restarted_at_once(harmed, step))
            return await final_state(servers[0])

    assert [row[:4] for row in asyncio.run(run())] == EXPECTED_STATUS


def test_what_was_lost_is_shown_again(database: str | Path, harmed: HarmedValkey) -> None:
    harmed.start()

    def flushed_and_shown(step: int) -> None:
        if step not in {1, 3}:
            return
        with contextlib.closing(Valkey.from_url(harmed.url)) as client:
            until(lambda: len(list(client.scan_iter("agent:status:*"))) == len(AGENTS), "both are shown")
            client.flushall()

    async def run() -> None:
        async with two_servers(database, harmed.url) as servers:
            await steps_done(servers, flushed_and_shown)

    asyncio.run(run())
