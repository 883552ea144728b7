"""Who has a task: what they say of it is their attempt's word, and anybody else's is a person's."""

from __future__ import annotations

from muster.model.agents import SELF_PREFIX
from muster.model.errors import BadInput, IllegalMove, NotFound, StaleEpoch
from muster.model.people import AGENT, ATTEMPT
from muster.model.task import Attempt
from muster.model.views import TaskFilter, TaskView
from muster.web.backend import Backend
from muster.web.http import Request
from muster.web.identity import HEADER, for_people


async def one_task(web: Backend, task_id: int) -> TaskView:
    """Raises NotFound."""
    found = await web.queries.tasks(TaskFilter(ids=(task_id,)))
    if not found:
        raise NotFound(f"there is no task {task_id}", "muster task list")
    return found[0]


async def speaking(
    web: Backend, request: Request, task_id: int, actor: str, epoch: int | None
) -> Attempt | None:
    """The attempt at this task that asks, by its own token or by who holds it; None: somebody else does.

    Raises Forbidden for an attempt at another task, BadInput where nobody says so.
    """
    if not actor:
        raise BadInput("actor is missing; nothing was changed", "say who does it")
    if actor.startswith(ATTEMPT):
        named, _, number = request.header(HEADER).partition("/")  # its token was looked at already
        if named != str(task_id):
            raise for_people(f"{request.parts[-1]} of task {task_id}", actor)
        return await web.reads.attempt(task_id, int(number))
    found = await web.reads.attempt(task_id, epoch or (await one_task(web, task_id)).epoch)
    if actor.startswith(AGENT):
        return _agents(found, actor, task_id)
    holds = found is not None and found.by_hand and found.worker_id == actor
    over = found is not None and found.ended_at_ms is not None and epoch is None  # none of his is meant then
    return found if holds and not over else None


def _agents(found: Attempt | None, actor: str, task_id: int) -> Attempt:
    """The attempt of an agent that serves itself.  Raises StaleEpoch where it has none there, or no longer."""
    name = actor.removeprefix(AGENT)
    if found is None or found.agent != name or not by_itself(found):
        raise StaleEpoch(
            f"task {task_id} is not held by {actor}; nothing was changed", f"POST /api/v1/agents/{name}/claim"
        )
    return found


def by_itself(attempt: Attempt) -> bool:
    """Its agent serves itself: its word is the last one, no worker follows."""
    return attempt.worker_id.startswith(SELF_PREFIX)


async def holder(web: Backend, request: Request, task_id: int, actor: str, epoch: int | None) -> Attempt:
    """As `speaking`.  Raises IllegalMove where somebody else holds the task, or nobody."""
    found = await speaking(web, request, task_id, actor, epoch)
    if found is None:
        raise IllegalMove(
            f"task {task_id} is not held by {actor}; nothing was changed", f"muster claim take {task_id}"
        )
    return found
