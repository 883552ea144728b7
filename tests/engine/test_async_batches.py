"""Batches on a store that suspends: several at once, tried again where others are in the way, unknown where the
connection breaks at the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
from engine_rig import TOKEN, W1, FakeClock, FixedChance, complete, enqueue

from muster.client.http import REPLY_S
from muster.engine.async_batch import CONNECTIONS, ENOUGH_COMMANDS, TRIES_MAX, WAIT_S_MAX, AsyncBatcher
from muster.engine.batch import BATCH_COMMANDS_MAX
from muster.engine.commands import Applied, Engine
from muster.engine.enqueue import Enqueuer
from muster.engine.policy import Policy
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Claimed, Enqueued, Moved
from muster.model.errors import CommitUnknown, Contended, MusterError, NotFound, StoreAway, Unavailable
from muster.model.rows import DEFAULT_WORKSPACE, Plan
from muster.model.states import TaskStatus
from muster.model.task import Now
from muster.model.views import TaskFilter
from muster.ports.engine import Asked
from muster.ports.locks import Ahead
from muster.ports.store import Transaction
from muster.stores.sqlite.store import MEMORY, SqliteStore
from shared_store import SharedStore

T = TypeVar("T")


class FaultyStore(SharedStore):
    """Raises what is next in `faults`; CommitUnknown once all of it is committed."""

    def __init__(self) -> None:
        super().__init__(SqliteStore.open(MEMORY), suspends=True)
        self.faults: list[MusterError | None] = []
        self.at_once, self.most_at_once = 0, 0

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        fault = self.faults.pop(0) if self.faults else None
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if fault is not None and not isinstance(fault, CommitUnknown):
                raise fault
            done = await super().transact(work, ahead)
        finally:
            self.at_once -= 1
        if fault is not None:
            raise fault
        return done


class CountingEngine(Engine):
    def __init__(self, store: Any) -> None:
        super().__init__(store, FixedChance(), Policy())
        self.batches: list[int] = []

    async def apply(self, asked: Sequence[Asked], now: Now) -> Applied:
        self.batches.append(len(asked))
        return await super().apply(asked, now)


class Server:
    def __init__(self) -> None:
        self.store = FaultyStore()
        self.engine = CountingEngine(self.store)
        self.clock = FakeClock()
        self.waits: list[float] = []
        self.batcher = AsyncBatcher(self.engine, self.clock.now, lambda topics: None, sleep=self._sleep)
        self.served = self.batcher.of(DEFAULT_WORKSPACE)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def register(self) -> None:
        plain = {"hostname": "here", "pid": 1, "pid_start": 1, "boot_id": "boot-a"}
        agents = {"agents": ("claude",), "general": ("claude",), "slots": 10}
        await self.served.execute(c.Register(worker_id=W1, **plain, **agents))  # type: ignore[arg-type]

    async def keys(self) -> list[str]:
        reads = self.store.reads.of(DEFAULT_WORKSPACE)
        return [view.key for view in await reads.task_views(TaskFilter(limit=10_000))]


def served(test: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Server()
        try:
            await test(server)
            await server.batcher.aclose()
        finally:
            server.store.close()

    asyncio.run(run())


def test_what_arrives_while_all_connections_are_busy_is_one_batch() -> None:
    async def test(server: Server) -> None:
        asking = []
        for n in range(60):
            asking.append(asyncio.ensure_future(server.served.execute(enqueue({"a": []}, plan=f"p{n}"))))
            await asyncio.sleep(0)
        assert all(isinstance(answer, Enqueued) for answer in await asyncio.gather(*asking))
        assert server.store.most_at_once == CONNECTIONS
        assert sum(server.engine.batches) == 60 > len(server.engine.batches)

    served(test)


def test_what_is_given_together_stays_together_and_in_order() -> None:
    async def test(server: Server) -> None:
        many = [enqueue({f"t{n}": []}, plan="one") for n in range(BATCH_COMMANDS_MAX + 10)]
        answers = await server.served.execute_all(many)
        ids = [answer.task_ids[0] for answer in answers]  # type: ignore[union-attr]
        assert ids == sorted(ids)
        assert server.engine.batches == [BATCH_COMMANDS_MAX, 10]

    served(test)


def test_a_refusal_is_a_value_among_the_others() -> None:
    async def test(server: Server) -> None:
        added, refused = await server.served.execute_all(
            [enqueue({"a": []}), c.Cancel(task_id=404, actor="ada")]
        )
        assert isinstance(added, Enqueued) and isinstance(refused, NotFound)
        with pytest.raises(NotFound):
            await server.served.execute(c.Cancel(task_id=404, actor="ada"))

    served(test)


def test_a_batch_that_others_were_in_the_way_of_is_tried_again_as_a_whole() -> None:
    async def test(server: Server) -> None:
        server.store.faults = [Contended("deadlock detected")] * 3
        answers = await server.served.execute_all([enqueue({"a": []}, plan=f"p{n}") for n in range(5)])
        assert all(isinstance(answer, Enqueued) for answer in answers)
        assert server.engine.batches == [5] * 4
        assert server.waits == sorted(server.waits) and len(set(server.waits)) == 3
        assert await server.keys() == ["a"] * 5
        assert server.batcher.absences() == 0, "the store was there all the time"

    served(test)


def test_what_is_in_the_way_of_one_command_is_in_the_way_of_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a row is not what it was when it was read: half of it may be written already."""
    find_plan, met = Enqueuer.find_plan, list[str]()

    async def changed_meanwhile(enqueuer: Enqueuer, view: View, command: c.Enqueue) -> Plan | None:
        if command.plan == "p1" and not met:
            met.append(command.plan)
            raise Contended("what was read was changed meanwhile; nothing was written")
        return await find_plan(enqueuer, view, command)

    monkeypatch.setattr(Enqueuer, "find_plan", changed_meanwhile)

    async def test(server: Server) -> None:
        answers = await server.served.execute_all([enqueue({"a": []}, plan=f"p{n}") for n in range(3)])
        assert all(isinstance(answer, Enqueued) for answer in answers)
        assert server.engine.batches == [3, 3] and await server.keys() == ["a"] * 3

    served(test)


