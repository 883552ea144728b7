"""Rows for the store's conformance suite, and a store that is driven without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from dataclasses import replace as replace_field
from typing import Any

from msgspec.structs import replace

from factories import NOW, plain_attempt, plain_task
from muster.model.commands import Offer
from muster.model.events import Event, Level
from muster.model.rows import DEFAULT_WORKSPACE, LaneKey, NewTask, Plan, WorkerRow
from muster.model.states import ATTEMPT_OPEN, FINAL, AttemptStatus, TaskStatus, WorkerStatus
from muster.model.task import Attempt, Task
from muster.ports.store import Store, Transaction, Tx, Writes

PLAN_ID, LANE_ID = 900, 800


@dataclass
class Subject:
    """A store under test.  Another driver brings its own `store`, `sql` and `integrity_error`."""

    store: Store
    runner: asyncio.Runner
    sql: Callable[[str], Any]
    """One statement in the database's own words, past the port, committed at once."""
    integrity_error: type[Exception] | tuple[type[Exception], ...]
    """What is raised where a constraint of the database is broken."""
    drop_trigger: str = "DROP TRIGGER {0}"
    """Of the trigger {0} of the table {1}."""
    concurrent: bool = True
    """Readers need not wait for a writer; SQLite in memory knows no WAL, so there they do."""
    workspace_id: int = DEFAULT_WORKSPACE

    def of(self, workspace_id: int) -> Subject:
        """The same store for another tenant."""
        return replace_field(self, workspace_id=workspace_id)

    def ask(self, question: Awaitable[Any]) -> Any:
        async def asked() -> Any:
            return await question

        return self.runner.run(asked())

    def transact(self, work: Callable[[Tx], Coroutine[Any, Any, Any]]) -> Any:
        return self.ask(self.store.transact(lambda tx: work(tx.of(self.workspace_id))))

    def tx(self, name: str, *args: Any, **named: Any) -> Any:
        """One call on a transaction of its own: on its part for the workspace, if that has it."""

        async def work(tx: Transaction) -> Any:
            part = tx.of(self.workspace_id)
            return await getattr(part if hasattr(part, name) else tx, name)(*args, **named)

        return self.ask(self.store.transact(work))

    def whole(self, name: str, *args: Any) -> Any:
        """One call on a whole transaction."""

        async def work(tx: Transaction) -> Any:
            return await getattr(tx, name)(*args)

        return self.ask(self.store.transact(work))

    def write(self, **rows: Any) -> None:
        self.tx("write", writes(**rows), NOW)

    def read(self, name: str, *args: Any, **named: Any) -> Any:
        return self.ask(getattr(self.store.reads.of(self.workspace_id), name)(*args, **named))

    def task(self, task_id: int) -> Task:
        (found,) = self.tx("tasks", [task_id])
        return found  # type: ignore[no-any-return]

    def add_plan(self, name: str = "api", plan_id: int = PLAN_ID, source: str | None = None) -> None:
        self.tx("add_plan", Plan(plan_id, DEFAULT_WORKSPACE, name, source, NOW.wall_ms, 0))

    def lane(self, agent: str = "claude", **changes: Any) -> int:
        number: int = self.tx("lane_id", lane_key(agent, **changes), NOW.wall_ms)
        return number

    def add(self, *new_tasks: tuple[NewTask, Task]) -> None:
        self.write(new_tasks=list(new_tasks))


def writes(**rows: Any) -> Writes:
    found = Writes.nothing()
    for name, value in rows.items():
        assert name in Writes.__struct_fields__
        setattr(found, name, value)
    return found


def make_task(task_id: int, **changes: Any) -> Task:
    status = changes.get("status", TaskStatus.PENDING)
    plain = {"plan_id": PLAN_ID, "lane_id": LANE_ID, "ended_at_ms": NOW.wall_ms if status in FINAL else None}
    return plain_task(id=task_id, **(plain | changes))


def new_task(
    task_id: int,
    key: str | None = None,
    *,
    after: tuple[tuple[int, bool], ...] = (),
    title: str = "a title",
    agent: str | None = None,
    from_file: bool = False,
    input_sealed: str = "",
    **changes: Any,
) -> tuple[NewTask, Task]:
    text = NewTask(
        task_id=task_id,
        key=key,
        title=title,
        description="a prompt",
        agent=agent,
        capabilities=(),
        profile=None,
        tags=(),
        metadata={},
        parent_task_id=None,
        not_after_ms=None,
        epic="",
        feature="",
        created_by="ada",
        created_at_ms=NOW.wall_ms,
        dependencies=after,
        from_file=from_file,
        input_sealed=input_sealed,
    )
    unmet = sum(not met for _, met in after)
    return text, make_task(task_id, **({"unmet": unmet} | changes))


def make_attempt(task_id: int, epoch: int, **changes: Any) -> Attempt:
    status = changes.get("status", AttemptStatus.RUNNING)
    ended = {} if status in ATTEMPT_OPEN else {"ended_at_ms": NOW.wall_ms}
    return plain_attempt(task_id=task_id, epoch=epoch, **(ended | changes))


def make_event(task_id: int, seq: int, **changes: Any) -> Event:
    event = Event(
        task_id=task_id,
        seq=seq,
        at_ms=NOW.wall_ms,
        level=Level.INFO,
        event="noted",
        message="",
        details="{}",
        previous_status=TaskStatus.PENDING if seq > 1 else None,
        new_status=TaskStatus.PENDING,
        generation=1,
        epoch=0,
        actor="ada",
    )
    return replace(event, **changes)


def make_worker(worker_id: str, **changes: Any) -> WorkerRow:
    worker = WorkerRow(
        id=worker_id,
        workspace_id=DEFAULT_WORKSPACE,
        hostname="here",
        pid=100,
        pid_start=1,
        boot_id=NOW.boot_id,
        slots=2,
        agents=("claude", "codex"),
        general=("codex",),
        offers={"claude": Offer(capabilities=("rust",), profiles=("writer",))},
        unfit={},
        status=WorkerStatus.IDLE,
        registered_at_ms=NOW.wall_ms,
        last_seen_at_ms=NOW.wall_ms,
        heard_mono_ms=NOW.mono_ms,
        ended_at_ms=None,
        permanent=False,
        reason="",
    )
    return replace(worker, **changes)


def lane_key(agent: str = "claude", **changes: Any) -> LaneKey:
    return LaneKey(PLAN_ID, agent, (), "", "")._replace(**changes)
