"""What another server's slower transaction adds counts as unseen, whatever number its event has."""

from __future__ import annotations

import asyncio

from store_rows import NOW, PLAN_ID, make_event, new_task, writes
from test_postgres_faults import opened, transact

from muster.model.rows import DEFAULT_WORKSPACE, Plan
from muster.ports.store import Tx


async def add(tx: Tx, task_id: int, key: str) -> None:
    await tx.write(writes(new_tasks=[new_task(task_id, key)], events=[make_event(task_id, 1)]), NOW)


def test_an_older_event_that_comes_later_is_not_missed(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            written, looked = asyncio.Event(), asyncio.Event()
            reads = store.reads.of(DEFAULT_WORKSPACE)

            async def slower(tx: Tx) -> None:
                await add(tx, 1, "slower")
                assert await tx.more_to_end(PLAN_ID, 0, None) == [("slower", True)], "it has its number"
                written.set()
                await looked.wait()

            async def looks() -> int:
                await written.wait()
                await transact(other, lambda tx: add(tx, 2, "quicker"))
                seen = await reads.last_event_id()
                assert [
                    one.task_id for one in await reads.events(after_id=0, task_id=None, limit=10)
                ] == [], "nobody reads beyond the gap"
                looked.set()
                return seen

            plan = Plan(PLAN_ID, DEFAULT_WORKSPACE, "api", None, NOW.wall_ms, 0)
            await transact(store, lambda tx: tx.add_plan(plan))
            _, seen = await asyncio.gather(transact(store, slower), looks())
            more = await transact(store, lambda tx: tx.more_to_end(PLAN_ID, seen, None))
            assert more == [("slower", True), ("quicker", True)]
            newest = await reads.last_event_id()
            assert await transact(store, lambda tx: tx.more_to_end(PLAN_ID, newest, None)) == []

    asyncio.run(work())
