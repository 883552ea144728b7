"""Single tasks: `/api/v1/agent-tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from muster.engine.queries import Queries
from muster.engine.task_pages import page_of
from muster.model import commands as c
from muster.model.answers import Answer, Enqueued, Moved
from muster.model.edits import EditTask, edit_body, edited
from muster.model.errors import BadInput, NotFound
from muster.model.kinds import NAME_CHARS_MAX, SOUGHT_CHARS_MAX
from muster.model.numbers import PAGE_BYTES
from muster.model.states import FINAL
from muster.model.views import EventView, Inbox, LogChunk, TaskDetail, TaskFilter, TaskView
from muster.ports.runtime import EVENTS
from muster.web.audit import levels_from
from muster.web.backend import Backend
from muster.web.holders import by_itself, holder, one_task, speaking
from muster.web.http import (
    ActorBody,
    Body,
    Query,
    Reply,
    Request,
    WaitSeconds,
    bad_parameter,
    etag,
    if_seen,
    invalid_body,
    json_reply,
    json_text,
)
from muster.web.routes import IF_MATCH, Routes
from muster.web.task_words import in_our_words, wanted_of, with_all_words

S = TypeVar("S", bound=Struct)
routes = Routes()

LOOSE_PLAN = "tasks"
"""Where tasks stand that name no plan."""
LOG_PAGE_CHUNKS = 200

_TASKS = "/api/v1/agent-tasks"
_TASK = f"{_TASKS}/{{task_id:id}}"


class AddBody(c.Spec, frozen=True, kw_only=True):
    actor: c.Name
    plan: c.Name = LOOSE_PLAN


class TaskAdded(Enqueued, frozen=True, kw_only=True):
    id: int
    """Of the task."""


class StatusWanted(StrEnum):
    PAUSED = "PAUSED"
    PENDING = "PENDING"
    CANCELLED = "CANCELLED"


class _Status(ActorBody, frozen=True, kw_only=True):
    status: StatusWanted


class HolderBody(Body, frozen=True, kw_only=True):
    actor: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Who says so; an attempt need not say it, its token does."""


class TaskProgressBody(HolderBody, frozen=True, kw_only=True):
    epoch: c.Id | None = None
    """Of the attempt that says so; None: the newest one."""
    progress_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    current_step: Annotated[str, Meta(max_length=500)] | None = None
    estimated_completion_at_ms: c.Count | None = None
    """Wall time at which it expects to be done."""
    checkpoint_data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    """What the next attempt is to go on from, as JSON."""


class TaskDoneBody(HolderBody, frozen=True, kw_only=True):
    output_result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    summary: c.Text = ""
    epoch: c.Id | None = None
    """Of the attempt that says so; None: the newest one."""


class TasksQuery(Query, frozen=True, kw_only=True):
    plan: str | None = None
    status: tuple[str, ...] = ()
    """Each alone, or some with commas between them."""
    id: tuple[c.Count, ...] = ()
    tags: tuple[str, ...] = ()
    """Tasks that carry all of these."""
    tag: tuple[str, ...] = ()
    """The same."""
    priority: c.Priority | None = None
    priority_min: c.Priority = field(default=1, name="priority>")
    """Written `priority>=8`: at least so much."""
    priority_max: c.Priority = field(default=10, name="priority<")
    """Written `priority<=3`: at most."""
    metadata: tuple[str, ...] = ()
    """`key=value`, each."""
    text: Annotated[str, Meta(max_length=SOUGHT_CHARS_MAX)] = ""
    """Tasks whose title or name (`plan/key`) contains it, in capital letters or not."""
    parent: c.Count | None = None
    groups: bool = False
    """Groups as well, which are no work of their own."""
    after: c.Count = 0
    """Tasks whose ids come after this one."""
    cursor: str = ""
    """Where the last page ended, as its `Link` said; instead of `after`."""
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 500


class InboxQuery(Query, frozen=True, kw_only=True):
    plan: str | None = None


class NextQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 10


