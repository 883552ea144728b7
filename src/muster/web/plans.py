"""Plans as a whole: `/api/v1/plans`."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import BoxesTicked, PlanMoved
from muster.model.edits import (
    CancelPlan,
    Namesake,
    PlanAdded,
    PlanCancelled,
    PlanDiff,
    PlanUpdated,
    UpdatePlan,
)
from muster.model.plan_sync import PlanSynced
from muster.model.scalars import Key
from muster.model.views import PlanView
from muster.web.backend import Backend
from muster.web.http import ActorBody, Body
from muster.web.routes import Routes

routes = Routes()

_PLANS = "/api/v1/plans"
_PLAN = f"{_PLANS}/{{plan}}"


class CancelPlanBody(ActorBody, frozen=True, kw_only=True):
    reason: c.Text = ""
    seen_event: c.Count | None = None
    """The newest event that you have seen (`lastEventId` of the status): a 412 where since then a task was added
    or came back from its end, or the plan was paused or resumed.  Without it all is ended that there is."""


class NamesBody(Body, frozen=True, kw_only=True):
    names: tuple[Key, ...]


class SyncBody(ActorBody, frozen=True, kw_only=True):
    accept: bool | None = None
    """Of what waits for a person: the file is right (true), or the plan is (false)."""
    keys: tuple[c.Name, ...] = ()
    """Of these tasks; else of all."""


@routes.get(_PLANS)
async def plans(web: Backend) -> list[PlanView]:
    """All plans, with their counts and costs."""
    return await web.queries.plans()


routes.command(_PLANS, c.Enqueue, status=201, answer=PlanAdded)
routes.command(f"{_PLANS}/update", UpdatePlan, answer=PlanUpdated)
routes.command(f"{_PLAN}/pause", c.PausePlan, "actor", answer=PlanMoved)
routes.command(f"{_PLAN}/move", c.MovePlan, "actor", "source", answer=PlanMoved)
routes.command(f"{_PLAN}/resume", c.ResumePlan, "actor", answer=PlanMoved)
routes.query(_PLAN, Queries.plan)
routes.query(f"{_PLAN}/tasks", Queries.kept_tasks)
routes.query(f"{_PLAN}/items", Queries.items)


@routes.post(f"{_PLANS}/namesakes")
async def namesakes(web: Backend, body: NamesBody) -> list[Namesake]:
    """Tasks of plans with a file whose boxes have one of these names; what is archived is none of them."""
    return await web.queries.boxes_named(body.names)


@routes.post(f"{_PLANS}/diff")
async def diff(web: Backend, body: UpdatePlan) -> PlanDiff:
    """What `update` with the same body would do, and which boxes differ.  Nothing is changed."""
    return await web.queries.diff(body)


@routes.post(f"{_PLAN}/tick")
async def tick(web: Backend, plan: str) -> BoxesTicked:
    """The boxes of what is done, now and not at the owner's next look."""
    await web.queries.plan(plan)
    return await web.owner.boxes(plan)


@routes.post(f"{_PLAN}/boxes")
async def boxes(web: Backend, plan: str, body: ActorBody) -> BoxesTicked:  # noqa: ARG001 - only a person may
    """All boxes of what is done, also those that somebody has cleared."""
    return await web.owner.boxes(plan, rewrite=True)


@routes.get(f"{_PLAN}/sync")
async def standing(web: Backend, plan: str) -> PlanSynced:
    """How a plan and its file stand to each other.  Nothing is changed."""
    return await web.owner.standing(await web.queries.sync_state(plan))


@routes.post(f"{_PLAN}/sync")
async def sync(web: Backend, plan: str, body: SyncBody) -> PlanSynced:
    """What has changed in its file is taken in now, as far as nobody has to be asked; or that is answered."""
    return await web.owner.sync_plan(plan, body.accept, body.keys, body.actor)


@routes.post(f"{_PLAN}/cancel")
async def cancel(web: Backend, plan: str, body: CancelPlanBody) -> PlanCancelled:
    """Cancels all of it that has not ended."""
    command = CancelPlan(plan=plan, actor=body.actor, reason=body.reason, seen_event=body.seen_event)
    return await _page_by_page(web, command)


@routes.post(f"{_PLAN}/forget")
async def forget(web: Backend, plan: str, body: ActorBody) -> PlanCancelled:
    """Cancels what is left of it, archives all of it, and lets go of its file."""
    reason = "its plan was forgotten"
    return await _page_by_page(web, CancelPlan(plan=plan, actor=body.actor, reason=reason, forget=True))


async def _page_by_page(web: Backend, command: CancelPlan) -> PlanCancelled:
    """So that heartbeats are answered in between."""
    cancelled = stopped = archived = 0
    while True:
        page = await web.engine.execute(command)
        assert isinstance(page, PlanCancelled)
        cancelled, stopped = cancelled + page.cancelled, stopped + page.stopped
        archived += page.archived
        if page.below is None:
            return replace(page, cancelled=cancelled, stopped=stopped, archived=archived)
        command = replace(command, below=page.below)
