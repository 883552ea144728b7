"""Tasks as a table, and the page of one task."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from msgspec import Meta
from msgspec.structs import fields, replace

from muster.engine.task_pages import page_of
from muster.model import commands as c
from muster.model import patterns
from muster.model.errors import BadInput, NotFound
from muster.model.forms import RAISE_BUDGET, TASK_ACTIONS, TASK_BUTTONS
from muster.model.json_value import Json
from muster.model.shown import COUNT_ORDER, COUNT_WORDS
from muster.model.states import FINAL, TaskStatus
from muster.model.views import AttemptView, TaskFilter
from muster.model.wording import each_word
from muster.web.artifacts import artifacts, content
from muster.web.backend import Backend
from muster.web.http import Reply, Request, decode_query
from muster.web.pages.live import live_of
from muster.web.pages.overview import ASKED_CHARS_MAX, DoneQuery, why_missed
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
IGNORED_NAMED = 20
TAGS_ASKED = 5
"""Of a filter that finds nothing: so many of its tags are looked for."""

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
    missed: Annotated[str, Meta(max_length=ASKED_CHARS_MAX)] = ""
    """What was looked for by its name, and has led here."""
    view: Annotated[str, Meta(pattern=patterns.VIEW.regex)] = ""
    """`board`: in columns."""
    limit: Annotated[int, Meta(ge=1, le=100_000)] = ROWS
    """Of the rows of the table, ROWS_MAX at most."""


class BulkQuery(TablePageQuery, frozen=True, kw_only=True):
    exact = True


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
    """Tasks in the order of their ids, or by where they stand; the address says which.

    Where something of that was not understood, nothing is offered for all of these.
    """
    from muster.web.pages.board import columns_of, moves
    from muster.web.pages.render import json_of, may_of, page
    from muster.web.pages.task_forms import offered

    query, ignored = read_filter(request.query)
    live = await live_of(web)
    plans = await web.queries.plans()
    columns = await columns_of(web, filter_of(query), plans) if query.view else []
    may = may_of(request)
    one_more = replace(filter_of(query), limit=query.limit + 1)
    found, data = ([], b"") if query.view else await page_of(web.queries, one_more, SHOWN_BYTES)
    more = len(found) > query.limit or len(data) >= SHOWN_BYTES
    found = found[: query.limit]
    tasks = json_of(found)
    names = [plan.name for plan in plans]
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
        plans=names,
        nowhere=await _nowhere(web, query, names, some=any((found, *(one["tasks"] for one in columns)))),
        missed=await why_missed(web, query.missed) if query.missed else "",
        ignored=ignored[:IGNORED_NAMED],
        ignored_more=max(0, len(ignored) - IGNORED_NAMED),
        next_page=next_page(request, found[-1].id) if found and more else "",
        longer=_longer(query),
        rows_max=ROWS_MAX,
        bulk=[] if ignored else offered(tasks),
        task_actions=TASK_ACTIONS,
        done_actions=TASK_BUTTONS,
    )


Pair = tuple[str, str]


def read_filter(text: str) -> tuple[TablePageQuery, list[Pair]]:
    """What an address asks for, its statuses as the boxes of the filter have them, and what of it was ignored."""
    said = [pair for pair in parse_qsl(text) if pair[1]]
    status = [("status", box) for word in each_word(_of("status", said)) for box in _boxes(word)]
    pairs = list(dict.fromkeys([*(pair for pair in said if pair[0] != "status"), *status]))
    kept, ignored = _parted(pairs) if _read(pairs) is None else (pairs, [])
    query = _read(kept)
    assert query is not None, "each was read"
    return replace(query, limit=min(query.limit, ROWS_MAX)), ignored


def _parted(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Those that can be read, and the others; of what is said once the first counts."""
    kept: list[Pair] = []
    ignored: list[Pair] = []
    first: dict[Pair, Pair] = {}
    for pair in pairs:
        said = pair[0], pair[1].partition("=")[0] if pair[0] == "metadata" else ""
        fits = _read([first[said], pair] if said in first else [pair]) is not None
        (kept if fits else ignored).append(pair)
        if fits:
            first.setdefault(said, pair)
    return kept, ignored


def _read(pairs: list[Pair]) -> TablePageQuery | None:
    """None where that cannot be read to the letter."""
    try:
        query = decode_query(urlencode(pairs), BulkQuery)
        assert query is not None
        filter_of(query)
    except BadInput:
        return None
    return query


def _of(name: str, pairs: list[Pair]) -> list[str]:
    return [value for one, value in pairs if one == name]


def _boxes(word: str) -> tuple[str, ...]:
    """Those of the filter; what is no status stays what it is, and is told."""
    if word.lower() in SHOWN_AS:
        return SHOWN_AS[word.lower()]
    try:
        return tuple(BOXES.get(one, one.lower()) for one in statuses_of((word,)))
    except BadInput:
        return (word,)


class _Nowhere(NamedTuple):
    """What the filter names, and there is not."""

    plan: str
    tags: list[str]


async def _nowhere(web: Backend, query: TablePageQuery, plans: list[str], *, some: bool) -> _Nowhere:
    """Where `some` are found, these bear all of the tags; to ask for one costs a look at every task there is."""
    doubtful = [] if some else [*dict.fromkeys((*query.tags, *query.tag))][:TAGS_ASKED]
    tags = [tag for tag in doubtful if not await _is_borne(web, tag)]
    return _Nowhere("" if query.plan in {None, *plans} else query.plan or "", tags)


async def _is_borne(web: Backend, tag: str) -> bool:
    return bool(await web.queries.tasks(TaskFilter(tags=(tag,), groups=True, limit=1)))


def _in_boxes(query: TablePageQuery) -> TablePageQuery:
    """What the form shows of it in boxes of its own."""
    return TablePageQuery(
        status=query.status, plan=query.plan, tag=query.tag[:1], text=query.text, view=query.view
    )


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


_FIELDS = [field for field in fields(TablePageQuery) if field.name not in {"done", "missed"}]


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
    from muster.web.pages.edits import CHANGE
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
        done_actions=TASK_BUTTONS | {"edit": CHANGE, "task-budget": RAISE_BUDGET},
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