class TaskLogsQuery(Query, frozen=True, kw_only=True):
    level: str | None = None
    """This one and worse."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class PrintedQuery(Query, frozen=True, kw_only=True):
    epoch: c.Count = 0
    """Of this attempt; without it of the newest one."""
    after: c.Count = 0
    last: Annotated[int, Meta(ge=0, lt=LOG_PAGE_CHUNKS)] = 0
    """Set: begins with so many chunks of the end instead."""
    wait: WaitSeconds = 0


class LogPage(Struct, frozen=True, kw_only=True, rename="camel"):
    chunks: tuple[LogChunk, ...]
    next: int
    """Read on with `after=next`."""
    done: bool
    """The attempt is over, and nothing more was there to read."""


@routes.get(_TASKS, answer=list[TaskView])
async def tasks(web: Backend, request: Request, query: TasksQuery) -> Reply:
    """Tasks in the order of their ids.  Where there may be more, a `Link` header leads to the next page: after
    `limit` of them, or after 8 MiB.
    """
    found, data = await page_of(web.queries, filter_of(query))
    reply = Reply(200, data)
    if len(found) < query.limit and len(data) < PAGE_BYTES:
        return reply
    return replace(reply, headers=(("link", f'<{next_page(request, found[-1].id)}>; rel="next"'),))


def filter_of(query: TasksQuery) -> TaskFilter:
    """Raises BadInput."""
    statuses, delayed = wanted_of(query.status)
    return TaskFilter(
        plan=query.plan,
        statuses=statuses,
        delayed=delayed,
        ids=query.id,
        tags=(*query.tags, *query.tag),
        metadata=_pairs(query.metadata),
        text=query.text.strip(),
        parent_task_id=query.parent,
        groups=query.groups,
        priority_min=query.priority_min if query.priority is None else query.priority,
        priority_max=query.priority_max if query.priority is None else query.priority,
        after_id=_after(query),
        limit=query.limit,
    )


_CURSOR = "after-"


def _after(query: TasksQuery) -> int:
    """Raises BadInput."""
    if not query.cursor:
        return query.after
    number = query.cursor.removeprefix(_CURSOR)
    if not (query.cursor.startswith(_CURSOR) and number.isascii() and number.isdigit() and len(number) < 17):
        raise bad_parameter(f"cursor={query.cursor[:40]} is no cursor", "cursor", "take it from a `Link`")
    return int(number)


def next_page(request: Request, last: int) -> str:
    """The same question from there on."""
    asked = [
        one for one in parse_qsl(request.query, keep_blank_values=True) if one[0] not in {"after", "cursor"}
    ]
    return f"{request.path}?{urlencode([*asked, ('cursor', f'{_CURSOR}{last}')])}"


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """`key=value`, each.  Raises BadInput."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals) or name in pairs:
            raise BadInput(f"metadata={text} is not KEY=VALUE, each key once", "metadata=customer%3Dacme")
        pairs[name] = value
    return pairs


@routes.get("/api/v1/inbox")
async def inbox(web: Backend, query: InboxQuery) -> Inbox:
    """What waits for a person."""
    return await web.queries.inbox(query.plan)


@routes.get(f"{_TASKS}/next")
async def next_tasks(web: Backend, query: NextQuery) -> list[TaskView]:
    """What is given out next, first one first."""
    return await web.queries.next_ready(query.limit)


routes.query(f"{_TASKS}/refused", Queries.refused)


@routes.get(_TASK, answer=TaskDetail)
async def task(web: Backend, task_id: int) -> Reply:
    """All of one task: its attempts, its newest events, the end of its log.  `ETag` changes with its events."""
    found = await web.queries.task(task_id)
    tags = (etag(found.events[-1].seq),) if found.events else ()
    return replace(json_reply(found), headers=tags)


@routes.get(f"{_TASK}/logs")
async def logs(web: Backend, task_id: int, query: TaskLogsQuery) -> list[EventView]:
    """The task's newest events, oldest of them first."""
    await one_task(web, task_id)
    return await web.reads.audit_events(
        task_id=task_id, levels=levels_from(query.level), since_ms=0, limit=query.limit
    )


