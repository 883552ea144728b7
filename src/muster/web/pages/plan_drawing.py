"""A plan as drawings: which task waits for which, and when each was at work.  Numbers for templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from muster.model.forecast import TimedTask, typical_ms
from muster.model.json_value import Json
from muster.model.outlines import TaskOutline
from muster.model.plan_graph import critical_path, depths
from muster.model.shown import COUNT_WORDS
from muster.model.states import FINAL, TaskStatus
from muster.model.task import is_gone
from muster.model.why import state_of

DRAWN_MAX = 300
"""Boxes; a graph of more is a thicket."""
BOX_W, BOX_H, GAP_X, GAP_Y = 170, 30, 50, 12
NAME_CHARS = 20
TELLING = ("failed", "paused", "stopping", "running", "assigned")
"""How a box looks of which any task is so; else as most of them."""
GANTT_W = 1000
ROW_H = 18
BAR_MIN = 3


class DrawnTask(NamedTuple):
    id: int
    x: int
    y: int
    name: str
    look: str
    title: str
    critical: bool


class DrawnEdge(NamedTuple):
    path: str
    critical: bool


class DrawnGraph(NamedTuple):
    boxes: list[DrawnTask]
    edges: list[DrawnEdge]
    width: int
    height: int
    collapsed: bool = False
    """A box may stand for many tasks."""
    steps: int = 0
    """Of how many steps in a row, whatever their headings; 0: of one, and one heading."""


class GanttBar(NamedTuple):
    id: int
    name: str
    look: str
    x: int
    width: int
    took_ms: int


class Gantt(NamedTuple):
    bars: list[GanttBar]
    begin_ms: int
    end_ms: int


class Chart(NamedTuple):
    """A plan's tasks, each with what it waits for of the same plan."""

    parents: dict[int, list[int]]
    tasks: Mapping[int, TaskOutline]
    standing: Collection[int] = frozenset()
    """Those that nothing moves before a person does something."""

    @classmethod
    def of(cls, tasks: Iterable[TaskOutline], standing: Collection[int]) -> Chart:
        """Of those of them that the plan still has."""
        known = {task.id: task for task in tasks if not is_gone(task.status, task.error)}
        parents = {
            task.id: sorted(number for number in task.after if number in known) for task in known.values()
        }
        return cls(parents, known, standing)

    def timed(self) -> dict[int, TimedTask]:
        return {
            number: timed_of(self.tasks[number], above, stands=number in self.standing)
            for number, above in self.parents.items()
        }

    def critical(self, timed: Mapping[int, TimedTask], now_ms: int) -> list[int]:
        """Of what is left, by how long such tasks usually take; where nothing is, by what each took."""
        usual_ms = typical_ms(timed)
        is_over = all(one.ended_ms is not None or one.over for one in timed.values())
        took = {
            number: float(_took(one, now_ms, usual_ms)) if is_over or one.ended_ms is None else 0.0
            for number, one in timed.items()
        }
        return critical_path(self.parents, took)


def timed_of(task: TaskOutline, parents: Sequence[int], *, stands: bool) -> TimedTask:
    completed = task.status is TaskStatus.COMPLETED
    begun_ms = task.started_at_ms if completed or task.status is TaskStatus.RUNNING else None
    return TimedTask(
        parents=tuple(parents),
        begun_ms=begun_ms,
        ended_ms=task.ended_at_ms if completed else None,
        stands=stands,
        over=task.status in FINAL and not completed and not stands,
        group=task.is_group,
        due_ms=task.next_attempt_at_ms if begun_ms is None else _was_due(task, begun_ms),
        limit=task.limit_key or "",
        order=(task.status is not TaskStatus.ASSIGNED, -task.half_done, -task.priority, task.sort_key),
    )


def _was_due(task: TaskOutline, begun_ms: int) -> int | None:
    """For what time it has waited; somebody may have had it begin before."""
    due_ms = task.not_before_ms
    return due_ms if due_ms is not None and due_ms <= begun_ms else None


def graph(chart: Chart, critical: Sequence[int]) -> DrawnGraph | None:
    """From left to right; None where nothing waits for anything.  Of many tasks those that are equally deep below
    one heading are one box, or those of some steps in a row where that is too many still."""
    if not any(chart.parents.values()):
        return None
    if len(chart.parents) > DRAWN_MAX:
        groups, steps = _groups(chart)
        of = {number: at for at, numbers in groups.items() for number in numbers}
        parents = {at: sorted(_above(chart, at, numbers, of)) for at, numbers in groups.items()}
        chain = list(dict.fromkeys(of[number] for number in critical if number in of))
        drawn = _laid_out(parents, chain, lambda at, place, on: _crowd(chart, groups[at], steps, place, on))
        return drawn._replace(collapsed=True, steps=steps)
    return _laid_out(chart.parents, critical, lambda number, place, on: _box(chart, number, place, on))


Draw = Callable[[int, tuple[int, int], bool], DrawnTask]


