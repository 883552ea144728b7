"""Plans, and the page of one plan."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.model.forms import (
    PLAN_ACTIONS,
    RAISE_BUDGET,
    SEEN_EVENT,
    SEEN_MERGE,
    Action,
    body_of_form,
    open_tasks,
    possible_for_plan,
    seen_of_merge,
)
from muster.model.items import EPIC, FEATURE, TASK
from muster.model.json_value import Json
from muster.model.views import PlanProgress, TaskFilter
from muster.web.backend import Backend
from muster.web.http import Reply, Request
from muster.web.pages.forms import ask_api, back_to, problem_of, refuse_action
from muster.web.pages.live import live_of
from muster.web.pages.overview import DoneQuery
from muster.web.reckonings import Reckoned
from muster.web.routes import Routes
from muster.web.visits import done_word, posted
from muster.web.works import coming as plan_coming
from muster.web.works import pull_known

if TYPE_CHECKING:
    from muster.web.pages.forecasts import PlanPicture
    from muster.web.pages.plan_drawing import Chart

routes = Routes(pages=True)

WHOLE_MAX = 500
"""A plan of more tasks is shown a part at a time, and what is reckoned of all of them is kept for a while."""
PART = 50
EVENTS_LOOKED_MAX = 10_000
"""To look whether one of more is about a plan takes as long as to reckon it again."""


class PlanPageQuery(DoneQuery, frozen=True, kw_only=True):
    after: c.Count = 0
    """Tasks whose ids come after this one."""
    before: c.Count = 0
    """How many tasks stand on the parts before, as the link from there says; 0: that is not known."""
    graph: Literal["", "yes"] = ""
    """Also of a plan that is shown a part at a time."""


@routes.get("/plans")
async def plans(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """All plans, with how far they are."""
    from muster.web.pages.render import json_of, page

    live = await live_of(web)
    found = [json_of(plan) for plan in await web.queries.plans()]
    return page(request, "plans.html", live=live, done=query.done, plans=found)


@routes.get("/plans/{plan}")
async def plan(web: Backend, request: Request, plan: str, query: PlanPageQuery) -> Reply:
    """A plan in its order and groups."""
    from muster.web.pages.forecasts import RECKONED_MAX, chart_of, picture_of
    from muster.web.pages.plan_drawing import gantt
    from muster.web.pages.render import json_of, page

    live = await live_of(web)
    found = await web.queries.plan(plan)
    progress, now_ms = json_of(found), time.time_ns() // 1_000_000
    number = sum(found.plan.counts.values())
    whole = number <= WHOLE_MAX and not query.after
    most = WHOLE_MAX if whole else PART
    selection = TaskFilter(plan=plan, groups=True, after_id=query.after, limit=most)
    tasks = [json_of(task) for task in await web.queries.tasks(selection)]
    picture = None
    if whole:
        chart = await chart_of(web, found.plan.id)
        picture = await picture_of(web, found.plan, settled=found.settled, chart=chart)
        rows = _rows(json_of(await web.queries.items(plan)), tasks, chart)
    else:
        rows = _part(tasks)
    if not whole and number <= RECKONED_MAX:
        picture = await _kept(web, found, live.event, query.graph)
        live = live.with_reckoned(web, found.plan.id, query.graph)
    return page(
        request,
        "plan.html",
        live=live,
        done=query.done,
        plan=progress["plan"],
        settled=found.settled,
        rests=found.settled and not (found.plan.paused and open_tasks(progress["plan"])),
        rows=rows,
        picture=picture,
        whole=whole,
        gantt=gantt(tasks, now_ms) if picture else None,
        too_many=number if picture is None else 0,
        reckoned_max=RECKONED_MAX,
        part=_place(query, number, tasks),
        after=tasks[-1]["id"] if len(tasks) == most and not whole else None,
        plan_actions=PLAN_ACTIONS | {"plan-budget": RAISE_BUDGET},
        possible=possible_for_plan(progress["plan"]),
        work=web.owner.works is not None,
        pull=await pull_known(web, found.plan.name),
    )


def _place(query: PlanPageQuery, number: int, tasks: list[Json]) -> Json:
    """Which part of a plan of that many tasks this is."""
    known = bool(query.before) or not query.after
    last = query.before + sum(not task["isGroup"] for task in tasks)
    known = known and query.before < last <= number  # a link may be old, or somebody's own
    return {
        "after": query.after,
        "before": query.before,
        "drawn": "?graph=yes" if query.graph else "",
        "first": query.before + 1 if known else 0,
        "last": last if known else 0,
        "number": number,
    }


async def _kept(web: Backend, found: PlanProgress, event: int, graph: str) -> PlanPicture:
    """What was reckoned of a large plan, by whoever has looked at it last or now."""
    from muster.web.pages.forecasts import picture_of

    async def holds(known: Reckoned) -> bool:
        """Of what has settled nothing changes with time."""
        if not (known.value.settled and found.settled) or event - known.event > EVENTS_LOOKED_MAX:
            return False
        return not await web.reads.happened_since(found.plan.id, known.event)

    reckon = partial(picture_of, web, found.plan, settled=found.settled, drawn=bool(graph))
    known = await web.reckonings.get((found.plan.id, graph), event, reckon, holds)
    picture: PlanPicture = known.value
    return picture


@routes.get("/plans/{plan}/{action}")
async def confirm(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Asks before it is done."""
    return await _form(web, request, plan, action)


