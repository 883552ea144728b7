"""Budgets of tasks and plans: `/api/v1/budgets`."""

from __future__ import annotations

from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.model.states import PauseReason, TaskStatus
from muster.model.views import TaskFilter
from muster.web.backend import Backend
from muster.web.routes import Routes

routes = Routes()

PAGE = 1000


@routes.post("/api/v1/budgets")
async def set_budget(web: Backend, body: c.SetBudget) -> Answer:
    """Also resumes what the old one has paused."""
    done = await web.engine.execute(body)
    resumes: list[c.Command] = []
    if body.task_id is None:
        if (await web.queries.plan(body.plan)).plan.paused is PauseReason.BUDGET:
            resumes.append(c.ResumePlan(plan=body.plan, actor=body.actor))
        paused = TaskFilter(plan=body.plan, statuses=(TaskStatus.PAUSED,), limit=PAGE)
    else:
        paused = TaskFilter(ids=(body.task_id,))
    resumes += [
        c.Resume(task_id=task.id, actor=body.actor)
        for task in await web.reads.task_views(paused)
        if task.paused_reason is PauseReason.BUDGET
    ]
    for answer in await web.engine.execute_all(resumes):
        # What is refused went another way meanwhile.
        if isinstance(answer, MusterError) and not isinstance(answer, IllegalMove | NotFound):
            raise answer
    return done
