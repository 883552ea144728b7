"""Tasks in columns by where they stand.  To put one into another column is a command, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.model.errors import Conflict, NotFound
from muster.model.forms import Enough, task_action
from muster.model.json_value import Json
from muster.model.shown import COUNT_WORDS
from muster.model.states import TaskStatus
from muster.model.views import PlanView, TaskFilter, TaskView
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request
from muster.web.pages.forms import SEQ, ask_api, back_to
from muster.web.routes import Routes
from muster.web.task_words import DELAYED
from muster.web.visits import done_word, posted

routes = Routes(pages=True)

CARDS_MAX = 40
"""In a column."""


class BoardColumn(NamedTuple):
    title: str
    statuses: tuple[TaskStatus, ...]
    actions: tuple[str, ...] = ()
    """What moves a task there: the first of these that is possible."""
    else_why: str = ""
    """Why nothing moves one there."""


COLUMNS = {
    "waiting": BoardColumn(
        "Waiting", (TaskStatus.PENDING, TaskStatus.ABORTED), ("resume", "retry", "answer")
    ),
    "work": BoardColumn(
        "At work", (TaskStatus.ASSIGNED, TaskStatus.RUNNING), else_why="an agent takes it when it is its turn"
    ),
    "paused": BoardColumn("Paused", (TaskStatus.PAUSED,), ("pause",)),
    "failed": BoardColumn("Failed", (TaskStatus.FAILED,), else_why="only its attempts can fail"),
    "completed": BoardColumn("Completed", (TaskStatus.COMPLETED,), ("accept", "complete")),
    "cancelled": BoardColumn("Cancelled", (TaskStatus.CANCELLED,), ("cancel",)),
}


async def columns_of(web: Backend, selection: TaskFilter, plans: Sequence[PlanView]) -> list[Json]:
    """Where tasks stand, each with the first of them, and with their number as far as counters tell."""
    from muster.web.pages.render import json_of

    found: list[Json] = []
    as_kept = TaskFilter(plan=selection.plan, statuses=selection.statuses, limit=selection.limit) == selection
    kept = [plan.counts for plan in plans if as_kept and selection.plan in {None, plan.name}]
    for name, column in COLUMNS.items():
        asked = tuple(one for one in column.statuses if not selection.statuses or one in selection.statuses)
        if asked:
            some = replace(selection, statuses=asked, limit=CARDS_MAX + 1)
            tasks = [json_of(task) for task in await web.queries.tasks(some)]
            late = selection.delayed and TaskStatus.ABORTED in asked
            statuses = [DELAYED] if late else [status.lower() for status in asked]
            found.append({"name": name, "title": column.title, "statuses": statuses})
            more = len(tasks) > CARDS_MAX
            number = sum(counts.get(status, 0) for counts in kept for status in asked)
            told = f"{len(tasks):,}" if not more else f"{number:,}" if as_kept else f"more than {CARDS_MAX}"
            found[-1] |= {"tasks": tasks[:CARDS_MAX], "more": more, "count": told}
    return found


def moves(actions: Sequence[str]) -> dict[str, str]:
    """By the column where it leads: the action that is meant there, of those that are possible."""
    meant = {
        name: next((one for one in column.actions if one in actions), "") for name, column in COLUMNS.items()
    }
    return {name: action for name, action in meant.items() if action}


@routes.post("/tasks/{task_id:id}/move")
async def move(web: Backend, request: Request, task_id: int) -> Reply:
    """Does what that column means, or shows the page that asks what is still to be known."""
    from muster.web.pages.render import json_of

    fields = posted(request)
    task = await one_task(web, task_id)
    action = _meant(task, fields.get("to", ""))
    if action == "answer":
        return back_to({}, f"/tasks/{task_id}")
    wanted = task_action(action, json_of(task))
    if wanted.asks or wanted.enough > Enough.DRAG:
        return back_to({}, f"/tasks/{task_id}/{action}")
    seq = fields.get(SEQ, "") if wanted.as_seen else ""
    reply = await ask_api(request, f"/api/v1/agent-tasks/{task_id}/{action}", {}, if_match=seq)
    if reply.status >= 400:
        return reply
    return back_to(fields, f"/tasks/{task_id}", done_word(request, action))


def _meant(task: TaskView, to: str) -> str:
    """Raises NotFound and Conflict."""
    if to not in COLUMNS:
        raise NotFound(f"the board has no column {to[:50]!r}", f"one of: {', '.join(COLUMNS)}")
    column, possible = COLUMNS[to], moves(task.actions)
    if to in possible:
        return possible[to]
    name = task_name(task.plan, task.key)
    why = column.else_why or f"now it is {COUNT_WORDS[task.status]}: {task.why}"
    raise Conflict(
        f"{name} does not go to {column.title!r}: {why}; nothing was changed",
        f"where it goes: {', '.join(COLUMNS[one].title for one in possible) or 'nowhere'}",
    )
