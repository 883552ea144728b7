"""Tasks as a table, and the page of one task."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta
from msgspec.structs import fields, replace

from muster.engine.task_pages import page_of
from muster.model import commands as c
from muster.model import patterns
from muster.model.errors import BadInput, NotFound
from muster.model.forms import RAISE_BUDGET, TASK_ACTIONS
from muster.model.json_value import Json
from muster.model.shown import COUNT_ORDER, COUNT_WORDS
from muster.model.states import FINAL, TaskStatus
from muster.model.views import AttemptView
from muster.web.artifacts import artifacts, content
from muster.web.backend import Backend
from muster.web.http import Reply, Request
from muster.web.pages.live import live_of
from muster.web.pages.overview import DoneQuery
from muster.web.routes import Routes
from muster.web.task_words import DELAYED, statuses_of
from muster.web.tasks import TasksQuery, filter_of, next_page
from muster.web.works import pull_known

routes = Routes(pages=True)
SHOWN_BYTES = 2 << 20
"""Of the tasks on one page: a page of long texts has fewer of them."""

ROWS, ROWS_MAX = 50, 500
"""Of the table: as many as are painted within 100 ms, unless more are asked for."""

EVENTS_SHOWN = 50

BOXES = {status: status.lower() for status in COUNT_ORDER} | {TaskStatus.ABORTED: DELAYED}
"""Of the filter, which has one for each."""
SHOWN_AS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("waiting", "ready", "blocked"), (BOXES[TaskStatus.PENDING],)),
    DELAYED: (DELAYED,),
    "stopping": (BOXES[TaskStatus.ASSIGNED], BOXES[TaskStatus.RUNNING]),
}
"""What pages call a state that is no status: the boxes of the filter that have such tasks."""


class TablePageQuery(TasksQuery, frozen=True, kw_only=True):
    done: str = ""
    view: Annotated[str, Meta(pattern=patterns.VIEW.regex)] = ""
    """`board`: in columns."""
    limit: Annotated[int, Meta(ge=1, le=100_000)] = ROWS
    """Of the rows of the table, ROWS_MAX at most."""


class TaskPageQuery(DoneQuery, frozen=True, kw_only=True):
    attempt: c.Count | None = None
    """The one whose transcript is shown; None: the newest."""


class TranscriptQuery(DoneQuery, frozen=True, kw_only=True):
    attempt: c.Count | None = None
    after: c.Count = 0
    open: Annotated[str, Meta(pattern=patterns.SPANS.regex)] = ""
    """What had not ended there: it is on the page on which it ends."""


@routes.get("/tasks")
async def table(web: Backend, request: Request, query: TablePageQuery) -> Reply:
    """Tasks in the order of their ids, or by where they stand; the address says which."""
    from muster.web.pages.board import columns_of, moves
    from muster.web.pages.render import json_of, may_of, page
    from muster.web.pages.task_forms import offered

    query = _understood(query)
    live = await live_of(web)
    plans = await web.queries.plans()
    columns = await columns_of(web, filter_of(query), plans) if query.view else []
    may = may_of(request)
    one_more = replace(filter_of(query), limit=query.limit + 1)
    found, data = ([], b"") if query.view else await page_of(web.queries, one_more, SHOWN_BYTES)
    more = len(found) > query.limit or len(data) >= SHOWN_BYTES
    found = found[: query.limit]
    tasks = json_of(found)
    return page(
        request,
        "board.html" if query.view else "tasks.html",
        live=live,
        done=query.done,
        tasks=tasks,
        columns=columns,
        moves=lambda task: [
            name
            for name, action in moves(task["actions"]).items()
            if may("POST", f"/api/v1/agent-tasks/{task['id']}/{action}")
        ],
        query=query,
        address=partial(address_of, query),
        also=_also(query),
        less=address_of(_in_boxes(query)),
        statuses=[(box, COUNT_WORDS[status]) for status, box in BOXES.items()],
        open_ones=[box for status, box in BOXES.items() if status not in FINAL],
        plans=[plan.name for plan in plans],
        next_page=next_page(request, found[-1].id) if found and more else "",
        longer=_longer(query),
        rows_max=ROWS_MAX,
        bulk=offered(tasks),
        task_actions=TASK_ACTIONS,
    )


def _understood(query: TablePageQuery) -> TablePageQuery:
    """Without what says nothing here, and its statuses as the boxes of the filter have them."""
    words = [word for word in query.status if word.lower() in SHOWN_AS or _fits(status=(word,))]
    boxes = [SHOWN_AS.get(word.lower()) or [BOXES[one] for one in statuses_of((word,))] for word in words]
    pairs = {one.partition("=")[0]: one for one in query.metadata if _fits(metadata=(one,))}
    return replace(
        query,
        plan=query.plan or None,
        tag=tuple(filter(None, query.tag)),
        status=tuple(dict.fromkeys(box for some in boxes for box in some)),
        metadata=tuple(pairs.values()),
        cursor=query.cursor if _fits(cursor=query.cursor) else "",
        limit=min(query.limit, ROWS_MAX),
    )


def _fits(**said: Any) -> bool:
    try:
        filter_of(TablePageQuery(**said))
    except BadInput:
        return False
    return True


def _in_boxes(query: TablePageQuery) -> TablePageQuery:
    """What the form shows of it in boxes of its own."""
    return TablePageQuery(status=query.status, plan=query.plan, tag=query.tag[:1], view=query.view)


def _also(query: TablePageQuery) -> list[tuple[str, object]]:
    """What else it asks for: the form gives it back."""
    shown = _pairs_of(_in_boxes(query))
    return [pair for pair in _pairs_of(replace(query, cursor="", after=0)) if pair not in shown]


def address_of(query: TablePageQuery, **changes: Any) -> str:
    """What of it says which tasks, and how many at a time, as the end of an address: from the first one on."""
    asked = replace(query, **{"cursor": "", "after": 0, **changes})
    said = urlencode(_pairs_of(asked))
    return f"?{said}" if said else ""


def _longer(query: TablePageQuery) -> str:
    """The address of more rows at a time, from the same one on; empty where there are no more."""
    if query.limit >= ROWS_MAX:
        return ""
    return address_of(query, cursor=query.cursor, after=query.after, limit=ROWS_MAX)


_FIELDS = [field for field in fields(TablePageQuery) if field.name != "done"]


def _pairs_of(query: TablePageQuery) -> list[tuple[str, object]]:
    """By the names that stand in an address, those that say something."""
    pairs: list[tuple[str, object]] = []
    for field in _FIELDS:
        value = getattr(query, field.name)
        if value == field.default or value in (None, (), []):
            continue
        pairs += [
            (field.encode_name, one) for one in (value if isinstance(value, tuple | list) else (value,))
        ]
    return pairs


@routes.get("/tasks/{task_id:id}")
async def task(web: Backend, request: Request, task_id: int, query: TaskPageQuery) -> Reply:
    """All of one task, and what may be done with it now."""
    from muster.web.pages.edits import EDIT
    from muster.web.pages.render import json_of, page
    from muster.web.pages.timeline import WIDTH, bars

    live = await live_of(web)
    found = await web.queries.task(task_id)
    detail = json_of(found)
    attempt = _attempt(found.attempts, query.attempt)
    return page(
        request,
        "task.html",
        live=await live.with_output(web, task_id, attempt.epoch if attempt else 0),
        done=query.done,
        detail=detail,
        task=detail["task"],
        events=detail["events"][-EVENTS_SHOWN:],
        bars=bars(detail["attempts"], time.time_ns() // 1_000_000),
        width=WIDTH,
        own_host=os.uname().nodename,
        transcript=await _said(web, request, task_id, attempt) if attempt else None,
        checkpoint=await _checkpoint(web, task_id),
        artifacts=json_of(await artifacts(web, task_id)),
        task_actions=TASK_ACTIONS,
        done_actions=TASK_ACTIONS | {"edit": EDIT, "task-budget": RAISE_BUDGET},
        work=web.owner.works is not None and attempt is not None,
        pull=await pull_known(web, found.task.plan, found.task.key),
    )


@routes.get("/tasks/{task_id:id}/transcript")
async def transcript(web: Backend, request: Request, task_id: int, query: TranscriptQuery) -> Reply:
    """All that an attempt said and did, from its beginning on, a part on each page."""
    from muster.web.pages.render import json_of, page
    from muster.web.pages.transcript import Shown, part_of

    found = await web.queries.task(task_id)
    attempt = _attempt(found.attempts, query.attempt)
    if attempt is None:
        raise NotFound("it has not run yet", f"muster task show {task_id}")
    return page(
        request,
        "transcript.html",
        done="",
        task=json_of(found.task),
        transcript=await part_of(web, task_id, attempt, Shown.of(query.after, query.open)),
    )


async def _said(web: Backend, request: Request, task_id: int, attempt: AttemptView) -> Json:
    """What is new to a page that says what it shows; for another one the end."""
    from muster.web.pages.transcript import end_of, news_of, shown_by

    shown = shown_by(request.header(b"muster-shown"), attempt.epoch)
    if shown is None:
        return await end_of(web, task_id, attempt)
    return await news_of(web, task_id, attempt, shown)


@routes.get("/tasks/{task_id:id}/artifacts/{epoch:id}/{name}")
async def artifact(web: Backend, request: Request, task_id: int, epoch: int, name: str) -> Reply:  # noqa: ARG001
    """What an attempt has made, to be kept as a file: no browser opens it as a page of ours."""
    found = await content(web, task_id, epoch, name)
    kept: tuple[tuple[str, str], ...] = (
        ("content-disposition", "attachment"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    )
    return Reply(found.status, found.data, found.media_type, kept)


def _attempt(attempts: tuple[AttemptView, ...], epoch: int | None) -> AttemptView | None:
    """Raises NotFound."""
    if epoch is None:
        return attempts[-1] if attempts else None
    for one in attempts:
        if one.epoch == epoch:
            return one
    raise NotFound(f"there is no attempt {epoch} of it")


async def _checkpoint(web: Backend, task_id: int) -> Json | None:
    """What the next attempt starts from."""
    found = await web.reads.checkpoint(task_id)
    if found is None:
        return None
    data: Any = bytes(found.data)
    text = data.decode(errors="replace")
    return {
        "epoch": found.epoch,
        "number": found.number,
        "createdAtMs": found.created_at_ms,
        "bytes": len(data),
        "text": text[:2000],
        "cut": len(text) > 2000,
    }
