"""The rows that the SQLite store remembers are the rows that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace
from store_rows import NOW, PLAN_ID, Subject, make_attempt, make_task, new_task, writes

from muster.model.states import (
    AttemptStatus,
    ErrorKind,
    FailedDependency,
    PauseReason,
    StopAction,
    TaskStatus,
)
from muster.ports.store import Tx
from muster.stores.sqlite.history import read_history
from muster.stores.sqlite.row_cache import KINDS_MAX, KNOWN_MAX
from muster.stores.sqlite.store import SqliteStore

OTHER_TASK: dict[str, Any] = {
    "status": TaskStatus.PAUSED,
    "error_kind": ErrorKind.CRASH,
    "paused_reason": PauseReason.USER,
    "on_failed": FailedDependency.RUN,
    "priority": 9,
    "percent": 50,
}
OTHER_ATTEMPT: dict[str, Any] = {
    "status": AttemptStatus.RUNNING,
    "stop_action": StopAction.RELEASE,
    "error_kind": ErrorKind.CRASH,
    "declared_kind": ErrorKind.CRASH,
    "tree_killed": True,
    "ended_at_ms": None,
}


class Site(Subject):
    path: Path


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Site]:
    path = tmp_path / "muster.db"
    store = SqliteStore.open(path)
    with asyncio.Runner() as runner:
        made = Site(
            store, runner, sql=lambda sql: store._writer.execute(sql).fetchall(), integrity_error=Exception
        )
        made.path = path
        yield made
        store.close()


def _other(row: Any, name: str, known: dict[str, Any]) -> Any:
    """Another value for this field that the schema allows."""
    if name in known:
        return known[name]
    value = getattr(row, name)
    if isinstance(value, bool):
        return not value
    return f"{value or ''}x" if isinstance(value, str) or name in _TEXTS else (value or 0) + 7


_TEXTS = {"pinned_agent", "limit_key", "session_key", "token_hash", "declared", "usage", "session_usage"}


def test_each_column_that_changes_is_stored(file: Site) -> None:
    task, attempt = make_task(1), make_attempt(1, 1)
    file.add((new_task(1)[0], task))
    file.write(opened=[attempt])
    for name in task.__struct_fields__[3:]:
        task = replace(task, **{name: _other(task, name, OTHER_TASK)})
        file.write(tasks=[task])
        assert read_history(file.path).tasks == [task], name
    for name in attempt.__struct_fields__[2:]:
        attempt = replace(attempt, **{name: _other(attempt, name, OTHER_ATTEMPT)})
        file.write(attempts=[attempt])
        assert read_history(file.path).attempts == [attempt], name
    assert file.task(1) == task
    assert file.tx("attempts", [(1, 1)]) == [attempt]


def test_more_kinds_of_change_than_there_are_statements(file: Site) -> None:
    task = make_task(1)
    file.add((new_task(1)[0], task))
    fields = [
        name for name in task.__struct_fields__ if name.endswith("_ms") and name != "next_attempt_at_ms"
    ]
    for kind in range(1, KINDS_MAX * 2):
        changes = {name: kind for i, name in enumerate(fields) if kind >> i & 1}
        task = replace(task, **changes)
        file.write(tasks=[task])
        assert read_history(file.path).tasks == [task]


def test_what_another_program_has_written_is_seen(file: Site) -> None:
    file.add(new_task(1))
    assert file.task(1).priority == 5
    other = apsw.Connection(str(file.path))
    other.execute("UPDATE tasks SET priority = 8 WHERE id = 1").fetchall()
    other.close()
    assert file.task(1).priority == 8
    file.write(tasks=[replace(file.task(1), percent=3)])
    assert file.sql("SELECT priority, percent FROM tasks") == [(8, 3)]


def test_what_was_rolled_back_is_forgotten(file: Site) -> None:
    task = make_task(1)
    file.add((new_task(1)[0], task))
    assert file.task(1) == task

    async def fails(tx: Tx) -> None:
        await tx.write(writes(tasks=[replace(task, percent=77)], opened=[make_attempt(1, 1)]), NOW)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        file.transact(fails)
    assert file.task(1) == task
    assert file.tx("attempts", [(1, 1)]) == []


def test_a_plan_is_read_as_it_was_written_last(file: Site) -> None:
    file.add_plan()
    plan = file.tx("plan", PLAN_ID)
    file.tx("update_plan", replace(plan, failures=2))
    assert file.tx("plan", PLAN_ID).failures == 2
    file.tx("set_ticked", PLAN_ID, 7)
    assert file.tx("plan", PLAN_ID) == replace(plan, failures=2, ticked_event_id=7)
    assert file.tx("plan", PLAN_ID + 1) is None
    file.add_plan("other", PLAN_ID + 1)
    assert file.tx("plan", PLAN_ID + 1).name == "other"


def test_more_rows_than_are_remembered(file: Site) -> None:
    ids = range(1, KNOWN_MAX + 50)
    file.add_plan("api", PLAN_ID)
    file.add(*(new_task(i) for i in ids))
    assert len(file.tx("tasks", list(ids))) == len(ids)
    changed = [replace(make_task(i), percent=i % 100) for i in ids]
    file.write(tasks=changed)
    assert read_history(file.path).tasks == changed
    assert sorted(file.tx("tasks", list(ids)), key=lambda task: task.id) == changed