def _laid_out(parents: Mapping[int, Sequence[int]], critical: Sequence[int], draw: Draw) -> DrawnGraph:
    columns: dict[int, list[int]] = {}
    for number, depth in depths(parents).items():
        columns.setdefault(depth, []).append(number)
    at: dict[int, tuple[int, int]] = {}
    rows = 0
    for depth in sorted(columns):
        column = sorted(columns[depth], key=lambda number: (_middle(parents[number], at), number))
        rows = max(rows, len(column))
        for row, number in enumerate(column):
            at[number] = ((depth - 1) * (BOX_W + GAP_X) + 2, row * (BOX_H + GAP_Y) + 2)
    chain = set(pairwise(critical))
    on_chain = set(critical)
    boxes = [draw(number, place, number in on_chain) for number, place in at.items()]
    edges = [
        DrawnEdge(_path(at[parent], at[child]), (parent, child) in chain)
        for child, above in parents.items()
        for parent in above
    ]
    edges.sort(key=lambda edge: edge.critical)  # what matters lies on top
    width = len(columns) * (BOX_W + GAP_X) - GAP_X + 4
    return DrawnGraph(boxes, edges, width, rows * (BOX_H + GAP_Y) - GAP_Y + 4)


def _groups(chart: Chart) -> tuple[dict[int, list[int]], int]:
    """Tasks by the first one of those that are drawn as one box, no more than DRAWN_MAX of them; with how many
    steps are one, where headings do not count."""
    deep = depths(chart.parents)
    step = -(-max(deep.values()) // DRAWN_MAX)
    by_heading = _alike(chart, lambda number: (deep[number], *_heading(chart, number)))
    if len(by_heading) <= DRAWN_MAX:
        return by_heading, 0
    return _alike(chart, lambda number: ((deep[number] - 1) // step,)), step


def _alike(chart: Chart, key: Callable[[int], tuple[object, ...]]) -> dict[int, list[int]]:
    found: dict[tuple[object, ...], list[int]] = {}
    for number in chart.parents:
        found.setdefault(key(number), []).append(number)
    return {numbers[0]: numbers for numbers in found.values()}


def _heading(chart: Chart, number: int) -> tuple[str, str]:
    task = chart.tasks[number]
    return task.epic, task.feature


def _above(chart: Chart, group: int, numbers: Sequence[int], of: Mapping[int, int]) -> set[int]:
    return {of[parent] for number in numbers for parent in chart.parents[number]} - {group}


def _crowd(
    chart: Chart, numbers: Sequence[int], steps: int, place: tuple[int, int], critical: bool
) -> DrawnTask:
    """It leads to the first of them that has not ended."""
    if len(numbers) == 1:
        return _box(chart, numbers[0], place, critical)
    looks = Counter(state_of(chart.tasks[one]) for one in numbers)
    left = [one for one in numbers if chart.tasks[one].status not in FINAL]
    first = (left or list(numbers))[0]
    box = _box(chart, first, place, critical)
    heading = " > ".join(filter(None, _heading(chart, first)))
    told = ", ".join(f"{number} {look}" for look, number in looks.most_common())
    of = f"{chart.tasks[numbers[0]].key} … {chart.tasks[numbers[-1]].key}" if steps else heading
    name = f"{len(numbers)}: {of or chart.tasks[first].key}"
    look = next((one for one in TELLING if one in looks), looks.most_common(1)[0][0])
    cut = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
    # Who is told of it hears what others see: by that it is asked for.
    return box._replace(name=cut, look=look, title=f"{name} ({told})")


def _box(chart: Chart, number: int, place: tuple[int, int], critical: bool) -> DrawnTask:
    task = chart.tasks[number]
    name, look = task.key, state_of(task)
    cut = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
    return DrawnTask(number, place[0], place[1], cut, look, f"{name}: {task.title} ({look})", critical)


def _middle(parents: Sequence[int], at: Mapping[int, tuple[int, int]]) -> float:
    """Where what it waits for stands: edges cross less."""
    return sum(at[parent][1] for parent in parents) / len(parents) if parents else 0.0


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + BOX_W, start[1] + BOX_H // 2, end[0], end[1] + BOX_H // 2
    bend = GAP_X // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def gantt(tasks: Iterable[Json], now_ms: int) -> Gantt | None:
    """When the last attempt of each was at work; None where none was.  `tasks` are as the API sends them."""
    spans = [
        (task["startedAtMs"], _end(task, now_ms), task)
        for task in tasks
        if task["startedAtMs"] is not None and not task["isGroup"]
    ]
    if not spans:
        return None
    spans.sort(key=lambda span: (span[0], span[2]["id"]))
    begin, end = spans[0][0], max(end for _, end, _ in spans)
    whole = max(1, end - begin)
    bars = []
    for begun, ended, task in spans:
        x = min(GANTT_W - BAR_MIN, (begun - begin) * GANTT_W // whole)
        width = max(BAR_MIN, min(GANTT_W - x, (ended - begun) * GANTT_W // whole))
        look = task["state"] or COUNT_WORDS[task["status"]]
        bars.append(GanttBar(task["id"], task["key"], look, x, width, ended - begun))
    return Gantt(bars, begin, end)


def _end(task: Json, now_ms: int) -> int:
    """Of its work: one that is not at work any more and not final stopped when it was last heard of."""
    ended: int = task["endedAtMs"] or (now_ms if task["worker"] is not None else task["updatedAtMs"])
    begun: int = task["startedAtMs"]
    return max(ended, begun)


def _took(one: TimedTask, now_ms: int, usual_ms: int) -> int:
    if one.over or one.group:
        return 0
    if one.begun_ms is None:
        return usual_ms
    return one.ended_ms - one.begun_ms if one.ended_ms is not None else max(usual_ms, now_ms - one.begun_ms)
