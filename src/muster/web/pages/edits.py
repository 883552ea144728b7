"""What a task says, and its place in the order of its plan, changed on a page.

Whether it may be, the engine says: of a task that runs only what its agent has not been told.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.edits import KeptTask
from muster.model.errors import BadInput, Conflict, MusterError, NotFound, PreconditionFailed
from muster.model.forms import Action, FormField
from muster.model.json_value import Json
from muster.model.views import TaskView
from muster.model.wording import task_name
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request, error_reply
from muster.web.pages.forms import ASKED_AGAIN, SEQ, ask_api, back_to, problem_of, refuse_action
from muster.web.routes import Routes
from muster.web.visits import done_word, posted

routes = Routes(pages=True)

EDIT = Action(
    "Edit",
    (
        FormField("title", "Title", required=True),
        FormField("description", "Prompt", long=True),
        FormField("priority", "Priority, 1 to 10: the highest first", required=True),
        FormField("sortKey", "Place among tasks of one priority: the lowest first", required=True),
        FormField("dependsOn", "After (names of tasks of its plan, with commas between them)"),
    ),
)
CHANGE = Action("Change it")
"""What its button does."""
SEEN = "seen"
_NUMBERS = frozenset({"priority", "sortKey"})


@routes.get("/tasks/{task_id:id}/edit")
async def ask_edit(web: Backend, request: Request, task_id: int) -> Reply:
    """Its fields as they are."""
    refuse_action(request, f"/api/v1/agent-tasks/{task_id}", "PATCH")
    task = await one_task(web, task_id)
    if "edit" not in task.actions:
        name = task_name(task.plan, task.key)
        raise Conflict(f"{name} cannot be edited: {task.why}; nothing was changed", "look at its page")
    return await _form(web, request, task)


@routes.post("/tasks/{task_id:id}/edit")
async def edit(web: Backend, request: Request, task_id: int) -> Reply:
    """Changes what is another one than it was."""
    fields, path = posted(request), f"/api/v1/agent-tasks/{task_id}"
    refuse_action(request, path, "PATCH")
    try:
        before = _said(await _kept(web, task_id))
        if fields.get(SEEN) != _seen(before):  # what only runs on has another number by now, too
            raise PreconditionFailed(
                f"task {task_id} was edited meanwhile; nothing was changed", "look again"
            )
        body = {
            field.name: _value(field, fields[field.name])
            for field in EDIT.fields
            if field.name in fields and _plain(fields[field.name]) != _plain(before[field.name])
        }
        reply = await ask_api(request, path, body, if_match=fields.get(SEQ, ""), method="PATCH")
    except MusterError as error:
        reply = error_reply(error)
    if reply.status in ASKED_AGAIN:
        return await _form(web, request, await one_task(web, task_id), refused=reply, given=fields)
    if reply.status >= 400:
        return reply
    return back_to({}, f"/tasks/{task_id}", done_word(request, "edit"))


async def _form(
    web: Backend,
    request: Request,
    task: TaskView,
    *,
    refused: Reply | None = None,
    given: Mapping[str, str] | None = None,
) -> Reply:
    """`refused` with what is `given`: what was typed stands in it, and all else as it is now.

    Who has not touched a field takes back nothing that somebody else has written there meanwhile.
    """
    from muster.web.pages.render import digest, json_of, page
    from muster.web.pages.written import written_in

    now = _said(await _kept(web, task.id))
    given = given or {}
    shown = given.get(SEEN, "").split(",")
    seen = dict(zip(now, shown, strict=True)) if len(shown) == len(now) else {}
    typed = {
        name: given[name]
        for name in now
        if name in given and digest(_plain(given[name])) not in {seen.get(name), digest(_plain(now[name]))}
    }
    return page(
        request,
        "edit.html",
        status=refused.status if refused else 200,
        task=json_of(task),
        fields=EDIT.fields,
        button=CHANGE.label,
        now=now | typed,
        others={name: now[name] for name in typed if seen.get(name) != digest(_plain(now[name]))},
        seen=_seen(now),
        problem=problem_of(refused) if refused else None,
        possible="edit" in task.actions,
        written=written_in(request) if typed else [],
    )


def _seen(now: Mapping[str, str]) -> str:
    """As what each field was seen."""
    from muster.web.pages.render import digest

    return ",".join(digest(_plain(text)) for text in now.values())


def _plain(text: str) -> str:
    """As a browser sends it back."""
    return text.replace("\r\n", "\n").strip()


async def _kept(web: Backend, task_id: int) -> KeptTask:
    """Raises NotFound."""
    task = await one_task(web, task_id)
    for found in await web.queries.kept_tasks(task.plan):
        if found.id == task_id:
            return found
    raise NotFound(f"there is no task {task_id}", "muster task list")


def _said(task: KeptTask) -> dict[str, str]:
    return {
        "title": task.title,
        "description": task.description,
        "priority": str(task.priority),
        "sortKey": str(task.sort_key),
        "dependsOn": ", ".join(sorted(name for _, name, _ in task.dependencies)),
    }


def _value(field: FormField, text: str) -> Json | str | int | list[str]:
    """Raises BadInput."""
    text = text.strip()
    if field.name == "dependsOn":
        return [name.strip() for name in text.split(",") if name.strip()]
    if field.name not in _NUMBERS:
        return text
    if not text.removeprefix("-").isdecimal() or len(text) > 12:
        raise BadInput(f"{text[:40]!r} is no number; nothing was changed", field.label)
    return int(text)
