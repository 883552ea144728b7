"""One write transaction: what concerns no workspace alone, and what it counts."""

from __future__ import annotations

from collections.abc import Collection

import apsw

from muster.model.retry import OWN_CAP_FACTOR
from muster.model.rows import Workspace
from muster.model.task import Now
from muster.ports.locks import Locks
from muster.stores.sqlite.known_rows import SQL, KnownRows
from muster.stores.sqlite.statements import load_sql
from muster.stores.sqlite.tx import SqliteTx
from muster.stores.sqlite.witness import Made, made_by

CLOCK_SQL = load_sql("clock.sql")


class SqliteTransaction:
    """Lives between BEGIN and COMMIT on the store's one writing connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._known = KnownRows(connection)
        self._parts: dict[int, SqliteTx] = {}
        self._as_of: int | None = None
        self._changes = 0
        self.made = made_by(connection)
        """With the last commit."""

    def begin(self) -> None:
        """Forgets the rows that are known where anything else has written to the file since."""
        if self._as_of != self._db.data_version():
            self.forget()
            self.made = max(self.made, made_by(self._db), key=lambda made: made.commits)
        self._changes = self._db.total_changes()
        self._known.granted = self.made.epoch

    def count(self) -> Made:
        """Counts this commit where it changes anything."""
        if self._changes == self._db.total_changes():
            return self.made
        made = self.made._replace(commits=self.made.commits + 1, epoch=self._known.granted)
        self._db.execute(SQL["count_commit"], made[1:3])
        return made

    def committed(self, made: Made) -> None:
        self.made = made
        self._as_of = self._db.data_version()

    def forget(self) -> None:
        """After a roll-back the store holds what it held before."""
        self._known.forget()

    def of(self, workspace_id: int) -> SqliteTx:
        part = self._parts.get(workspace_id)
        if part is None:
            part = self._parts[workspace_id] = SqliteTx(self._known, workspace_id)
        return part

    def now(self, here: Now) -> Now:
        return here  # whoever writes is on this host

    async def lock(self, wanted: Locks) -> bool:  # noqa: ARG002
        return False

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        return self._known.take_ids(count, wall_ms)

    async def workspaces(self) -> list[int]:
        return [row[0] for row in self._db.execute(SQL["workspace_ids"])]

    async def workspace_named(self, name: str) -> int | None:
        row: tuple[int] | None = self._db.execute(SQL["workspace_named"], (name,)).fetchone()
        return row[0] if row else None

    async def add_workspace(self, workspace: Workspace) -> None:
        self._db.execute(SQL["insert_workspace"], (workspace.id, workspace.name, workspace.created_at_ms))
        for name in ("index_tasks", "index_events"):
            self._db.execute(SQL[name])

    async def store_meta(self, name: str) -> str | None:
        return self._known.meta(0, name)

    async def store_metas(self, names: Collection[str]) -> dict[str, str]:
        found = ((name, self._known.meta(0, name)) for name in names)
        return {name: value for name, value in found if value is not None}

    async def set_store_meta(self, name: str, value: str) -> None:
        self._known.set_meta(0, name, value)

    async def workspace_of_tasks(self, ids: Collection[int]) -> dict[int, int]:
        return {task.id: task.workspace_id for task in self._known.tasks_of(ids)}

    async def workspace_of_plan(self, plan_id: int) -> int | None:
        plan = self._known.plan(plan_id)
        return plan.workspace_id if plan else None

    async def workspace_of_worker(self, worker_id: str) -> int | None:
        worker = self._known.worker(worker_id)
        return worker.workspace_id if worker else None

    async def prune_logs(self, before_ms: int, limit: int) -> int:
        return self._count("prune_logs", before_ms, limit)

    async def prune_checkpoints(self, before_ms: int, limit: int) -> int:
        return self._count("prune_checkpoints", before_ms, limit)

    async def prune_idempotency(self, before_ms: int, limit: int) -> int:
        return self._count("prune_idempotency", before_ms, limit)

    async def prune_messages(self, before_ms: int, limit: int) -> int:
        return self._count("prune_messages", before_ms, limit)

    async def prune_beats(self, before_ms: int, limit: int) -> int:
        return self._count("prune_beats", before_ms, limit)

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        return self._count("prune_sessions", before_ms, limit)

    async def shift_waits(self, by_ms: int) -> None:
        self._known.tasks.forget()
        for name in ("shift_retries", "shift_aims"):
            self._db.execute(CLOCK_SQL[name], (by_ms,))
        self._db.execute(SQL["shift_messages"], (by_ms,))

    async def bound_retries(self, wall_ms: int, longest_ms: int) -> None:
        self._known.tasks.forget()
        self._db.execute(CLOCK_SQL["bound_retries"], (wall_ms, longest_ms, OWN_CAP_FACTOR))

    async def bound_messages(self, latest_ms: int) -> None:
        self._db.execute(SQL["bound_messages"], (latest_ms,))

    def _count(self, name: str, *bindings: int) -> int:
        return len(self._db.execute(SQL[name], bindings).fetchall())
