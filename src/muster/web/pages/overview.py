"""The first page, with what needs a person before all else, and the inbox."""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace

from muster.model.errors import Ambiguous, NotFound
from muster.model.forms import TASK_ACTIONS, TASK_BUTTONS
from muster.model.kinds import SOUGHT_CHARS_MAX
from muster.model.states import HELD
from muster.model.views import TaskFilter, TaskView
from muster.web.backend import Backend
from muster.web.http import Query, Reply, Request
from muster.web.pages.forms import ask_api, back_to
from muster.web.pages.live import live_of
from muster.web.routes import Routes
from muster.web.visits import posted, theme_cookie

routes = Routes(pages=True)

AT_WORK_MAX = 50
FIRST_NEEDS = 20
NEEDS_MAX = 200


class DoneQuery(Query, frozen=True, kw_only=True):
    done: str = ""
    """What a form has just done, as `done_word` writes it."""


class InboxPageQuery(DoneQuery, frozen=True, kw_only=True):
    plan: str | None = None


@routes.get("/")
async def overview(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """Where everything stands."""
    from muster.web.pages.needs import needs_of
    from muster.web.pages.render import json_of, page

    live = await live_of(web)
    at_work = await web.queries.tasks(TaskFilter(statuses=tuple(HELD), limit=AT_WORK_MAX))
    return page(
        request,
        "overview.html",
        live=live,
        done=query.done,
        crew=json_of(await web.queries.status()),
        pools={name: json_of(pool) for name, pool in sorted((await web.queries.pools()).items())},
        needs=await needs_of(web, most=FIRST_NEEDS),
        at_work=json_of(at_work),
        task_actions=TASK_ACTIONS,
        done_actions=TASK_BUTTONS,
    )


@routes.get("/inbox")
async def inbox(web: Backend, request: Request, query: InboxPageQuery) -> Reply:
    """What waits for a person, to be answered in place."""
    from muster.web.pages.needs import needs_of
    from muster.web.pages.render import page

    return page(
        request,
        "inbox.html",
        live=await live_of(web),
        done=query.done,
        needs=await needs_of(web, query.plan, most=NEEDS_MAX),
        plan=query.plan,
        task_actions=TASK_ACTIONS,
        done_actions=TASK_BUTTONS,
    )


ASKED_CHARS_MAX = 500
"""Of a name that is looked for: what is longer is the name of nothing."""


class FindQuery(Query, frozen=True, kw_only=True):
    q: str = ""


@routes.get("/find")
async def find(web: Backend, request: Request, query: FindQuery) -> Reply:  # noqa: ARG001
    """The page of the plan or the task of that name, or of the one task whose name begins so; else the tasks with
    that in their titles, and all tasks where none has it.
    """
    asked = query.q.strip()[:ASKED_CHARS_MAX]
    try:
        found = await place_of(web, asked) if asked else "/tasks"
    except NotFound:
        found = await _of_text(web, asked)
    return back_to({}, found)


async def _of_text(web: Backend, text: str) -> str:
    """Where the tasks are shown that have it in their titles or names; where none has it, all of them."""
    found = await _with_text(web, text)
    if len(found) == 1:
        return f"/tasks/{found[0].id}"
    return f"/tasks?{'text' if found else 'missed'}={quote(text, safe='')}"


async def _with_text(web: Backend, text: str) -> list[TaskView]:
    """One, or two of those that there are."""
    return await web.queries.tasks(TaskFilter(text=text, limit=2)) if len(text) <= SOUGHT_CHARS_MAX else []


async def place_of(web: Backend, name: str) -> str:
    """Where what is called so is shown.  Raises NotFound and Ambiguous."""
    if any(plan.name == name for plan in await web.queries.plans()):
        return f"/plans/{quote(name, safe='')}"
    task_id, epoch = await web.queries.resolve(name)
    return f"/tasks/{task_id}?attempt={epoch}" if epoch else f"/tasks/{task_id}"


async def why_missed(web: Backend, name: str) -> str:
    """Empty where something is called so, or begins so, or has it in its title."""
    try:
        await place_of(web, name)
    except NotFound as error:
        return "" if await _with_text(web, name) else error.message
    except Ambiguous:
        pass
    return ""


@routes.post("/pools/{pool}/open")
async def open_pool(web: Backend, request: Request, pool: str) -> Reply:  # noqa: ARG001
    """A person has seen to it: its provider may be asked again."""
    fields = posted(request)
    reply = await ask_api(request, f"/api/v1/pools/{quote(pool, safe='')}/open", {})
    return reply if reply.status >= 400 else back_to(fields, "/inbox")


@routes.post("/theme")
async def choose_theme(web: Backend, request: Request) -> Reply:  # noqa: ARG001
    """Light, dark, or as the system has it: kept in this browser."""
    fields = posted(request)
    shown = back_to(fields, "/")
    return replace(shown, headers=(*shown.headers, theme_cookie(fields.get("theme", ""))))
