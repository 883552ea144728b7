"""What tasks have made: diffs, and what brings them on, below `/api/v1/agent-tasks` and `/api/v1/plans`."""

from __future__ import annotations

from muster.model import commands as c
from muster.model.errors import MusterError, NotFound
from muster.model.scalars import Text
from muster.model.states import TaskStatus
from muster.model.wording import task_name
from muster.model.works import PlanMerged, PullOpened, PullProposed, WorkDiff
from muster.ports.works import PullKnown, WorkChange, Works, WorkSeen
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import ActorBody, Query
from muster.web.routes import Routes

routes = Routes()

_TASK = "/api/v1/agent-tasks/{task_id:id}"
_PLAN = "/api/v1/plans/{plan}"


class DiffQuery(Query, frozen=True, kw_only=True):
    attempt: c.Count | None = None
    """Its newest one, where none is named."""


class MergeBody(ActorBody, frozen=True, kw_only=True):
    """What is left out may be anything by now."""

    seen_tip: Text | None = None
    """The `tip` that was looked at: 412 where the plan's branch is elsewhere."""
    seen_into: Text | None = None
    """The branch that it was to go `into`, empty where none was checked out: 412 where that is another one."""
    seen_onto: Text | None = None
    """The commit that it was to go `onto`: 412 where its branch has that no longer."""


class PullBody(ActorBody, frozen=True, kw_only=True):
    """What is left out may be anything by now."""

    seen_tip: Text | None = None
    """The `tip` that was looked at: 412 where something else would be pushed."""
    seen_base: Text | None = None
    """The `base` that it was to go into: 412 where that is another one."""


def works_of(web: Backend) -> Works:
    """Raises NotFound."""
    if web.owner.works is None:
        raise NotFound(
            "what tasks have made is in no git repository here, so it cannot be shown",
            "git init, and git.worktrees = true",
        )
    return web.owner.works


async def pull_known(web: Backend, plan: str, key: str | None = None) -> PullKnown | None:
    """Its pull request, as far as anything is known of one: no page is refused for that."""
    if web.owner.works is None:
        return None
    try:
        ref = plan if key is None else task_name(plan, key)
        return await web.owner.works.pull_known(ref, task=key is not None)
    except MusterError:
        return None


async def change_of_task(web: Backend, task_id: int, epoch: int | None) -> tuple[int, WorkChange]:
    """(the attempt, what it has left).  Raises NotFound."""
    task = await one_task(web, task_id)
    number = epoch or task.epoch
    if not number or await web.reads.attempt(task_id, number) is None:
        missing = f"there is no attempt {number} of it" if number else "it has not run yet"
        raise NotFound(missing, f"muster task show {task_id}")
    return number, await works_of(web).of_attempt(task.plan, task.key, task_id, number)


async def change_of_plan(web: Backend, plan: str) -> WorkChange:
    """Raises NotFound."""
    return await works_of(web).of_plan((await web.queries.plan(plan)).plan.name)


def _answer(change: WorkChange) -> WorkDiff:
    text, listing = change.patch.decode(errors="replace"), change.listing.decode(errors="replace")
    return WorkDiff(base=change.base, head=change.head, diff=text, whole=change.whole, listing=listing)


@routes.get(f"{_TASK}/diff")
async def task_diff(web: Backend, task_id: int, query: DiffQuery) -> WorkDiff:
    """What the task had changed when an attempt of it ended."""
    _, change = await change_of_task(web, task_id, query.attempt)
    return _answer(change)


@routes.get(f"{_PLAN}/diff")
async def plan_diff(web: Backend, plan: str) -> WorkDiff:
    """What the plan's branch has that the branch it would go into has not."""
    return _answer(await change_of_plan(web, plan))


@routes.get(f"{_PLAN}/merge")
async def coming(web: Backend, plan: str) -> PlanMerged:
    """What a merge of the plan's branch would bring.  Nothing is changed."""
    source, done = await _of_plan(web, plan)
    return await works_of(web).coming(plan, source, done)


@routes.post(f"{_PLAN}/merge")
async def merge(web: Backend, plan: str, body: MergeBody) -> PlanMerged:
    """Merges the plan's branch into the one that is checked out where the server runs, or that the repository of
    several servers begins with.

    Nothing is changed where there would be conflicts."""
    source, done = await _of_plan(web, plan)
    seen = WorkSeen(body.seen_tip, body.seen_into, body.seen_onto)
    return await works_of(web).merge(plan, source, done, seen)


@routes.get(f"{_PLAN}/pull-request")
async def plan_proposed(web: Backend, plan: str) -> PullProposed:
    """What a pull request of the plan's branch would be of.  Nothing is pushed, and no forge is asked."""
    return await works_of(web).proposed((await web.queries.plan(plan)).plan.name)


@routes.post(f"{_PLAN}/pull-request")
async def plan_pull_request(web: Backend, plan: str, body: PullBody) -> PullOpened:
    """Pushes the plan's branch, and opens its pull request or brings it up to date."""
    name = (await web.queries.plan(plan)).plan.name
    return await works_of(web).pull_request(name, WorkSeen(body.seen_tip, body.seen_base))


@routes.get(f"{_TASK}/pull-request")
async def task_proposed(web: Backend, task_id: int) -> PullProposed:
    """What a pull request of one task's work would be of.  Nothing is pushed, and no forge is asked."""
    task = await one_task(web, task_id)
    return await works_of(web).proposed(task_name(task.plan, task.key))


@routes.post(f"{_TASK}/pull-request")
async def task_pull_request(web: Backend, task_id: int, body: PullBody) -> PullOpened:
    """Pushes what one task has made, and opens its pull request or brings it up to date."""
    task = await one_task(web, task_id)
    seen = WorkSeen(body.seen_tip, body.seen_base)
    return await works_of(web).pull_request(task_name(task.plan, task.key), seen)


async def _of_plan(web: Backend, plan: str) -> tuple[str | None, frozenset[str]]:
    """Its file, and the boxes that are completed.  Raises NotFound."""
    found = (await web.queries.plan(plan)).plan
    tasks = await web.queries.kept_tasks(plan)
    return found.source, frozenset(task.box for task in tasks if task.status is TaskStatus.COMPLETED)
