"""What a store may read before it is asked: whoever asks hears what stands there then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_rows import PLAN_ID, Subject, make_attempt, make_event, make_worker, new_task, writes

from factories import NOW
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.locks import Ahead, Locks, locks
from muster.ports.store import Transaction, Tx
from muster.stores.postgres.store import PostgresStore

WORKER = "worker-aaaaaaaa"


def begun(*tasks: int, **known: Any) -> Ahead:
    wanted = Locks(tasks=frozenset(tasks), ending=frozenset(tasks))
    return Ahead(DEFAULT_WORKSPACE, **({"locks": wanted} | known))


def with_ahead(subject: Subject, ahead: Ahead, work: Any) -> Any:
    return subject.ask(subject.store.transact(lambda tx: work(tx.of(DEFAULT_WORKSPACE)), ahead))


def test_a_transaction_that_was_told_ahead_finds_what_one_finds_that_was_not(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(1, "one"), new_task(2, "two", after=((1, False),)), new_task(3))
    subject.tx("set_meta", "crew", "RUNNING")

    async def work(tx: Tx) -> Any:
        await tx.lock(Locks(tasks=frozenset({1, 3}), ending=frozenset({1, 3})))
        tasks = await tx.tasks([3, 2, 1])
        plans = [await tx.plan_by_name("api"), await tx.plan_by_name("web"), await tx.plan(PLAN_ID)]
        keys = sorted(await tx.existing(PLAN_ID, ["one", "nine"]))
        others = (await tx.webhooks(), await tx.agents(), await tx.meta("crew"), await tx.meta("none"))
        settled = await tx.settle_dependencies([3]), await tx.settle_dependencies([1, 3])
        return tasks, plans, keys, others, settled, await tx.settle_dependencies([1])

    plans, keys = frozenset({"api", "web"}), frozenset({"one", "nine"})
    told = with_ahead(subject, begun(1, 3, plans=plans, keys=keys), work)
    assert told[2] == ["one"] and told[4:] == (([], [(2, 1)]), [])
    subject.sql("UPDATE dependencies SET met = 0")
    assert subject.transact(work) == told


def test_what_a_transaction_writes_it_reads_whatever_was_read_ahead(subject: Subject) -> None:
    subject.add_plan()
    lane_id = subject.lane()
    subject.add(new_task(1, "one", lane_id=lane_id))
    subject.tx("put_worker", make_worker(WORKER))

    async def work(tx: Tx) -> Any:
        before = await tx.existing(PLAN_ID, ["two"]), await tx.settle_dependencies([1])
        await tx.claim_follows(WORKER, "r1")
        child = new_task(2, "two", after=((1, False),), unmet=1, lane_id=lane_id)
        await tx.write(writes(new_tasks=[child], events=[make_event(2, 1)]), NOW)
        await tx.write(writes(new_tasks=[new_task(3, lane_id=lane_id)], events=[make_event(3, 1)]), NOW)
        found = await tx.existing(PLAN_ID, ["two"]), [lane.id for lane in await tx.open_lanes()]
        await tx.claim_follows(WORKER, "r1")
        await tx.write(writes(opened=[make_attempt(3, 1, worker_id=WORKER, request_id="r1")]), NOW)
        given = await tx.was_given(WORKER, "r1"), len(await tx.held(WORKER)), await tx.worker(WORKER)
        return before, list(found[0]), lane_id in found[1], given, await tx.settle_dependencies([1])

    ahead = begun(1, plans=frozenset({"api"}), keys=frozenset({"two"}))
    before, keys, open_lane, given, settled = with_ahead(subject, ahead, work)
    assert before == ({}, [])
    assert (keys, open_lane, settled) == (["two"], True, [(2, 1)])
    assert given == (True, 1, make_worker(WORKER))


def test_many_tasks_of_one_transaction_are_all_there_or_none_is(subject: Subject) -> None:
    async def work(tx: Tx, first: int, *, whole: bool) -> None:
        for at in range(first, first + 1200, 300):
            new = [new_task(at + n, f"k{at + n}") for n in range(300)]
            await tx.write(writes(new_tasks=new, events=[make_event(at + n, 1) for n in range(300)]), NOW)
        if not whole:
            raise KeyError

    subject.add_plan()
    subject.transact(lambda tx: work(tx, 1000, whole=True))
    with pytest.raises(KeyError):
        subject.transact(lambda tx: work(tx, 5000, whole=False))
    assert len(subject.tx("tasks", range(1000, 7000))) == 1200
    with pytest.raises(subject.integrity_error):
        subject.transact(lambda tx: work(tx, 1900, whole=True))
    assert len(subject.tx("tasks", range(1000, 7000))) == 1200


def test_what_was_waited_for_is_read_as_it_is_after_the_wait(postgres_store: str) -> None:
    """Another server adds a child, and sets what is kept, while the first one is held up at its beginning."""
    asyncio.run(_held_up(postgres_store))


async def _held_up(postgres_store: str) -> None:
    one, other = [await PostgresStore.open(postgres_store) for _ in range(2)]
    held, go_on = asyncio.Event(), asyncio.Event()

    async def add_child(tx: Transaction) -> None:
        part = tx.of(DEFAULT_WORKSPACE)
        await part.lock(Locks(names=frozenset({"a"}), tasks=frozenset({1})))
        held.set()
        await go_on.wait()
        await part.set_meta("crew", "STOPPED")
        child = new_task(2, after=((1, False),), unmet=1)
        await part.write(writes(new_tasks=[child], events=[make_event(2, 1)]), NOW)

    async def end(tx: Transaction) -> Any:
        part = tx.of(DEFAULT_WORKSPACE)
        children = await part.settle_dependencies([1])
        return await part.meta("crew"), children, [task.id for task in await part.tasks([2])]

    async def begin(name: str) -> asyncio.Task[Any]:
        wanted = Locks(names=locks(name).names, tasks=frozenset({1}), ending=frozenset({1}))
        return asyncio.create_task(one.transact(end, begun(locks=wanted)))

    try:
        await one.transact(lambda tx: tx.of(1).set_meta("crew", "RUNNING"))
        await one.transact(lambda tx: tx.of(1).write(writes(new_tasks=[new_task(1)]), NOW))
        assert await (await begin("b")) == ("RUNNING", [], [])
        adding = asyncio.create_task(other.transact(add_child))
        await held.wait()
        ending = await begin("a")
        done, _ = await asyncio.wait([ending], timeout=0.2)
        assert not done
        go_on.set()
        await adding
        assert await ending == ("STOPPED", [(2, 1)], [2])
    finally:
        go_on.set()
        await asyncio.gather(one.aclose(), other.aclose())
