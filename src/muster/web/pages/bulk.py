"""One action for many tasks: all that a filter finds, as long as they are few enough to be looked at.

What a page has asked about is what is done: tasks that came since are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from muster.model.actions import statuses_for
from muster.model.errors import BadInput, MusterError, NotFound
from muster.model.forms import (
    BULK,
    BULK_MAX,
    TASK_ACTIONS,
    Action,
    action_for_all,
    body_of_form,
    tag_seen,
)
from muster.model.json_value import Json
from muster.model.states import TaskStatus
from muster.model.views import TaskFilter, TaskView
from muster.model.wording import counted, task_name
from muster.web.backend import Backend
from muster.web.http import Problem, Reply, Request
from muster.web.pages.forms import ask_api, refuse_action
from muster.web.pages.tasks import BulkQuery, address_of
from muster.web.routes import Routes
from muster.web.sent_forms import sent_already
from muster.web.tasks import filter_of
from muster.web.visits import posted

routes = Routes(pages=True)

NAMED_MAX = 50
PAGES_MAX = 50
"""Of BULK_MAX tasks, that are looked through for one page."""
_PART = re.compile(r"[0-9]{1,16}(:[0-9]{1,16}(@[0-9]{1,16})?)?")


class _Possible(NamedTuple):
    """What a filter finds that can take an action."""

    tasks: list[TaskView]
    others: bool
    """It finds some that cannot."""
    more: bool
    """There may be more than these."""


@routes.get("/bulk/{action}")
async def confirm_many(web: Backend, request: Request, action: str, query: BulkQuery) -> Reply:
    """Which tasks these are, and a button for all of them."""
    from muster.web.pages.render import json_of, page

    _known(action)
    refuse_action(request, f"/api/v1/agent-tasks/0/{action}")
    found = await _possible(web, query, action)
    tasks = found.tasks
    some = ({"status": task.status, "actions": task.actions} for task in tasks)
    return page(
        request,
        "bulk.html",
        action=action,
        wanted=action_for_all(action, some),
        tasks=[json_of(task) for task in tasks[:NAMED_MAX]],
        number=len(tasks),
        ids=",".join(_seen(action, task) for task in tasks),
        others=found.others,
        more=found.more,
        kept=address_of(query),
        once=web.sent_forms.word(),
        told=None,
    )


async def _possible(web: Backend, query: BulkQuery, action: str) -> _Possible:
    """The first BULK_MAX that can take it: only the statuses in which one may are looked through."""
    selection = filter_of(replace(query, plan=query.plan or None, tag=tuple(filter(None, query.tag))))
    able = statuses_for(action)
    asked = selection.statuses or tuple(TaskStatus)
    rest = tuple(status for status in asked if status not in able and status is not TaskStatus.ARCHIVED)
    others = bool(rest) and bool(await web.queries.tasks(replace(selection, statuses=rest, limit=1)))
    tasks: list[TaskView] = []
    pages = 0
    for status in (status for status in able if status in asked):
        after_id, whole = selection.after_id, False
        while not whole:
            if pages == PAGES_MAX or len(tasks) > BULK_MAX:
                return _Possible(tasks[:BULK_MAX], others=others, more=True)
            part = replace(selection, statuses=(status,), after_id=after_id, limit=BULK_MAX)
            page = await web.queries.tasks(part)
            can = [task for task in page if action in task.actions]
            tasks += can
            others = others or len(can) < len(page)
            pages, whole = pages + 1, len(page) < BULK_MAX
            after_id = page[-1].id if page else after_id
    return _Possible(tasks[:BULK_MAX], others=others, more=len(tasks) > BULK_MAX)


@routes.post("/bulk/{action}")
async def act_on_many(web: Backend, request: Request, action: str, query: BulkQuery) -> Reply:
    """Does it to each that still can take it, and says which could not."""
    from muster.web.pages.render import page

    fields = posted(request)
    wanted = _known(action)
    ids = _ids(fields.get("ids", ""))
    refuse_action(request, f"/api/v1/agent-tasks/0/{action}")
    body = body_of_form(wanted, fields)
    if web.sent_forms.take(request, fields) is None:
        return sent_already(request, wanted.label, f"/tasks{address_of(query)}")
    found = await web.queries.tasks(TaskFilter(ids=tuple(ids), limit=BULK_MAX)) if ids else []
    done, refused = await _each(request, action, body, found, ids)
    left = await _left(web, query, action)
    return page(
        request,
        "bulk.html",
        action=action,
        wanted=wanted,
        kept=address_of(query),
        told={
            "done": counted(done, "task"),
            "gone": len(ids) - len(found),
            "refused": refused[:NAMED_MAX],
            "more": max(0, len(refused) - NAMED_MAX),
            "left": len(left.tasks),
            "left_more": left.more,
        },
    )


async def _left(web: Backend, query: BulkQuery, action: str) -> _Possible:
    """What was done is told also where this cannot be said."""
    try:
        return await _possible(web, query, action)
    except MusterError:
        return _Possible([], others=False, more=True)


async def _each(
    request: Request, action: str, body: Json, tasks: Sequence[TaskView], seen: Mapping[int, str]
) -> tuple[int, list[Json]]:
    """How many have taken it, and the others with why not."""
    done = 0
    refused: list[Json] = []
    for task in tasks:
        why = f"it is not possible now: {task.why}"
        if action in task.actions:
            path = f"/api/v1/agent-tasks/{task.id}/{action}"
            reply = await ask_api(request, path, body, if_match=seen[task.id])
            if reply.status < 400:
                done += 1
                continue
            why = msgspec.json.decode(reply.data, type=Problem).detail
        refused.append({"id": task.id, "name": task_name(task.plan, task.key), "why": why})
    return done, refused


def _seen(action: str, task: TaskView) -> str:
    """The task, and as what it was looked at."""
    from muster.web.pages.render import json_of

    tag = tag_seen(action, json_of(task))
    return f"{task.id}:{tag}" if tag else f"{task.id}"


def _ids(text: str) -> dict[int, str]:
    """As what each was looked at, as `_seen` writes it.  Raises BadInput."""
    parts = text.split(",") if text else []
    if len(parts) > BULK_MAX or not all(map(_PART.fullmatch, parts)):
        raise BadInput(
            "this form names no tasks that can be read; nothing was changed", "open its page again"
        )
    pairs = (part.partition(":") for part in parts)
    return {int(number): tag for number, _, tag in pairs}


def _known(action: str) -> Action:
    """Raises NotFound."""
    if action not in BULK:
        raise NotFound(f"no page does {action[:50]!r} to many tasks", f"one of: {', '.join(BULK)}")
    return TASK_ACTIONS[action]
