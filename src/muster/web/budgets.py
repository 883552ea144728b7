"""Budgets of tasks and plans: `/api/v1/budgets`."""

from __future__ import annotations

from muster.model import commands as c
from muster.model.answers import Answer, Done
from muster.model.errors import Conflict, MusterError, NotFound
from muster.model.spending import OF_PLAN, OF_TASK, nearly_used, raised
from muster.model.states import HELD, PauseReason, TaskStatus
from muster.model.views import TaskFilter
from muster.web.backend import Backend
from muster.web.routes import Routes

routes = Routes()

PAGE = 1000


@routes.post("/api/v1/budgets", answer=Done)
async def set_budget(web: Backend, body: c.SetBudget) -> Answer:
    """Also resumes what the old one has paused, and tells those who were told that it is nearly used."""
    done = await web.engine.execute(body)
    follow_ups: list[c.Command] = []
    if body.task_id is None:
        if (await web.queries.plan(body.plan)).plan.paused is PauseReason.BUDGET:
            follow_ups.append(c.ResumePlan(plan=body.plan, actor=body.actor))
        concerned = TaskFilter(plan=body.plan, statuses=(TaskStatus.PAUSED, *HELD), limit=PAGE)
    else:
        concerned = TaskFilter(ids=(body.task_id,))
    whose = OF_PLAN if body.task_id is None else OF_TASK
    told, instead = raised(whose, body.microusd), nearly_used(whose)
    for task in await web.reads.task_views(concerned):
        if task.paused_reason is PauseReason.BUDGET:  # also of one that has not stopped yet
            follow_ups.append(c.Resume(task_id=task.id, actor=body.actor))
        elif task.status in HELD:
            follow_ups.append(c.Notify(task_id=task.id, epoch=task.epoch, text=told, instead=instead))
    for answer in await web.engine.execute_all(follow_ups):
        # What is refused went another way meanwhile, or its own budget is used up.
        if isinstance(answer, MusterError) and not isinstance(answer, Conflict | NotFound):
            raise answer
    return done