@routes.get(f"{_TASK}/output")
async def output(web: Backend, request: Request, task_id: int, query: PrintedQuery) -> LogPage:
    """Log chunks of one attempt (without `epoch` the newest) after place `after`, held for `wait` seconds while
    there are none."""
    chunks: list[tuple[int, LogChunk]] = []
    over = False
    if await web.reads.workspace_of(task_id) != web.workspace_id:
        raise NotFound(f"there is no task {task_id}", "muster task list")
    epoch = query.epoch or (await one_task(web, task_id)).epoch

    async def look() -> bool:
        nonlocal over
        attempt = await web.reads.attempt(task_id, epoch)
        over = attempt is None or not attempt.open
        if query.last:
            chunks[:] = await web.reads.log_tail(task_id, epoch, limit=query.last)
        else:
            chunks[:] = await web.reads.log(task_id, epoch, after=query.after, limit=LOG_PAGE_CHUNKS)
        return bool(chunks) or over

    await web.hold(request, EVENTS, query.wait, look)
    return LogPage(
        chunks=tuple(chunk for _, chunk in chunks),
        next=chunks[-1][0] if chunks else query.after,
        done=over and len(chunks) < LOG_PAGE_CHUNKS,
    )


_IDEMPOTENCY = {"Idempotency-Key": "The same request with the same key adds one task; as `idempotencyKey`."}


@routes.post(
    _TASKS,
    answer={201: TaskAdded, 200: TaskAdded},
    reads=lambda: with_all_words(AddBody),
    headers=_IDEMPOTENCY,
)
async def add(web: Backend, request: Request, body: dict[str, Any]) -> Reply:
    """Adds one task.  201 for a task that is new, 200 for one that was there already."""
    said = _as(AddBody, in_our_words(body))
    spec = c.Spec(**{name: getattr(said, name) for name in c.Spec.__struct_fields__})
    if request.has(b"idempotency-key"):
        key = request.header(b"idempotency-key").strip().strip('"')
        if not key:
            raise BadInput(
                "Idempotency-Key is empty; nothing was changed", "leave it out, or name the request"
            )
        if spec.idempotency_key not in {None, key}:
            raise BadInput("idempotencyKey and the header Idempotency-Key differ; nothing was changed")
        if len(key) > NAME_CHARS_MAX:
            raise BadInput(f"Idempotency-Key has more than {NAME_CHARS_MAX} characters; nothing was changed")
        spec = replace(spec, idempotency_key=key)
    command = c.Enqueue(plan=said.plan, source=None, tasks=(spec,), actor=said.actor)
    try:
        added = await web.engine.execute(command)
    except BadInput as error:
        error.pointer = error.pointer.removeprefix("/tasks/0")  # here it is the only one
        raise
    assert isinstance(added, Enqueued)
    new = added.added or added.groups_added
    return json_reply(TaskAdded(**asdict(added), id=added.task_ids[0]), 201 if new else 200)


def _as(shape: type[S], body: dict[str, Any]) -> S:
    """Raises BadInput."""
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise invalid_body(error) from error


routes.command(f"{_TASK}/pause", c.Pause, "actor", "take")
routes.command(f"{_TASK}/resume", c.Resume, "actor", "note")
routes.command(f"{_TASK}/accept", c.Accept, "actor")
routes.command(f"{_TASK}/archive", c.Archive, "actor")
routes.command(f"{_TASK}/answer", c.AnswerQuestion, "actor", "text", "allow", "always")
routes.command(f"{_TASK}/tell", c.Tell, "actor", "text")
routes.command(f"{_TASK}/transfer", c.Transfer, "actor", "agent", "timeout_s")
routes.command(f"{_TASK}/depend", c.Depend, "actor", "depends_on")
routes.command(f"{_TASK}/skip", c.Skip, "actor", "reason")
routes.command(f"{_TASK}/cancel", c.Cancel, "actor", "reason")
routes.command(f"{_TASK}/retry", c.Retry, "actor", "note", "fresh")


