"""When a plan will be done, as its page tells it, with how wrong such forecasts were in past plans."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from statistics import median

from muster.model.forecast import ERRORS_MAX, Forecast, forecast, missed_by
from muster.model.json_value import Json
from muster.model.states import FINAL
from muster.model.views import PlanView, TaskFilter
from muster.web.backend import Backend
from muster.web.pages.plan_drawing import Chart
from muster.web.pages.render import json_of

WHOLE_MAX = 500
"""Tasks; plans of more are not looked at."""
LOOKED_MAX = 3
"""Past plans that are read for one page; what they tell is kept."""
_KEPT_MAX = 1000

_missed: OrderedDict[tuple[int, int, tuple[tuple[str, int], ...]], float | None] = OrderedDict()
"""By workspace, plan and its counts: a plan that is over tells the same for ever."""


async def told_of(web: Backend, name: str, chart: Chart, now_ms: int) -> Json:
    """What the page shows of it."""
    errors = await _errors(web, name)
    found: Forecast | None = forecast(chart.timed(), now_ms)
    return {
        "end": None if found is None else found._asdict(),
        "plans": len(errors),
        "percent": round(100 * median(errors)) if errors else None,
    }


async def _errors(web: Backend, name: str) -> list[float]:
    """Of the newest past plans."""
    over = [plan for plan in await web.queries.plans() if plan.name != name and _is_over(plan)]
    found: list[float] = []
    looked = 0
    for plan in sorted(over, key=lambda plan: -plan.id)[:ERRORS_MAX]:
        known = (web.workspace_id, plan.id, tuple(sorted(plan.counts.items())))
        if known not in _missed:
            if looked == LOOKED_MAX:
                continue
            looked += 1
            _missed[known] = missed_by((await chart_of(web, plan.name)).timed())
            while len(_missed) > _KEPT_MAX:
                _missed.popitem(last=False)
        error = _missed[known]
        if error is not None:
            found.append(error)
    return found


def _is_over(plan: PlanView) -> bool:
    open_ones = sum(number for status, number in plan.counts.items() if status not in set(map(str, FINAL)))
    return not open_ones and 0 < sum(plan.counts.values()) <= WHOLE_MAX


async def chart_of(web: Backend, name: str, tasks: Sequence[Json] | None = None) -> Chart:
    """`tasks` are all of the plan's, where somebody has asked for them already."""
    if tasks is None:
        selection = TaskFilter(plan=name, groups=True, limit=WHOLE_MAX)
        tasks = [json_of(task) for task in await web.queries.tasks(selection)]
    return Chart.of(await web.queries.kept_tasks(name), tasks)
