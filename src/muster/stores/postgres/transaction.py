"""One write transaction: what concerns no workspace alone."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any

from muster.model.retry import OWN_CAP_FACTOR
from muster.model.rows import Workspace
from muster.model.task import Now
from muster.ports.locks import Locks
from muster.stores.postgres.known import StoreKnown
from muster.stores.postgres.reads import BOOT
from muster.stores.postgres.session import STORES_OWN, Session
from muster.stores.postgres.tx import PostgresTx


class PostgresTransaction:
    """As ports.store.Transaction; lives between BEGIN and COMMIT."""

    def __init__(self, session: Session, known: StoreKnown) -> None:
        self._session, self._known = session, known
        self._parts: dict[int, PostgresTx] = {}
        self._now = Now(0, 0, BOOT)

    def of(self, workspace_id: int) -> PostgresTx:
        part = self._parts.get(workspace_id)
        if part is None:
            part = self._parts[workspace_id] = PostgresTx(self._session, self._known, workspace_id)
        return part

    def now(self, here: Now) -> Now:  # noqa: ARG002
        at_ms = self._session.at_ms
        if self._now.wall_ms != at_ms:
            self._now = Now(at_ms, at_ms, BOOT)
        return self._now

    @property
    def session(self) -> Session:
        """For what only this store does."""
        return self._session

    async def lock(self, wanted: Locks) -> bool:
        return await self._session.lock(STORES_OWN, wanted)

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        return await self._session.take_ids(count, wall_ms)

    async def workspaces(self) -> list[int]:
        return [row[0] for row in await self._session.all("workspace_ids")]

    async def workspace_named(self, name: str) -> int | None:
        return await self._number("workspace_named", name)

    async def add_workspace(self, workspace: Workspace) -> None:
        row = (workspace.id, workspace.name, workspace.created_at_ms)
        await self._session.all("insert_workspace", *row)

    async def store_meta(self, name: str) -> str | None:
        row = await self._session.first("meta", STORES_OWN, name)
        return row[0] if row else None

    async def store_metas(self, names: Collection[str]) -> dict[str, str]:
        known = self._session.metas
        if any((STORES_OWN, name) not in known for name in names):
            asked = list(dict.fromkeys(one for name in names for one in self._known.asked(STORES_OWN, name)))
            found = dict(await self._session.all("metas", STORES_OWN, asked))
            known |= {(STORES_OWN, one): found.get(one) for one in asked}
        values = ((name, known[STORES_OWN, name]) for name in names)
        return {name: value for name, value in values if value is not None}

    async def set_store_meta(self, name: str, value: str) -> None:
        self._session.metas.pop((STORES_OWN, name), None)
        await self._session.all("set_meta", STORES_OWN, name, value)

    async def workspace_of_tasks(self, ids: Collection[int]) -> dict[int, int]:
        rows = await self._session.all("workspace_of_tasks", list(ids))
        return {row[0]: row[1] for row in rows}

    async def workspace_of_plan(self, plan_id: int) -> int | None:
        return await self._number("workspace_of_plan", plan_id)

    async def workspace_of_worker(self, worker_id: str) -> int | None:
        return await self._number("workspace_of_worker", worker_id)

    async def prune_logs(self, before_ms: int, limit: int) -> int:
        files = await self._count("prune_files", before_ms, limit)
        return max(files, await self._count("prune_logs", before_ms, limit))

    async def prune_checkpoints(self, before_ms: int, limit: int) -> int:
        return await self._count("prune_checkpoints", before_ms, limit)

    async def prune_idempotency(self, before_ms: int, limit: int) -> int:
        return await self._count("prune_idempotency", before_ms, limit)

    async def prune_messages(self, before_ms: int, limit: int) -> int:
        return await self._count("prune_messages", before_ms, limit)

    async def prune_beats(self, before_ms: int, limit: int) -> int:
        return await self._count("prune_beats", before_ms, limit)

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        return await self._count("prune_sessions", before_ms, limit)

    async def shift_waits(self, by_ms: int) -> None:
        self._session.tasks.forget()
        for name in ("shift_retries", "shift_aims", "shift_messages"):
            await self._session.all(name, by_ms)

    async def bound_retries(self, wall_ms: int, longest_ms: int) -> None:
        self._session.tasks.forget()
        await self._session.all("bound_retries", wall_ms, longest_ms, OWN_CAP_FACTOR)

    async def bound_messages(self, latest_ms: int) -> None:
        await self._session.all("bound_messages", latest_ms)

    async def _number(self, name: str, *bindings: Any) -> int | None:
        row = await self._session.first(name, *bindings)
        return itemgetter(0)(row) if row else None

    async def _count(self, name: str, *bindings: int) -> int:
        return len(await self._session.all(name, *bindings))