def test_in_the_end_its_callers_are_told_to_try_again() -> None:
    async def test(server: Server) -> None:
        server.store.faults = [Contended("deadlock detected")] * TRIES_MAX
        with pytest.raises(Contended):
            await server.served.execute(enqueue({"a": []}))
        assert len(server.engine.batches) == TRIES_MAX and max(server.waits) <= WAIT_S_MAX
        assert await server.keys() == []
        assert isinstance(await server.served.execute(enqueue({"a": []})), Enqueued)

    served(test)


def test_whoever_asks_is_told_before_waiting_too_long() -> None:
    """As by a lock that somebody holds for a minute: each try waits for it for 10 s."""

    async def test(server: Server) -> None:
        refuse = server.store.transact

        async def slow(work: Any, ahead: Any = None) -> Any:
            server.clock.advance(10)
            return await refuse(work, ahead)

        server.store.faults = [Contended("lock timeout")] * TRIES_MAX
        server.store.transact = slow  # type: ignore[method-assign]
        began_ms = server.clock.now().mono_ms
        with pytest.raises(Contended):
            await server.served.execute(enqueue({"a": []}))
        assert server.clock.now().mono_ms - began_ms < REPLY_S * 1000

    served(test)


@pytest.mark.promise("S1", "S4", "S6")
def test_after_an_unknown_commit_everything_may_be_asked_again() -> None:
    """Callers learn that it is unknown, and the same words change nothing where it was written."""

    async def test(server: Server) -> None:
        await server.register()
        added = await _twice(server, enqueue({}, specs={}, plan="p"), Enqueued)
        keyed = c.Enqueue(
            plan="p", source=None, tasks=(c.Spec(title="a", key="a", idempotency_key="k"),), actor="ada"
        )
        added = await _twice(server, keyed, Enqueued)
        assert await server.keys() == ["a"]
        claimed = await _twice(server, c.Claim(worker_id=W1, request_id="r", slots=5), Claimed)
        (job,) = claimed.jobs
        assert (job.task_id, job.epoch) == (added.task_ids[0], 1)
        await _twice(server, c.Start(task_id=job.task_id, epoch=1, token_hash=TOKEN), Moved)
        done = await _twice(server, complete(job), Moved)
        assert (done.status, done.epoch) == (TaskStatus.COMPLETED, 1)
        late = await server.served.execute(c.Claim(worker_id=W1, request_id="r", slots=5))
        assert isinstance(late, Claimed) and (late.jobs, late.over) == ((), True), "it was given something"

    async def _twice(server: Server, command: c.Command, kind: type[Any]) -> Any:
        server.store.faults = [CommitUnknown("the connection broke")]
        with pytest.raises(CommitUnknown):
            await server.served.execute(command)
        answer = await server.served.execute(command)
        assert isinstance(answer, kind)
        return answer

    served(test)


def test_a_store_that_is_away_is_an_absence_and_refuses_at_once() -> None:
    async def test(server: Server) -> None:
        server.store.faults = [StoreAway("no answer")]
        with pytest.raises(StoreAway):
            await server.served.execute(enqueue({"a": []}))
        assert (server.batcher.absences(), server.waits) == (1, [])

    served(test)


def test_one_poisoned_command_does_not_fail_its_neighbours() -> None:
    async def test(server: Server) -> None:
        poison = enqueue({"bad": []}, specs={"bad": {"priority": 99}})
        together = [Asked(one, DEFAULT_WORKSPACE) for one in (enqueue({"a": []}), poison)]
        with pytest.raises(Exception) as bug:
            await server.batcher.carry_out_all(together)
        assert not isinstance(bug.value, MusterError)
        assert await server.keys() == ["a"]

    served(test)


def test_its_end_answers_what_was_put_in_and_refuses_the_rest() -> None:
    async def test(server: Server) -> None:
        pending = [asyncio.ensure_future(server.served.execute(enqueue({}, plan=f"p{n}"))) for n in range(9)]
        await asyncio.sleep(0)
        await server.batcher.aclose()
        assert all(isinstance(future.result(), Enqueued) for future in pending)
        with pytest.raises(Unavailable, match="shutting down"):
            await server.served.execute(enqueue({}))

    served(test)


def test_many_commands_of_several_callers_are_shared_out_among_free_connections() -> None:
    """With one transaction for all the database would rest while they are decided, and the other way round."""

    async def test(server: Server) -> None:
        each = [
            [enqueue({f"t{n}": []}, plan=f"p{caller}") for n in range(ENOUGH_COMMANDS)] for caller in range(3)
        ]
        await asyncio.gather(*(server.served.execute_all(commands) for commands in each))
        assert server.engine.batches == [ENOUGH_COMMANDS] * 3
        few = [server.served.execute(enqueue({"few": []}, plan=f"q{n}")) for n in range(20)]
        await asyncio.gather(*few)
        assert server.engine.batches[3:] == [20], "a few are one commit"

    served(test)
