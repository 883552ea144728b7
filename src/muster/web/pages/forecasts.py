"""When a plan will be done, as its page tells it, with how wrong such forecasts were in past plans."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import NamedTuple, TypeVar

from muster.engine.needy import standing
from muster.model.forecast import ERRORS_MAX, forecast, missed_by
from muster.model.json_value import Json
from muster.model.outlines import TaskOutline
from muster.model.states import FINAL
from muster.model.views import PlanView
from muster.web.backend import Backend
from muster.web.pages.plan_drawing import Chart, DrawnGraph, graph

T = TypeVar("T")

RECKONED_MAX = 10_000
"""Tasks; plans of more are not looked at."""
PORTION = 2000
"""Tasks that are read at once: in between the owner answers others."""
AT_ONCE_MAX = 500
"""What is reckoned of more tasks is reckoned beside the owner's loop."""
STEPS = 12
"""Of the chain that decides, where a plan is not shown whole."""
LOOKED_MAX, LOOKED_TASKS_MAX = 3, 5000
"""Past plans that are read for one page, and tasks of them after which no other is; what they tell is kept."""
_KEPT_MAX = 1000

_missed: OrderedDict[tuple[int, int, tuple[tuple[str, int], ...]], float | None] = OrderedDict()
"""By workspace, plan and its counts: a plan that is over tells the same for ever."""


class PlanPicture(NamedTuple):
    """What is reckoned of all tasks of a plan."""

    forecast: Json
    """With how wrong it was in past plans."""
    critical: list[Json]
    """The chain that decides, or the first of it that are still open."""
    more: int
    """How many are behind these."""
    linked: bool
    """Something waits for something."""
    graph: DrawnGraph | None
    settled: bool


async def picture_of(
    web: Backend, plan: PlanView, *, settled: bool, chart: Chart | None = None, drawn: bool = True
) -> PlanPicture:
    """Of a plan that is shown whole with its `chart`; else what is `drawn` is only drawn where it is wanted."""
    errors = await _errors(web, plan.name)
    whole = chart is not None
    known = chart or await chart_of(web, plan.id)
    now_ms = time.time_ns() // 1_000_000
    limits = web.queries.limits
    reckon = partial(_picture, known, errors, now_ms, limits, settled=settled, whole=whole, drawn=drawn)
    return await _reckoned(known, reckon)


def _picture(
    chart: Chart,
    errors: list[float],
    now_ms: int,
    limits: Mapping[str, int],
    *,
    settled: bool,
    whole: bool,
    drawn: bool,
) -> PlanPicture:
    timed = chart.timed()
    end = forecast(timed, now_ms, limits)
    chain = chart.critical(timed, now_ms)
    steps = [chart.tasks[number] for number in chain if not chart.tasks[number].is_group]
    if len(steps) == 1:
        steps = []  # it decides nothing
    left = steps if whole else [step for step in steps if step.status not in FINAL]
    shown = left if whole else left[:STEPS]
    return PlanPicture(
        forecast={
            "end": end._asdict() if end else None,
            "now_ms": now_ms,
            "plans": len(errors),
            "percent": round(100 * median(errors)) if errors else None,
        },
        critical=[{"id": step.id, "name": step.key} for step in shown],
        more=len(left) - len(shown),
        linked=any(chart.parents.values()),
        graph=graph(chart, chain) if drawn else None,
        settled=settled,
    )


async def _errors(web: Backend, name: str) -> list[float]:
    """Of the newest past plans."""
    over = [plan for plan in await web.queries.plans() if plan.name != name and _is_over(plan)]
    found: list[float] = []
    looked = tasks = 0
    for plan in sorted(over, key=lambda plan: -plan.id)[:ERRORS_MAX]:
        known = (web.workspace_id, plan.id, tuple(sorted(plan.counts.items())))
        if known not in _missed:
            if looked == LOOKED_MAX or tasks >= LOOKED_TASKS_MAX:
                continue
            looked, tasks = looked + 1, tasks + sum(plan.counts.values())
            chart = await chart_of(web, plan.id)
            _missed[known] = await _reckoned(chart, partial(_missed_by, chart, web.queries.limits))
            while len(_missed) > _KEPT_MAX:
                _missed.popitem(last=False)
        error = _missed[known]
        if error is not None:
            found.append(error)
    return found


def _is_over(plan: PlanView) -> bool:
    open_ones = sum(number for status, number in plan.counts.items() if status not in set(map(str, FINAL)))
    return not open_ones and 0 < sum(plan.counts.values()) <= RECKONED_MAX


def _missed_by(chart: Chart, limits: Mapping[str, int]) -> float | None:
    return missed_by(chart.timed(), limits)


async def _reckoned(chart: Chart, reckon: Callable[[], T]) -> T:
    return reckon() if len(chart.tasks) <= AT_ONCE_MAX else await asyncio.to_thread(reckon)


async def chart_of(web: Backend, plan_id: int) -> Chart:
    """Of all of its tasks."""
    tasks: list[TaskOutline] = []
    while True:
        page = await web.reads.outlines(plan_id, tasks[-1].id if tasks else 0, PORTION)
        tasks += page
        if len(page) < PORTION:
            break
        await asyncio.sleep(0)
    return Chart.of(tasks, await standing(web.queries.tasks, tasks))
