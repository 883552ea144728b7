"""Queries on the last committed state: rows in, structs out, whatever the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import Any

import msgspec

from muster.model.access import Member, Token
from muster.model.agents import AgentBeat
from muster.model.edits import Namesake
from muster.model.items import Effort
from muster.model.numbers import NUMBER_MAX
from muster.model.outlines import TaskOutline
from muster.model.place import Neighbour, PlanPlace
from muster.model.plan_sync import SyncState
from muster.model.rows import Plan, WorkerRow, Workspace
from muster.model.seals import Numbered, Seal
from muster.model.states import (
    PauseReason,
    TaskStatus,
)
from muster.model.task import Artifact, Attempt, Checkpoint
from muster.model.usage import usage_of
from muster.model.views import (
    AttemptView,
    EventView,
    LogChunk,
    PlanView,
    TaskFilter,
    TaskTexts,
    TaskView,
)
from muster.model.webhooks import HookMessage
from muster.ports.found_rows import EventSpan, Hold
from muster.stores.letters import forms_of
from muster.stores.queries import StoredQueries, namesake_of, seal_of, sync_state_of
from muster.stores.rows import (
    attempt_of,
    beat_of,
    encode_json,
    event_of,
    event_view_of,
    hook_message_of,
    member_of,
    outline_of,
    plan_of,
    task_view_of,
    token_of,
    told_attempt_of,
    worker_of,
)


def _json_or_none(values: Collection[object]) -> str | None:
    return msgspec.json.encode(list(values)).decode() if values else None


def _chunks(rows: list[Any]) -> list[tuple[int, LogChunk]]:
    return [
        (place, LogChunk(stream=stream, offset=offset, at_ms=at_ms, data=data))
        for place, stream, offset, at_ms, data in rows
    ]


class StoredReads(StoredQueries):
    """As ports.store.Reads, but for what each store has its own way of."""

    async def open_attempts(self, after: tuple[int, int], limit: int) -> list[Attempt]:
        return [attempt_of(row) for row in await self._all("open_attempts", *after, limit)]

    async def lingering(self, limit: int) -> list[Attempt]:
        return [attempt_of(row) for row in await self._all("lingering", limit)]

    async def worker(self, worker_id: str) -> WorkerRow | None:
        return await self._one(worker_of, "worker", worker_id)

    async def due(self, wall_ms: int, limit: int) -> list[int]:
        return [row[0] for row in await self._all("due", wall_ms, limit)]

    async def expired(self, wall_ms: int, limit: int) -> list[int]:
        return [row[0] for row in await self._all("expired", wall_ms, limit)]

    async def stale_pins(self, wall_ms: int, limit: int) -> list[int]:
        return [row[0] for row in await self._all("stale_pins", wall_ms, limit)]

    async def overdue(self, wall_ms: int, limit: int) -> list[int]:
        return [row[0] for row in await self._all("overdue", wall_ms, limit)]

    async def any_ready(self) -> bool:
        return bool(await self._value("any_ready"))

    async def next_ready(self, limit: int) -> list[int]:
        return [row[0] for row in await self._all("next_ready", limit)]

    async def attempt(self, task_id: int, epoch: int) -> Attempt | None:
        return await self._one(attempt_of, "attempt", task_id, epoch)

    async def plans(self) -> list[PlanView]:
        return _plan_views(await self._all("plans"))

    async def plan_view(self, name: str) -> PlanView | None:
        return next(iter(_plan_views(await self._all("plan_view", name))), None)

    async def paused_plans(self) -> list[PlanView]:
        return _plan_views(await self._all("paused_plans"))

    async def outlines(self, plan_id: int, after_id: int, limit: int) -> list[TaskOutline]:
        return [outline_of(row) for row in await self._all("outlines", plan_id, after_id, limit)]

    async def happened_since(self, plan_id: int, event_id: int) -> bool:
        return bool(await self._value("happened_since", plan_id, event_id))

    async def plan_sources(self) -> list[Plan]:
        return [plan_of(row) for row in await self._all("plan_sources")]

    async def boxes_named(self, plan_ids: Collection[int], names: Collection[str]) -> list[Namesake]:
        rows = await self._all("boxes_named", encode_json([*plan_ids]), encode_json([*names]))
        return [namesake_of(row) for row in rows]

    async def completions(self, plan_id: int, after_event_id: int) -> list[tuple[int, str, bool]]:
        return [
            (event, key, bool(done))
            for event, key, done in await self._all("completions", plan_id, after_event_id)
        ]

    async def completed_since(self, event_id: int) -> list[tuple[int, int, str, bool]]:
        return [
            (event, plan, key, bool(done))
            for event, plan, key, done in await self._all("completed_since", event_id)
        ]

    async def sync_states(self) -> list[tuple[str, SyncState]]:
        return [(name, sync_state_of(state)) for name, state in await self._all("sync_states")]

    async def last_event_id(self) -> int:
        return int(await self._value("last_event_id"))

    async def event_counts(self, after_id: int, to_id: int) -> list[tuple[str, str | None, int]]:
        return [
            (event, failed_as, count)
            for event, failed_as, count in await self._all("event_counts", after_id, to_id)
        ]

    async def calling(self, status: TaskStatus, plan_id: int | None, limit: int) -> list[int]:
        return [row[0] for row in await self._all("calling", status, plan_id, limit)]

    async def stranded(self, plan_id: int | None, limit: int) -> list[int]:
        return [row[0] for row in await self._all("stranded", plan_id, limit)]

    async def lane_tops(self, plan_id: int | None, limit: int) -> dict[int, int]:
        return {task_id: lane_id for lane_id, task_id in await self._all("lane_tops", plan_id, limit)}

    async def ready_of_lanes(self, lane_ids: Collection[int], limit: int) -> list[int]:
        return [row[0] for row in await self._all("ready_of_lanes", encode_json([*lane_ids]), limit)]

    @staticmethod
    def pattern(text: str) -> str:
        """Of whatever contains it, in this store's language."""
        raise NotImplementedError

    async def task_views(self, selection: TaskFilter) -> list[TaskView]:
        return await self.views_to(NUMBER_MAX, selection)

    async def views_to(self, last_id: int, selection: TaskFilter) -> list[TaskView]:
        """Those with this number at most."""
        if "\0" in selection.text:
            return []  # no text that is kept has one, and no store can be asked for it
        patterns = [self.pattern(form) for form in forms_of(selection.text)] if selection.text else []
        one, other, *_ = [*patterns, None, None]
        rows = await self._all(
            "task_views_by_id" if selection.ids else "task_views",
            selection.after_id,
            selection.plan,
            _json_or_none(selection.statuses),
            _json_or_none(selection.ids),
            _json_or_none(selection.tags),
            msgspec.json.encode(selection.metadata).decode() if selection.metadata else None,
            selection.parent_task_id,
            selection.limit,
            selection.groups,
            selection.priority_min,
            selection.priority_max,
            selection.delayed,
            one,
            other,
            last_id,
        )
        return [task_view_of(row) for row in rows]

    async def place(self, task_id: int) -> PlanPlace:
        return await self._one(_place_of, "place", task_id) or PlanPlace()

    async def efforts(self, plan_id: int, wall_ms: int) -> list[Effort]:
        rows = await self._all("efforts", plan_id, wall_ms)
        return [Effort(task_id, max(0, work_ms), usage_of(usage)) for task_id, work_ms, usage in rows]

    async def refused(self, limit: int) -> list[int]:
        return [row[0] for row in await self._all("refused", limit)]

    async def find_number(self, number: int, plan: str | None) -> list[int]:
        return [row[0] for row in await self._all("find_number", number, plan)]

    async def find_key(self, key: str, plan: str | None, *, start: bool) -> list[int]:
        return [row[0] for row in await self._all("find_start" if start else "find_key", plan, key)]

    async def newest_task(self, *, failed: bool) -> int | None:
        return await self._one(itemgetter(0), "newest_failed_task" if failed else "newest_task")

    async def attempts(self, task_id: int) -> list[AttemptView]:
        return [told_attempt_of(row) for row in await self._all("attempts", task_id)]

    async def task_costs(self, task_ids: Collection[int]) -> dict[int, int]:
        return dict(await self._all("task_costs", encode_json([*task_ids])))

    async def events(self, *, after_id: int, task_id: int | None, limit: int) -> list[EventView]:
        return [event_view_of(row) for row in await self._all("events", after_id, task_id, limit)]

    async def audit_events(
        self,
        *,
        task_id: int | None,
        levels: Collection[str],
        since_ms: int,
        limit: int,
        subjects: Collection[str] = (),
    ) -> list[EventView]:
        wanted = _json_or_none(levels)
        if task_id is not None:
            rows = await self._all("audit_events_of_task", task_id, wanted, since_ms, limit)
        elif subjects:
            rows = await self._all("audit_events_about", wanted, since_ms, limit, encode_json([*subjects]))
        else:
            rows = await self._all("audit_events", wanted, since_ms, limit)
        return [event_view_of(row) for row in reversed(rows)]

    async def seals(self, after_id: int, limit: int) -> list[Seal]:
        return [Seal(*row) for row in await self._all("seals", after_id, limit)]

    async def numbered_events(self, after_id: int, to_id: int | None, limit: int) -> list[Numbered]:
        rows = await self._all("numbered_events", after_id, NUMBER_MAX if to_id is None else to_id, limit)
        return [Numbered(row[0], event_of(row[1:])) for row in rows]

    async def tail(self, after_id: int) -> tuple[int, int]:
        there, missing = await self._first("tail", after_id)
        return there, there + missing

    async def oldest_kept_seal(self) -> Seal | None:
        return await self._one(seal_of, "oldest_kept_seal")

    async def anything_old(self, logs_before_ms: int, keys_before_ms: int, beats_before_ms: int) -> bool:
        return bool(await self._value("anything_old", logs_before_ms, keys_before_ms, beats_before_ms))

    async def suspects(self, after_id: int, limit: int) -> tuple[int | None, list[int]]:
        return _page(await self._all("suspects", after_id, limit), limit)

    async def old_done(self, after_id: int, limit: int, before_ms: int) -> tuple[int | None, list[int]]:
        return _page(await self._all("old_done", after_id, limit, before_ms), limit)

    async def event_spans(self, after_task_id: int, limit: int) -> list[EventSpan]:
        return [EventSpan(*row) for row in await self._all("event_spans", after_task_id, limit)]

    async def last_events(self, task_id: int, limit: int) -> list[EventView]:
        rows = await self._all("last_events", task_id, limit)
        return [event_view_of(row) for row in reversed(rows)]

    async def log(self, task_id: int, epoch: int, *, after: int, limit: int) -> list[tuple[int, LogChunk]]:
        return _chunks(await self._all("log", task_id, epoch, after, limit))

    async def log_tail(self, task_id: int, epoch: int, *, limit: int) -> list[tuple[int, LogChunk]]:
        return _chunks(await self._all("log_tail", task_id, epoch, limit))

    async def log_part(
        self, task_id: int, epoch: int, stream: str, begin: int, end: int
    ) -> list[tuple[int, LogChunk]]:
        return _chunks(await self._all("log_part", task_id, epoch, stream, begin, end))

    async def log_end(self, task_id: int, epoch: int) -> int:
        return int(await self._value("log_end", task_id, epoch))

    async def holds(self) -> list[Hold]:
        return [Hold(*row) for row in await self._all("holds")]

    async def last_worker(self) -> WorkerRow | None:
        return await self._one(worker_of, "last_worker")

    async def last_to_offer(self, agent: str) -> WorkerRow | None:
        return await self._one(worker_of, "last_to_offer", encode_json(agent))

    async def every_meta(self, name: str) -> list[tuple[int, str]]:
        return [(workspace_id, value) for workspace_id, value in await self._all("every_meta", name)]

    async def token(self, token_hash: str) -> tuple[Token, Member | None] | None:
        token = await self._one(token_of, "token_of_hash", token_hash)
        if token is None:
            return None
        return token, await self._one(member_of, "member_of", token.workspace_id, token.member)

    async def due_messages(self, webhook_id: int, wall_ms: int, limit: int) -> list[HookMessage]:
        return [hook_message_of(row) for row in await self._all("due_messages", webhook_id, wall_ms, limit)]

    async def waiting_messages(self, webhook_id: int, limit: int) -> list[HookMessage]:
        return [hook_message_of(row) for row in await self._all("waiting_messages", webhook_id, limit)]

    async def messages(self, webhook_id: int, limit: int) -> list[HookMessage]:
        return [hook_message_of(row) for row in await self._all("messages", webhook_id, limit)]

    async def agent_of_token(self, token_hash: str) -> tuple[int, str] | None:
        row = await self._first("agent_of_token", token_hash)
        return (row[0], row[1]) if row else None

    async def tasks_of_agent(self, agent: str, limit: int) -> list[int]:
        return [row[0] for row in await self._all("tasks_of_agent", agent, limit)]

    async def beats(self, agent: str, limit: int) -> list[AgentBeat]:
        return [beat_of(row) for row in await self._all("beats", agent, limit)]

    async def workspace_of(self, task_id: int) -> int | None:
        return await self._one(itemgetter(0), "workspace_of_task", task_id)

    async def workspaces(self) -> list[Workspace]:
        return [Workspace(*row) for row in await self._all("workspaces")]

    async def checkpoint(self, task_id: int) -> Checkpoint | None:
        row = await self._first("checkpoint", task_id)
        return Checkpoint(*row) if row else None

    async def artifacts(self, task_id: int) -> list[Artifact]:
        return [Artifact(*row) for row in await self._all("artifacts", task_id)]

    async def texts(self, task_id: int) -> TaskTexts:
        return await self._one(_texts_of, "texts", task_id) or TaskTexts()

    async def blocks(self, task_id: int) -> list[str]:
        return [row[0] for row in await self._all("blocks", task_id)]


