"""One write transaction's connection, and the rows that it holds."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import asyncpg

from muster.model.errors import Contended
from muster.model.numbers import first_id
from muster.model.rows import LaneKey, Plan
from muster.model.task import Attempt, Task
from muster.model.views import JobText
from muster.ports.locks import GRANTS, STORE_WIDE, Ahead, Locks
from muster.stores.postgres.adding import NewRows
from muster.stores.postgres.ahead import AnswersAhead, Question
from muster.stores.postgres.changes import HeldRows, HeldTable, Row
from muster.stores.postgres.known import IDS_KEPT_MS, IDS_TAKEN, StoreKnown
from muster.stores.postgres.statements import for_one, load
from muster.stores.postgres.together import Together, Write
from muster.stores.rows import task_of

SQL = for_one(load("engine.sql", "store.sql", "clock.sql"))
TASKS = HeldTable("tasks", Task, 1)
ATTEMPTS = HeldTable("attempts", Attempt, 2)
"""Whoever holds the task holds its attempts."""
_TOGETHER = Together()
_PLAN_NAME = Plan.__struct_fields__.index("name")
_TASK_COLUMNS = len(Task.__struct_fields__) + 1
"""With its version."""
_NOT_BEGUN = (None, None, None, None)
"""What a JobText has of earlier attempts, where there was none."""
_EDGES = frozenset({"insert_dependency", "drop_dependencies"})
"""Statements after which other tasks may wait."""
_LAST_WORDS = "take_known_room($1, $2, $3), mark_commit($4, $5, $6, $7, $8)"
_SIGN = 1 << 31
STORES_OWN = 0
"""Stands for the workspace of what is the store's own."""


class StoreAtBegin(NamedTuple):
    """What the database says of itself to a transaction that begins: see stores.postgres.marks."""

    halted: str | None
    """Why nothing may be written."""
    life: int
    commits: int
    """By this server, and this slot of it."""


