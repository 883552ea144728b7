"""The branch of a plan or a task as a pull request: asked for on a page, and shown once it is open."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from muster.model.errors import NotFound
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request
from muster.web.pages.forms import ask_api, refuse_action
from muster.web.routes import Routes
from muster.web.visits import posted
from muster.web.works import works_of

routes = Routes(pages=True)


@routes.get("/plans/{plan}/pull-request")
async def ask_of_plan(web: Backend, request: Request, plan: str) -> Reply:
    """Asks before anything leaves the crew's machine."""
    name = (await web.queries.plan(plan)).plan.name
    return await _question(
        web, request, name, f"/plans/{quote(plan, safe='')}", f"/api/v1/plans/{quote(plan, safe='')}"
    )


@routes.post("/plans/{plan}/pull-request")
async def open_of_plan(web: Backend, request: Request, plan: str) -> Reply:
    """Pushes its branch."""
    posted(request)
    await web.queries.plan(plan)
    part = quote(plan, safe="")
    return await _opened(request, f"/plans/{part}", f"/api/v1/plans/{part}")


@routes.get("/tasks/{task_id:id}/pull-request")
async def ask_of_task(web: Backend, request: Request, task_id: int) -> Reply:
    """As that of a plan."""
    task = await one_task(web, task_id)
    name = task_name(task.plan, task.key)
    return await _question(web, request, name, f"/tasks/{task_id}", f"/api/v1/agent-tasks/{task_id}")


@routes.post("/tasks/{task_id:id}/pull-request")
async def open_of_task(web: Backend, request: Request, task_id: int) -> Reply:  # noqa: ARG001
    """Pushes what it has made."""
    posted(request)
    return await _opened(request, f"/tasks/{task_id}", f"/api/v1/agent-tasks/{task_id}")


async def _question(web: Backend, request: Request, ref: str, path: str, api: str) -> Reply:
    from muster.web.pages.render import page

    refuse_action(request, f"{api}/pull-request")
    missing = None
    try:
        await works_of(web).refuse_unpushed()
    except NotFound as error:
        missing = error
    return page(request, "pull_request.html", ref=ref, path=path, opened=None, missing=missing)


async def _opened(request: Request, path: str, api: str) -> Reply:
    from muster.web.pages.render import page

    reply = await ask_api(request, f"{api}/pull-request", {})
    if reply.status >= 400:
        return reply
    opened = msgspec.json.decode(reply.data)
    return page(request, "pull_request.html", ref=opened["ref"], path=path, opened=opened)
