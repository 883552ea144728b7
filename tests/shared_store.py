"""SQLite as one of several servers sees a store: nothing is remembered, and whoever decides has to hold what it
decides on.

A decision on what is not held fails the test: two servers could make it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from muster.model.rows import WorkerRow
from muster.model.task import Now, Task
from muster.ports.locks import (
    AUDIT,
    CREW,
    EDGES,
    PEOPLE,
    PLAN_FILES,
    TERM,
    WEBHOOKS,
    Ahead,
    Locks,
    worker_lock,
)
from muster.ports.store import Transaction, Writes
from muster.stores.sqlite.store import SqliteStore

T = TypeVar("T")


class SharedStore:
    shared = True

    def __init__(self, store: SqliteStore, *, suspends: bool = False) -> None:
        self.store = store
        self._suspends = suspends
        self._turn = asyncio.Lock()
        self.locked: list[Locks] = []
        """All that was ever named."""

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        async def watched(tx: Transaction) -> T:
            return await work(_HeldTransaction(tx, _Held(self.locked), suspends=self._suspends))

        async with self._turn:
            return await self.store.transact(watched, ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class _Held:
    """What one transaction holds."""

    def __init__(self, locked: list[Locks]) -> None:
        self.names: set[str] = set()
        self.tasks: set[int] = set()
        self.new: set[int] = set()
        self.going_on: set[int] = set()
        """Tasks that were named as such that do not end."""
        self.read: set[tuple[int, str]] = set()
        """Settings that were read, by workspace and name ..."""
        self.to_set: set[tuple[int, str]] = set()
        """... and those of them that were read to be set."""
        self._locked = locked

    def lock(self, wanted: Locks) -> bool:
        self._locked.append(wanted)
        self.names |= wanted.names | wanted.shared
        self.tasks |= wanted.tasks
        assert wanted.ending <= wanted.tasks
        self.going_on = (self.going_on | wanted.tasks) - wanted.ending
        return True

    def check(self, ids: Collection[int], what: str) -> None:
        assert (missing := set(ids) - self.tasks - self.new) == set(), (
            f"{what} of {missing}: nobody holds them"
        )

    def check_name(self, name: str, what: str) -> None:
        assert name in self.names, f"{what} without holding {name!r}"


class _Passing:
    """Calls go on to the store, after a breath where it suspends."""

    def __init__(self, tx: Any, held: _Held, *, suspends: bool) -> None:
        self._tx, self._held, self._suspends = tx, held, suspends

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if not (self._suspends and iscoroutinefunction(found)):
            return found

        async def suspended(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(0)
            return await found(*args, **named)

        return suspended

    async def lock(self, wanted: Locks) -> bool:
        return self._held.lock(wanted)


class _HeldTransaction(_Passing):
    def of(self, workspace_id: int) -> _HeldTx:
        return _HeldTx(self._tx.of(workspace_id), self._held, suspends=self._suspends)

    async def set_store_meta(self, name: str, value: str) -> None:
        if name == TERM:
            self._held.check_name(TERM, "a term was taken")
        await self._tx.set_store_meta(name, value)


class _HeldTx(_Passing):
    async def tasks(self, ids: Collection[int]) -> list[Task]:
        self._held.tasks.update(ids)
        found: list[Task] = await self._tx.tasks(ids)
        return found

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        found: list[Task] = await self._tx.ready(lane_id, limit)
        self._held.tasks.update(task.id for task in found)
        return found

    async def write(self, writes: Writes, now: Now) -> None:
        held = self._held
        held.new |= {task.id for _, task in writes.new_tasks}
        held.check([task.id for task in writes.tasks], "a change")
        ended = {task.id for task in writes.tasks if task.final} & held.going_on
        assert not ended, f"{ended} have ended, and what waits for them was not named"
        held.check([one.task_id for one in (*writes.attempts, *writes.opened)], "an attempt")
        parents = [parent for new, _ in writes.new_tasks for parent, _ in new.dependencies]
        held.check(parents, "a new task that waits for the end")
        await self._tx.write(writes, now)

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        self._held.check(parent_ids, "the end")
        found: list[tuple[int, int]] = await self._tx.settle_dependencies(parent_ids)
        return found

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None:
        self._held.check([parent_id, child_id], "a dependency")
        await self._tx.add_dependency(parent_id, child_id, met=met)

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        self._held.check([child_id, *parents], "dependencies")
        self._held.check_name(EDGES, "dependencies were set")
        await self._tx.set_dependencies(child_id, parents)

    async def meta(self, name: str) -> str | None:
        self._held.read.add((self._tx.workspace_id, name))
        found: str | None = await self._tx.meta(name)
        return found

    async def meta_to_set(self, name: str) -> str | None:
        self._held.to_set.add((self._tx.workspace_id, name))
        found: str | None = await self._tx.meta(name)
        return found

    async def set_meta(self, name: str, value: str) -> None:
        place, held = (self._tx.workspace_id, name), self._held
        decided = place in held.read and place not in held.to_set and CREW not in held.names
        assert not decided, f"{name!r} was set by what it was, and nobody holds it"
        await self._tx.set_meta(name, value)

    async def put_worker(self, worker: WorkerRow) -> None:
        self._held.check_name(worker_lock(worker.id), f"{worker.id} was put")
        await self._tx.put_worker(worker)

    async def put_agent(self, *agent: Any) -> None:
        self._held.check_name(CREW, "an agent was put")
        await self._tx.put_agent(*agent)

    async def update_token(self, *token: Any) -> None:
        self._held.check_name(PEOPLE, "a token was changed")
        await self._tx.update_token(*token)

    async def update_webhook(self, *webhook: Any) -> None:
        self._held.check_name(WEBHOOKS, "a webhook was changed")
        await self._tx.update_webhook(*webhook)

    async def update_message(self, *message: Any) -> None:
        self._held.check_name(WEBHOOKS, "a message was changed")
        await self._tx.update_message(*message)

    async def set_sync_state(self, *state: Any) -> None:
        self._held.check_name(PLAN_FILES, "the state of a plan's file was set")
        await self._tx.set_sync_state(*state)

    async def put_member(self, *member: Any) -> None:
        self._held.check_name(PEOPLE, "a member was put")
        await self._tx.put_member(*member)

    async def add_seal(self, *seal: Any) -> None:
        self._held.check_name(AUDIT, "a seal was added")
        self._held.check_name(TERM, "a leader has written")
        await self._tx.add_seal(*seal)
