"""The branch of a plan or a task as a pull request: asked for on a page, and shown once it is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from muster.model.errors import CallerError
from muster.model.forms import SEEN_PULL
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request
from muster.web.pages.forms import ask_api, problem_of, refuse_action
from muster.web.routes import Routes
from muster.web.visits import posted
from muster.web.works import works_of

routes = Routes(pages=True)


class _Place(NamedTuple):
    """Whose branch it is."""

    ref: str
    path: str
    """Of its page."""
    api: str


@routes.get("/plans/{plan}/pull-request")
async def ask_of_plan(web: Backend, request: Request, plan: str) -> Reply:
    """Asks before anything leaves the crew's machine."""
    name = (await web.queries.plan(plan)).plan.name
    part = quote(plan, safe="")
    return await _question(web, request, _Place(name, f"/plans/{part}", f"/api/v1/plans/{part}"))


@routes.post("/plans/{plan}/pull-request")
async def open_of_plan(web: Backend, request: Request, plan: str) -> Reply:
    """Pushes its branch."""
    fields, name = posted(request), (await web.queries.plan(plan)).plan.name
    part = quote(plan, safe="")
    return await _opened(web, request, fields, _Place(name, f"/plans/{part}", f"/api/v1/plans/{part}"))


@routes.get("/tasks/{task_id:id}/pull-request")
async def ask_of_task(web: Backend, request: Request, task_id: int) -> Reply:
    """As that of a plan."""
    return await _question(web, request, await _of_task(web, task_id))


@routes.post("/tasks/{task_id:id}/pull-request")
async def open_of_task(web: Backend, request: Request, task_id: int) -> Reply:
    """Pushes what it has made."""
    return await _opened(web, request, posted(request), await _of_task(web, task_id))


async def _of_task(web: Backend, task_id: int) -> _Place:
    task = await one_task(web, task_id)
    return _Place(task_name(task.plan, task.key), f"/tasks/{task_id}", f"/api/v1/agent-tasks/{task_id}")


async def _question(web: Backend, request: Request, of: _Place, *, changed: str = "") -> Reply:
    """`changed`: how what would be pushed has, since it was shown."""
    from muster.web.pages.render import json_of, page

    refuse_action(request, f"{of.api}/pull-request")
    missing = coming = None
    try:
        coming = json_of(await works_of(web).proposed(of.ref))
    except CallerError as error:  # a link has led here, which is no mistake of who has followed it
        missing = error
    return page(
        request,
        "pull_request.html",
        status=412 if changed else 200,
        ref=of.ref,
        path=of.path,
        opened=None,
        missing=missing,
        coming=coming,
        changed=changed,
        seen=dict(zip(SEEN_PULL, (coming["tip"], coming["base"]), strict=True)) if coming else {},
    )


async def _opened(web: Backend, request: Request, fields: Mapping[str, str], of: _Place) -> Reply:
    from muster.web.pages.render import page

    seen = {name: fields.get(name, "") for name in SEEN_PULL}
    reply = await ask_api(request, f"{of.api}/pull-request", seen)
    if reply.status == 412:
        return await _question(web, request, of, changed=problem_of(reply)["detail"])
    if reply.status >= 400:
        return reply
    opened = msgspec.json.decode(reply.data)
    return page(request, "pull_request.html", ref=opened["ref"], path=of.path, opened=opened)
