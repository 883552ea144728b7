"""Plans, and the page of one plan."""

from __future__ import annotations

from urllib.parse import quote

from muster.model.errors import NotFound
from muster.model.items import TASK
from muster.model.json_value import Json
from muster.model.views import TaskFilter
from muster.web.backend import Backend
from muster.web.http import Reply, Request
from muster.web.pages.forms import Action, FormField, ask_api, back_to, body_of_form
from muster.web.pages.overview import DoneQuery
from muster.web.routes import Routes
from muster.web.visits import posted

routes = Routes(pages=True)

TASKS_SHOWN = 1000
PLAN_ACTIONS = {
    "pause": Action("Pause"),
    "resume": Action("Resume"),
    "cancel": Action(
        "Cancel", (FormField("reason", "Why?", long=True),), "All of it that has not ended is ended now."
    ),
}


@routes.get("/plans")
async def plans(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """All plans, with how far they are."""
    from muster.web.pages.render import json_of, page

    found = [json_of(plan) for plan in await web.queries.plans()]
    return page(request, "plans.html", done=query.done, plans=found)


@routes.get("/plans/{plan}")
async def plan(web: Backend, request: Request, plan: str, query: DoneQuery) -> Reply:
    """A plan in its order and groups."""
    from muster.web.pages.render import json_of, page

    progress = json_of(await web.queries.plan(plan))
    found = await web.queries.tasks(TaskFilter(plan=plan, groups=True, limit=TASKS_SHOWN))
    tasks = {task.key: json_of(task) for task in found}
    rows, cut = _rows(json_of(await web.queries.items(plan)), tasks)
    return page(
        request,
        "plan.html",
        done=query.done,
        plan=progress["plan"],
        settled=progress["settled"],
        rows=rows,
        cut=cut,
        plan_actions=_possible(progress),
    )


@routes.get("/plans/{plan}/{action}")
async def confirm(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Asks before it is done."""
    from muster.web.pages.render import json_of, page

    progress = json_of(await web.queries.plan(plan))
    wanted = _known(action)
    return page(request, "confirm_plan.html", action=action, plan=progress["plan"], wanted=wanted)


@routes.post("/plans/{plan}/{action}")
async def act(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Does it, and shows the page again."""
    fields = posted(request)
    await web.queries.plan(plan)
    wanted = _known(action)
    here = f"/plans/{quote(plan, safe='')}"
    reply = await ask_api(request, f"/api/v1{here}/{action}", body_of_form(wanted, fields))
    return reply if reply.status >= 400 else back_to(fields, here, action)


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


def _rows(items: list[Json], tasks: dict[str, Json]) -> tuple[list[Json], int]:
    """Items with how deep they stand, each task with where it is; and how many are left out."""
    depths: dict[str | None, int] = {None: 0}
    rows: list[Json] = []
    for item in items:
        depth = depths.get(item["parent"], 0)
        depths[item["id"]] = depth + 1
        task = tasks.get(item["id"]) if item["type"] == TASK else None
        rows.append({**item, "depth": min(depth, 5), "task": task})
    shown = rows[:TASKS_SHOWN]
    return shown, len(rows) - len(shown)