async def _form(
    web: Backend, request: Request, plan: str, action: str, old: Json | None = None, *, changed: str = ""
) -> Reply:
    """Its form; `old` is what an earlier one has said, where the plan has `changed` by now."""
    from muster.web.pages.render import json_of, page

    # Before the plan, so that nothing counts as seen that is not shown.
    seen = await web.reads.last_event_id()
    progress, wanted = json_of(await web.queries.plan(plan)), _known(action)
    refuse_action(request, f"/api/v1/plans/{quote(plan, safe='')}/{action}")
    coming = None
    if action == "merge":
        try:
            coming = json_of(await plan_coming(web, plan))
        except NotFound as error:  # a link has led here, which is no mistake of who has followed it
            return page(
                request,
                "review_none.html",
                what=wanted.label,
                verb="merge",
                path=f"/plans/{quote(plan, safe='')}",
                name=progress["plan"]["name"],
                why=error.message,
                hint=error.hint,
                running=False,
            )
    return page(
        request,
        "confirm_plan.html",
        status=412 if changed else 200,
        action=action,
        plan=progress["plan"],
        wanted=wanted,
        coming=coming,
        ends=open_tasks(progress["plan"]),
        seen={"seen": seen} if action == "cancel" else seen_of_merge(coming) if coming else {},
        changed=changed,
        values={field.name: (old or {}).get(field.name, "") for field in wanted.fields},
    )


@routes.post("/plans/{plan}/{action}")
async def act(web: Backend, request: Request, plan: str, action: str) -> Reply:
    """Does it, and shows the page again."""
    fields = posted(request)
    await web.queries.plan(plan)
    wanted = _known(action)
    here = f"/plans/{quote(plan, safe='')}"
    seen: Json = {}
    if action == "cancel":
        seen = {SEEN_EVENT: _number(fields.get("seen", ""))}
    elif action == "merge":
        seen = {name: fields.get(name, "") for name in SEEN_MERGE}
    reply = await ask_api(request, f"/api/v1{here}/{action}", body_of_form(wanted, fields) | seen)
    if reply.status == 412 and seen:
        return await _form(web, request, plan, action, fields, changed=problem_of(reply)["detail"])
    if reply.status >= 400:
        return reply
    return back_to(fields, here, done_word(request, action))


def _number(seen: str) -> int:
    """The event that a form says; 0, after which all has come, for what no form of ours says."""
    return int(seen) if seen.isdecimal() and len(seen) < 16 else 0


def _known(action: str) -> Action:
    """Raises NotFound."""
    found = PLAN_ACTIONS.get(action)
    if found is None or action == "review":
        raise NotFound(f"no page has an action {action[:50]!r}", "muster plan --help")
    return found


def _rows(items: list[Json], tasks: list[Json], chart: Chart) -> list[Json]:
    """Items with how deep they stand, each task with where it is and what it comes after."""
    known = {task["key"]: task for task in tasks}
    depths: dict[str | None, int] = {None: 0}
    rows: list[Json] = []
    for item in items:
        depth = depths.get(item["parent"], 0)
        depths[item["id"]] = depth + 1
        task = known.get(item["id"]) if item["type"] == TASK else None
        above = [chart.tasks[parent].key for parent in chart.parents.get(task["id"], ())] if task else []
        rows.append({**item, "depth": min(depth, 5), "task": task, "after": above})
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
                rows.append({**row, "depth": depth, "task": None, "after": []})
        above = here
        depth = sum(map(bool, here))
        row = {"type": TASK, "id": task["key"], "title": task["title"], "after": []}
        rows.append({**row, "depth": depth, "task": task})
    return rows
