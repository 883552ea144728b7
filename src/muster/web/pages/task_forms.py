"""What may be done with a task from its page.  Whether it may be done now, the engine says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.model.errors import Conflict, MusterError, NotFound
from muster.model.forms import (
    BULK,
    TASK_ACTIONS,
    Action,
    body_of_form,
    other_question,
    task_action,
    task_button,
)
from muster.model.json_value import Json
from muster.model.views import TaskView
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request, error_reply
from muster.web.pages.forms import ASKED_AGAIN, SEQ, ask_api, back_to, problem_of, refuse_action
from muster.web.routes import Routes
from muster.web.visits import BACK, done_word, posted, stood_on

routes = Routes(pages=True)

SINCE_MAX = 20
"""Events that are shown of what has happened since somebody has looked."""


def offered(tasks: Iterable[Json]) -> list[str]:
    """What may be done with one of these at least, of BULK."""
    possible = {action for task in tasks for action in task["actions"]}
    return [name for name in BULK if name in possible]


@routes.get("/tasks/{task_id:id}/{action}")
async def confirm(web: Backend, request: Request, task_id: int, action: str) -> Reply:
    """A form with what the action needs to know, or a last question."""
    _known(action)
    refuse_action(request, f"/api/v1/agent-tasks/{task_id}/{action}")
    _refuse_impossible((await one_task(web, task_id)).actions, action)
    return await _form(web, request, task_id, action)


@routes.post("/tasks/{task_id:id}/{action}")
async def act(web: Backend, request: Request, task_id: int, action: str) -> Reply:
    """Does it, and shows the page again."""
    from muster.web.pages.render import json_of

    fields = posted(request)
    wanted = _known(action)
    path = f"/api/v1/agent-tasks/{task_id}/{action}"
    try:
        task = await one_task(web, task_id)
        _refuse_other_question(task, fields.get("asked", ""))
        reply = await ask_api(request, path, body_of_form(wanted, fields), if_match=fields.get(SEQ, ""))
    except MusterError as error:
        reply = error_reply(error)
    if reply.status in ASKED_AGAIN:
        return await _form(web, request, task_id, action, refused=reply, fields=fields)
    if reply.status >= 400:
        return reply
    button = task_button(action, json_of(task), fields)
    return back_to(fields, f"/tasks/{task_id}", done_word(request, button))


async def _form(
    web: Backend,
    request: Request,
    task_id: int,
    action: str,
    *,
    refused: Reply | None = None,
    fields: Json | None = None,
) -> Reply:
    """Its form; `refused` with these fields it is for the task as it is now, with what has happened meanwhile."""
    from muster.web.pages.render import json_of, page
    from muster.web.pages.written import written_in

    detail = json_of(await web.queries.task(task_id))
    task, values = detail["task"], fields or {}
    wanted = task_action(action, task)
    seen = values.get(SEQ, "").partition("@")[0]
    since = [one for one in detail["events"] if seen.isdecimal() and one["seq"] > int(seen)]
    return page(
        request,
        "confirm.html",
        status=refused.status if refused else 200,
        action=action,
        wanted=wanted,
        detail=detail,
        task=task,
        problem=problem_of(refused) if refused else None,
        since=since[-SINCE_MAX:],
        possible=action in task["actions"],
        values={field.name: values.get(field.name, "") for field in wanted.fields},
        written=written_in(request),
        back=stood_on(values, f"/tasks/{task_id}"),
        led_from=values.get(BACK, ""),
    )


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


def _refuse_impossible(actions: Sequence[str], action: str) -> None:
    """Raises Conflict."""
    if action not in actions:
        now = ", ".join(actions) or "nothing"
        raise Conflict(f"{action} is not possible now; nothing was changed", f"what is: {now}")
