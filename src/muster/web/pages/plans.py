"""Plans, and the page of one plan."""

from __future__ import annotations

from urllib.parse import quote

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.model.items import EPIC, FEATURE, TASK
from muster.model.json_value import Json
from muster.model.views import TaskFilter
from muster.web.backend import Backend
from muster.web.http import Reply, Request
from muster.web.pages.forms import (
    Action,
    FormField,
    ask_api,
    back_to,
    body_of_form,
    refuse_action,
    refused_form,
)
from muster.web.pages.overview import DoneQuery
from muster.web.routes import Routes
from muster.web.visits import posted

routes = Routes(pages=True)

WHOLE_MAX = 500
"""A plan of more tasks is shown a part at a time: to add all of it up takes its owner too long."""
PART = 200
PLAN_ACTIONS = {
    "pause": Action("Pause"),
    "resume": Action("Resume"),
    "cancel": Action(
        "Cancel", (FormField("reason", "Why?", long=True),), "All of it that has not ended is ended now."
    ),
}


class PlanPageQuery(DoneQuery, frozen=True, kw_only=True):
    after: c.Count = 0
    """Tasks whose ids come after this one."""


@routes.get("/plans")
async def plans(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """All plans, with how far they are."""
    from muster.web.pages.render import json_of, page

    found = [json_of(plan) for plan in await web.queries.plans()]
    return page(request, "plans.html", done=query.done, plans=found)


@routes.get("/plans/{plan}")
async def plan(web: Backend, request: Request, plan: str, query: PlanPageQuery) -> Reply:
    """A plan in its order and groups."""
    from muster.web.pages.render import json_of, page

    progress = json_of(await web.queries.plan(plan))
    whole = sum(progress["plan"]["counts"].values()) <= WHOLE_MAX and not query.after
    most = WHOLE_MAX if whole else PART
    selection = TaskFilter(plan=plan, groups=True, after_id=query.after, limit=most)
    tasks = [json_of(task) for task in await web.queries.tasks(selection)]
    rows = _rows(json_of(await web.queries.items(plan)), tasks) if whole else _part(tasks)
    return page(
        request,
        "plan.html",
        done=query.done,
        plan=progress["plan"],
        settled=progress["settled"],
        rows=rows,
        after=tasks[-1]["id"] if len(tasks) == most and not whole else None,
        plan_actions=_possible(progress),
    )


@routes.get("/plans/{plan}/{action}")
async def confirm(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Asks before it is done."""
    from muster.web.pages.render import json_of, page

    progress = json_of(await web.queries.plan(plan))
    wanted = _known(action)
    refuse_action(request, f"/api/v1/plans/{quote(plan, safe='')}/{action}")
    return page(request, "confirm_plan.html", action=action, plan=progress["plan"], wanted=wanted)


@routes.post("/plans/{plan}/{action}")
async def act(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Does it, and shows the page again."""
    fields = posted(request)
    await web.queries.plan(plan)
    wanted = _known(action)
    here = f"/plans/{quote(plan, safe='')}"
    reply = await ask_api(request, f"/api/v1{here}/{action}", body_of_form(wanted, fields))
    if reply.status >= 400:
        return refused_form(request, reply, wanted, fields)
    return back_to(fields, here, action)


def _known(action: str) -> Action:
    """Raises NotFound."""
    found = PLAN_ACTIONS.get(action)
    if found is None:
        raise NotFound(f"no page has an action {action[:50]!r}", "muster plan --help")
    return found


def _possible(progress: Json) -> dict[str, Action]:
    halt = "resume" if progress["plan"]["paused"] else "pause"
    names = [halt] if progress["settled"] else [halt, "cancel"]
    return {name: PLAN_ACTIONS[name] for name in names}


def _rows(items: list[Json], tasks: list[Json]) -> list[Json]:
    """Items with how deep they stand, each task with where it is."""
    known = {task["key"]: task for task in tasks}
    depths: dict[str | None, int] = {None: 0}
    rows: list[Json] = []
    for item in items:
        depth = depths.get(item["parent"], 0)
        depths[item["id"]] = depth + 1
        task = known.get(item["id"]) if item["type"] == TASK else None
        rows.append({**item, "depth": min(depth, 5), "task": task})
    return rows


def _part(tasks: list[Json]) -> list[Json]:
    """The same below headings that say no numbers: what else stands there was not looked at."""
    rows: list[Json] = []
    above = ("", "")
    for task in tasks:
        here = (task["epic"], task["feature"])
        for depth, kind in ((0, EPIC), (1, FEATURE)):
            title = here[depth]
            if title and here[: depth + 1] != above[: depth + 1]:
                row = {"type": kind, "id": f"{kind}-{task['id']}", "title": title, "tasks": None}
                rows.append({**row, "depth": depth, "task": None})
        above = here
        depth = sum(map(bool, here))
        rows.append({"type": TASK, "id": task["key"], "title": task["title"], "depth": depth, "task": task})
    return rows