class Session:
    def __init__(self, connection: asyncpg.Connection, known: StoreKnown) -> None:
        self.connection = connection
        self._known = known
        self.tasks = HeldRows(TASKS)
        self.attempts = HeldRows(ATTEMPTS)
        self.added: set[int] = set()
        """Numbers of new tasks."""
        self.plan_versions: dict[int, int] = {}
        self.at_ms = 0
        """When this transaction began, or got the last of what it holds, by the database's clock."""
        self.metas: dict[tuple[int, str], str | None] = {}
        """What was read of `meta` since this transaction got the last of what it holds, by workspace and name."""
        self.new_lanes: dict[tuple[int, LaneKey], int] = {}
        """Numbers of those that this transaction has added, by workspace."""
        self._held: set[tuple[int, str]] = set()
        """Names of locks, by workspace."""
        self._shared: set[tuple[int, str]] = set()
        """Those that others may share meanwhile."""
        self._locked: set[int] = set()
        """Tasks that are held since the beginning."""
        self._children_of: dict[int, set[int]] = {}
        """What waits for tasks that are held."""
        self.answers = AnswersAhead(SQL.by_name.__getitem__)
        self.texts: dict[int, JobText] = {}
        """Of tasks that came with them, by number."""
        self.absent: set[tuple[int, str]] = set()
        """Keys that these plans did not have when they were looked up; whoever adds one of them too is told."""
        self._adds = 0
        """So many tasks this transaction is known to add ..."""
        self._few = False
        """... and does nothing else."""
        self._room: dict[tuple[int, int], int] = {}
        """What is left of the room that was taken, by workspace and how many may wait at most."""
        self._told_room: dict[tuple[int, int], int] = {}
        """What is to be taken of it with what is written: see `alone`."""
        self._ids = range(0)
        """Numbers that were taken with it, or kept from another transaction."""
        self.alone = False
        """Nothing was begun: what this adds is written and committed by one statement, unless anything is asked
        besides."""
        self._adding = NewRows(self._write)
        self.wrote = False
        """Something that is to outlive the transaction."""
        self.granted = 0
        """The highest epoch that it has granted."""

    async def begin(self, server: str, slot: int, ahead: Ahead | None) -> StoreAtBegin:
        """With what `ahead` names, which is asked of the database by two statements; GRANTS is held first."""
        begun = ("begun", (server, slot))
        if ahead is None:
            await self.connection.execute(_BEGIN)
            row = await self.first(begun[0], *begun[1])
        else:
            self._adds, self._few = ahead.adds, ahead.only_adds
            kept = self._known.kept_ids(ahead.adds, _now_s()) if ahead.only_adds and not ahead.locks else None
            if kept is not None:
                self.alone, self._ids = True, kept
            else:
                await self.connection.execute("; ".join([_BEGIN, *self._holding(ahead)]))
            (row,) = await self._look_ahead(begun, ahead)
        self.at_ms = row[0]
        return StoreAtBegin(*row[1:])

    async def _begin_after_all(self) -> None:
        self.alone = False
        await self.connection.execute(_BEGIN)
        for (workspace_id, most), count in self._told_room.items():
            await self.connection.execute(SQL.by_name["take_known_room"], workspace_id, count, most)

    def whole(self, said: Sequence[Any]) -> tuple[str, list[Any]]:
        """All that this does, as one statement with its bindings; `said`: those of `mark_commit`."""
        writes = self._adding.taken()
        (((workspace_id, most), count),) = self._told_room.items()
        bound = [*chain.from_iterable(write.bound for write in writes), workspace_id, count, most, *said]
        return _TOGETHER.ending(writes, _LAST_WORDS), bound

    def _holding(self, ahead: Ahead) -> Iterator[str]:
        """Statements without bindings: there are none but numbers."""
        workspace_id, wanted = ahead.workspace_id, ahead.locks
        for name, shared, whose in self._new_names(workspace_id, wanted):
            how = "_shared" if shared else ""
            yield "SELECT pg_advisory_xact_lock{}({}, {})".format(how, *lock_key(whose, name))
            (self._shared if shared else self._held).add((whose, name))
        if wanted.tasks:
            tasks, ending = (",".join(f"{i:d}" for i in sorted(ids)) for ids in (wanted.tasks, wanted.ending))
            yield f"SELECT hold_tasks('{{{tasks}}}', '{{{ending}}}', {workspace_id:d})"

    async def _look_ahead(self, begun: Question, ahead: Ahead) -> list[Any]:
        own, wanted = ahead.workspace_id, ahead.locks
        questions = [begun, *((name, (own,)) for name in ("webhooks", "agents"))]
        if ahead.plans:
            questions += [("plans_named", (list(ahead.plans), own))]
            questions += [("keys_of_plans", (list(ahead.plans), list(ahead.keys), own))]
        if wanted.tasks:
            ids, ending = list(wanted.tasks), list(wanted.ending)
            questions += [("plans_of", (ids, own)), ("held_versions", (ids, ending, own))]
            questions += [("held_children", (ending,))] if ending else []
        metas = [(workspace_id, self._known.names(workspace_id)) for workspace_id in (STORES_OWN, own)]
        questions += [("metas", named) for named in metas if named[1]]
        found = await self._read(questions)
        for question, rows in zip(questions[1:], found[1:], strict=True):
            self._keep_ahead(question, rows, ahead)
        return found[0]

    def _keep_ahead(self, question: Question, rows: list[Any], ahead: Ahead) -> None:
        name, bindings = question
        match name:
            case "metas":
                workspace_id, names = bindings
                values = dict(rows)
                self.metas |= {(workspace_id, one): values.get(one) for one in names}
            case "plans_of":
                for row in rows:
                    self.answers.keep(("plan", (row[0], ahead.workspace_id)), [row])
            case "plans_named":
                by_name = {row[_PLAN_NAME]: row for row in rows}
                for one in ahead.plans:
                    found = [by_name[one]] if one in by_name else []
                    self.answers.keep(("plan_by_name", (one, ahead.workspace_id)), found)
                self.absent |= {(row[0], key) for row in rows for key in ahead.keys}
            case "keys_of_plans":
                self.absent.difference_update(map(tuple, rows))
            case "held_versions":
                self._locked.update(row[0] for row in rows)
                for task_id, version, attempts_version in rows:
                    if (task := self._known.task(task_id, version)) is not None:
                        self.tasks.keep(task, version)
                        attempt = self._known.attempt(task_id, task.epoch, attempts_version)
                        if attempt is not None:
                            self.attempts.keep(attempt, attempts_version)
            case "held_children":
                self._note_children(ahead.locks.ending, rows)
            case _:
                self.answers.keep(question, rows)

    async def _read(self, questions: Sequence[Question]) -> list[list[Any]]:
        sql = self.answers.statement(questions)
        bindings = chain.from_iterable(bound for _, bound in questions)
        return list(await self.connection.fetchrow(sql, *bindings))

    async def read_ahead(self, questions: Sequence[Question]) -> None:
        """By one statement, what will be asked one by one."""
        await self.settle()
        for question, rows in zip(questions, await self._read(questions), strict=True):
            self.answers.keep(question, rows)

    def held_since(self, at_ms: int) -> None:
        self.at_ms = max(self.at_ms, at_ms)  # the database's clock may be set back

    async def all(self, name: str, *bindings: Any) -> list[Any]:
        if (known := self.answers.of(name, bindings)) is not None:
            return known
        await self.settle()
        found: list[Any] = await self.connection.fetch(self._sql(name), *bindings)
        return found

    async def first(self, name: str, *bindings: Any) -> Any:
        await self.settle()
        return await self.connection.fetchrow(self._sql(name), *bindings)

    async def value(self, name: str, *bindings: Any) -> Any:
        await self.settle()
        return await self.connection.fetchval(self._sql(name), *bindings)

    async def many(self, name: str, rows: Collection[tuple[Any, ...]]) -> None:
        if rows:
            await self.settle()
            await self.connection.executemany(self._sql(name), rows)

    async def add(self, *rows: Sequence[Row]) -> None:
        """New tasks, their edges, and events: they are written before anything else is asked."""
        self.wrote = True
        self.answers.forget_lanes()
        if rows[1]:
            self._children_of.clear()
        await self._adding.add(*rows)

    def note_added(self, task: Task, key: str | None) -> None:
        self.tasks.keep(task, 1)
        self.added.add(task.id)
        self.absent.discard((task.plan_id or 0, key or ""))

    async def settle(self) -> None:
        if self.alone:
            await self._begin_after_all()
        await self._adding.settle()

    async def finish(self) -> None:
        """All is written when this returns, but for the commit; where `alone`, all of it is left to that."""
        if not self.alone or (self.wrote and not self._told_room):
            await self.settle()

    async def give_up(self) -> None:
        await self._adding.give_up()

    async def write(self, writes: Sequence[Write]) -> None:
        """Raises Contended where a row is not what it was when it was read."""
        if writes:
            await self.settle()
            self.wrote = True
            self.answers.forget()
            self._children_of.clear()
            await self._write(writes)

    async def _write(self, writes: Sequence[Write]) -> None:
        wanted = [write.held for write in writes if write.held is not None]
        sql = _TOGETHER.of(writes) if len(writes) > 1 else None
        if sql:
            row = await self.connection.fetchrow(sql, *chain.from_iterable(write.bound for write in writes))
            written = list(row)
        else:
            done = [(write, await self.connection.execute(write.sql, *write.bound)) for write in writes]
            written = [int(told.rpartition(" ")[2]) for write, told in done if write.held is not None]
        if any(count < held for count, held in zip(written, wanted, strict=True)):
            raise Contended("what was read was changed meanwhile; nothing was written", "try again")

    def _sql(self, name: str) -> str:
        if name in SQL.writing:
            self.wrote = True
            if name != "take_room":
                self.answers.forget()
            self.texts.clear()
            if name in _EDGES:
                self._children_of.clear()
        return SQL.by_name[name]

    async def take_room(self, workspace_id: int, count: int, most: int) -> bool:
        """For what this transaction is known to add, where there is as much, and with its numbers."""
        room = (workspace_id, most)
        if self.alone:
            self._told_room[room] = self._told_room.get(room, 0) + count
            return True
        if self._room.get(room, -1) < count:
            for wanted in dict.fromkeys((max(count, self._adds), count)):
                more = IDS_TAKEN if self._few else 0
                bound = (workspace_id, wanted, most, first_id(self.at_ms), wanted + more)
                row = await self.first("take_room", *bound)
                if row is not None:
                    self._room[room] = wanted
                    ids = range(row[0], row[0] + wanted + more)
                    self._ids = ids[:wanted]
                    self._known.keep_ids(ids[wanted:], _now_s())
                    break
            else:
                return False
        self._room[room] -= count
        return True

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        if not count:
            return []
        if count <= len(self._ids) and self._ids[0] >= first_id(wall_ms - IDS_KEPT_MS):
            taken, self._ids = self._ids[:count], self._ids[count:]
            return list(taken)
        self._ids = range(0)
        first = await self.value("take_ids", count, first_id(wall_ms))
        return list(range(first, first + count))

    async def lock(self, workspace_id: int, wanted: Locks) -> bool:
        """The names, each in the order of all; whether there was one that was not held already."""
        new = self._new_names(workspace_id, wanted)
        for name, shared, whose in new:
            statement = "lock_shared" if shared else "lock"
            _, at_ms = await self.first(statement, *lock_key(whose, name))
            self.held_since(at_ms)
            (self._shared if shared else self._held).add((whose, name))
        if new:
            self._waited()
        return bool(new)

    def _new_names(self, workspace_id: int, wanted: Locks) -> list[tuple[str, bool, int]]:
        """Those that are not held, in the order of all, the store's own first.  Each comes with whether it is
        to be shared, and whose it is."""
        names = {(name, False, _whose(workspace_id, name)) for name in wanted.names}
        names |= {(name, True, _whose(workspace_id, name)) for name in wanted.shared - wanted.names}
        return sorted((one for one in names if not self._holds(*one)), key=_place_in_order)

    def _holds(self, name: str, shared: bool, whose: int) -> bool:
        return (whose, name) in self._held or (shared and (whose, name) in self._shared)

    def _waited(self) -> None:
        """What was read before may have changed meanwhile."""
        self.metas.clear()
        self.absent.clear()
        self.answers.forget()

    async def hold_tasks(self, workspace_id: int, wanted: Locks) -> bool:
        """The tasks, and what waits for those that may end, in the order of their numbers."""
        ids = set(wanted.tasks)
        children = await self._children(wanted)
        missing = [i for i in ids | children if self.tasks.get(i) is None]
        if self._locked.issuperset(missing):
            if missing:
                await self._load(missing, workspace_id)
            return False
        self._waited()
        await self.load_tasks(missing, workspace_id)
        # Whoever held a parent until now may have been given one more child.
        if later := [i for i in await self._children(wanted) - children if self.tasks.get(i) is None]:
            await self.load_tasks(later, workspace_id)
        return True

    async def load_tasks(self, ids: list[int], workspace_id: int) -> None:
        """Holds them in the order of their numbers: from then on they are as they are kept here."""
        if self._known.most(ids):
            ids = await self._hold_known(ids, workspace_id)
        await self._load(ids, workspace_id)

    async def _load(self, ids: list[int], workspace_id: int) -> None:
        for row in await self.all("tasks", ids, workspace_id) if ids else ():
            self.keep(row)

    async def _hold_known(self, ids: list[int], workspace_id: int) -> list[int]:
        """Holds them; returns those that are others by now than this server knows them."""
        changed = []
        for task_id, version, held_at_ms in await self.all("task_versions", ids, workspace_id):
            self.held_since(held_at_ms)
            task = self._known.task(task_id, version)
            if task is None:
                changed.append(task_id)
            else:
                self.tasks.keep(task, version)
        return changed

    def keep(self, row: Any) -> Task:
        *columns, version, held_at_ms = row
        self.held_since(held_at_ms)
        return self.tasks.keep(task_of(columns), version)

    def keep_ready(self, row: Any) -> Task:
        *columns, held_at_ms = row
        texts = columns[_TASK_COLUMNS:]
        task = self.keep((*columns[:_TASK_COLUMNS], held_at_ms))
        if texts[0] is not None:
            text: Row = (task.id, *texts, *_NOT_BEGUN)
            self.texts[task.id] = JobText(*text)
        return task

    async def _children(self, wanted: Locks) -> set[int]:
        if not wanted.ending:
            return set()
        if all(parent_id in self._children_of for parent_id in wanted.ending):
            return set().union(*(self._children_of[parent_id] for parent_id in wanted.ending))
        return {row[0] for row in await self.all("waiting_children", list(wanted.ending))}

    def _note_children(self, parents: Collection[int], edges: Iterable[tuple[int, int]]) -> None:
        """Of parents that are held, so that nobody else gives them one more."""
        self._children_of |= {parent_id: set() for parent_id in parents}
        for parent_id, child_id in edges:
            self._children_of[parent_id].add(child_id)

    def childless(self, parents: Collection[int]) -> bool:
        """Whether nothing waits for these, as far as that is known."""
        return all(self._children_of.get(parent_id) == set() for parent_id in parents)


def _place_in_order(one: tuple[str, bool, int]) -> tuple[bool, tuple[str, bool, int]]:
    return one[2] != STORES_OWN, one


def _whose(workspace_id: int, name: str) -> int:
    return STORES_OWN if name in STORE_WIDE else workspace_id


def lock_key(workspace_id: int, name: str) -> tuple[int, int]:
    """Two names of one number only wait for each other."""
    return zlib.crc32(name.encode()) - _SIGN, workspace_id % _SIGN


_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared({}, {})".format(
    *lock_key(STORES_OWN, GRANTS)
)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