@routes.post(f"{_TASK}/edit", answer=Moved, reads=lambda: with_all_words(edit_body(c.Name)), headers=IF_MATCH)
async def edit(web: Backend, request: Request, task_id: int, body: dict[str, Any]) -> Answer:
    """Changes what a task says.  The body holds what is to be otherwise: fields of `POST /api/v1/agent-tasks`."""
    return await _edit(web, request, task_id, body)


async def _edit(web: Backend, request: Request, task_id: int, body: dict[str, Any]) -> Answer:
    try:
        actor = msgspec.convert(body.get("actor", ""), c.Name)
        said = in_our_words(body)
        changes = edited({name: value for name, value in said.items() if name != "actor"})
    except msgspec.ValidationError as error:
        raise invalid_body(error) from error
    return await web.engine.execute(
        EditTask(task_id=task_id, actor=actor, given=changes, if_seen=if_seen(request))
    )


def _patch_body() -> type[Struct]:
    edits = with_all_words(edit_body(c.Name))
    return msgspec.defstruct(
        "TaskPatchBody", [("status", StatusWanted | None, None)], bases=(edits,), kw_only=True
    )


@routes.patch(_TASK, answer=Moved, reads=_patch_body, headers=IF_MATCH)
async def change(web: Backend, request: Request, task_id: int, body: dict[str, Any]) -> Answer:
    """Changes what a task says, and pauses, resumes or cancels it by its `status`.

    Of a task that runs only what its agent has not been told may be changed, like its priority.
    """
    wanted = body.pop("status", None)
    others = body.keys() - {"actor"}
    if wanted is None:
        return await _edit(web, request, task_id, body)
    status = _as(_Status, {"status": wanted, "actor": body.get("actor")})
    by: dict[str, Any] = {"task_id": task_id, "actor": status.actor}
    command = {
        StatusWanted.PAUSED: c.Pause(**by),
        StatusWanted.PENDING: c.Resume(**by),
        StatusWanted.CANCELLED: c.Cancel(**by),
    }[status.status]
    # What is edited first is edited while it waits; what is final is refused by its status.
    if not others or (await one_task(web, task_id)).status in FINAL:
        return await web.engine.execute(replace(command, if_seen=if_seen(request)))
    await _edit(web, request, task_id, body)
    return await web.engine.execute(command)


@routes.patch(f"{_TASK}/progress", answer=Moved)
async def progress(web: Backend, request: Request, task_id: int, body: TaskProgressBody) -> Answer:
    """How far who holds the task is: an attempt, or who has taken it by hand."""
    who = await holder(web, request, task_id, body.actor, body.epoch)
    named: dict[str, Any] = {"task_id": task_id, "epoch": who.epoch}
    if who.by_hand:
        await web.engine.execute(c.Extend(actor=body.actor, **named))
    elif by_itself(who):
        await web.engine.execute(c.BeatAgent(agent=who.agent, **named))
    if (state := json_text(body.checkpoint_data)) != "null":
        await web.engine.execute(c.SaveCheckpoint(data=state.encode(), **named))
    return await web.engine.execute(
        c.Progress(
            percent=body.progress_percent,
            step=body.current_step,
            estimated_completion_at_ms=body.estimated_completion_at_ms,
            **named,
        )
    )


@routes.post(f"{_TASK}/complete", answer=Moved, headers=IF_MATCH)
async def complete(web: Backend, request: Request, task_id: int, body: TaskDoneBody) -> Answer:
    """It is done: by the attempt or the person that holds it, or by somebody without any."""
    result, actor = json_text(body.output_result), body.actor
    who = await speaking(web, request, task_id, actor, body.epoch)
    said: dict[str, Any] = {"task_id": task_id, "summary": body.summary}
    if who is None:
        kept = None if result == "null" else result
        return await web.engine.execute(
            c.CompleteByPerson(actor=actor, if_seen=if_seen(request), result=kept, **said)
        )
    if who.by_hand:
        return await web.engine.execute(
            c.GiveBack(epoch=who.epoch, actor=actor, done=True, text=result, **said)
        )
    if by_itself(who):
        return await web.engine.execute(
            c.Complete(epoch=who.epoch, result=None if result == "null" else result, **said)
        )
    return await web.engine.execute(c.Declare(epoch=who.epoch, text=result, **said))