def _texts_of(row: Any) -> TaskTexts:
    result, summary, given, created_by = row
    return TaskTexts(result, summary, msgspec.json.decode(given), created_by)


def _place_of(row: Any) -> PlanPlace:
    plan, file, epic, feature, parent, *around = row
    before, after = (
        Neighbour(title=title, status=TaskStatus(status)) if title is not None else None
        for title, status in (around[:2], around[2:])
    )
    return PlanPlace(
        plan=plan, file=file, epic=epic, feature=feature, parent=parent, before=before, after=after
    )


def _plan_views(rows: Iterable[Any]) -> list[PlanView]:
    """A row for each status of each plan."""
    found: dict[int, PlanView] = {}
    for plan_id, name, source, paused, failures, order, status, count in rows:
        view = found.get(plan_id)
        if view is None:
            reason = PauseReason(paused) if paused else None
            view = found[plan_id] = PlanView(
                id=plan_id,
                name=name,
                source=source,
                counts={},
                paused=reason,
                failures=failures,
                order=order,
            )
        if status is not None:
            view.counts[status] = count
    return list(found.values())


def _page(rows: list[Any], limit: int) -> tuple[int | None, list[int]]:
    """(where the next page begins, None at the end; ids of the marked rows)."""
    return rows[-1][0] if len(rows) == limit else None, [row_id for row_id, marked in rows if marked]
