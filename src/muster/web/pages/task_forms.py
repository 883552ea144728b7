"""What may be done with a task from its page.  Whether it may be done now, the engine says."""

from __future__ import annotations

from collections.abc import Iterable

from muster.model.errors import Conflict, MusterError, NotFound
from muster.model.forms import BULK, TASK_ACTIONS, Action, body_of_form, other_question
from muster.model.json_value import Json
from muster.model.views import TaskView
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request, error_reply
from muster.web.pages.forms import SEQ, ask_api, back_to, refuse_action, refused_form
from muster.web.routes import Routes
from muster.web.visits import posted

routes = Routes(pages=True)


def offered(tasks: Iterable[Json]) -> list[str]:
    """What may be done with one of these at least, of BULK."""
    possible = {action for task in tasks for action in task["actions"]}
    return [name for name in BULK if name in possible]


@routes.get("/tasks/{task_id:id}/{action}")
async def confirm(web: Backend, request: Request, task_id: int, action: str) -> Reply:
    """A form with what the action needs to know, or a last question."""
    from muster.web.pages.render import json_of, page

    wanted = _known(action)
    refuse_action(request, f"/api/v1/agent-tasks/{task_id}/{action}")
    detail = json_of(await web.queries.task(task_id))
    _refuse_impossible(detail["task"]["actions"], action)
    return page(request, "confirm.html", action=action, wanted=wanted, detail=detail, task=detail["task"])


@routes.post("/tasks/{task_id:id}/{action}")
async def act(web: Backend, request: Request, task_id: int, action: str) -> Reply:
    """Does it, and shows the page again."""
    fields = posted(request)
    wanted = _known(action)
    path = f"/api/v1/agent-tasks/{task_id}/{action}"
    try:
        _refuse_other_question(await one_task(web, task_id), fields.get("asked", ""))
        reply = await ask_api(request, path, body_of_form(wanted, fields), if_match=fields.get(SEQ, ""))
    except MusterError as error:
        reply = error_reply(error)
    if reply.status >= 400:
        return refused_form(request, reply, wanted, fields)
    return back_to(fields, f"/tasks/{task_id}", action)


def _refuse_other_question(task: TaskView, asked: str) -> None:
    """Raises Conflict where the answer is one to what it has asked before."""
    from muster.web.pages.render import digest

    if asked and asked != digest(task.question):
        raise other_question(task_name(task.plan, task.key), task.question, task.status)


def _known(action: str) -> Action:
    """Raises NotFound."""
    found = TASK_ACTIONS.get(action)
    if found is None:
        raise NotFound(f"no page has an action {action[:50]!r}", "muster task --help")
    return found


def _refuse_impossible(actions: list[str], action: str) -> None:
    """Raises Conflict."""
    if action not in actions:
        now = ", ".join(actions) or "nothing"
        raise Conflict(f"{action} is not possible now; nothing was changed", f"what is: {now}")
