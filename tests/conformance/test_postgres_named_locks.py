"""Names that a transaction on PostgreSQL holds until it ends, and the coordinator's term among them."""

from __future__ import annotations

import asyncio

import pytest
from test_postgres_faults import opened, transact, until_waited_for

from muster.engine.fence import check_term, take_term
from muster.ports.locks import locks
from muster.ports.store import Transaction, Tx


def test_a_named_lock_is_held_by_one_transaction(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            order: list[str] = []
            first_holds = asyncio.Event()

            async def first(tx: Tx) -> None:
                assert await tx.lock(locks("agent a"))
                assert not await tx.lock(locks("agent a")), "it is held already"
                first_holds.set()
                await until_waited_for(store)
                order.append("first")

            async def second(tx: Tx) -> None:
                await first_holds.wait()
                await tx.lock(locks("agent b"))
                order.append("another lock")
                await tx.lock(locks("agent a"))
                order.append("second")

            await asyncio.gather(transact(store, first), transact(other, second))
            assert order == ["another lock", "first", "second"]

    asyncio.run(work())


@pytest.mark.promise("S10")
def test_no_term_is_taken_while_somebody_writes_under_the_last_one(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            term = await store.transact(take_term)
            order: list[str] = []
            checked, taken = asyncio.Event(), asyncio.Event()

            async def led(tx: Tx) -> None:
                await check_term(tx, term)
                checked.set()
                waits = [asyncio.ensure_future(until_waited_for(store)), asyncio.ensure_future(taken.wait())]
                _, late = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in late:
                    one.cancel()
                order.append("the last one has written")

            async def lead(tx: Transaction) -> None:
                await checked.wait()
                await take_term(tx)
                taken.set()
                order.append("the next one leads")

            await asyncio.gather(transact(store, led), other.transact(lead))
            assert order == ["the last one has written", "the next one leads"]

    asyncio.run(work())
