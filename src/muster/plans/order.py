"""How the tasks of a plan follow each other: its order as dependencies, and what may run at once.  Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from msgspec.structs import replace

from muster.model.edits import PlanDocument, PlanTask, is_barrier
from muster.model.states import FREE, PHASES


def ordered(document: PlanDocument, order: str) -> PlanDocument:
    """The plan with what its order means as dependencies; what its tasks say themselves holds as well.

    Where many would wait for many, one group between them is waited for: `api/*` is all that stands below the
    heading API.
    """
    if order == FREE:
        return document
    leaves = _sequence(document.tasks)
    steps = list(_phases(leaves, document.tasks) if order == PHASES else _runs(leaves))
    after: dict[str, list[str]] = {}
    barriers: dict[str, PlanTask] = {}
    """Each by the last task before it."""
    taken: set[str] = set()
    for before, behind in pairwise(steps):
        waited_for = [task.key for task in before]
        if len(before) > 1 and len(behind) > 1:
            barrier = _barrier(before, taken)
            barriers[before[-1].key] = barrier
            waited_for = [barrier.key]
        for task in behind:
            after[task.key] = waited_for
    found: list[PlanTask] = []
    for task in document.tasks:
        more = after.get(task.key)
        depends_on = tuple(dict.fromkeys((*task.depends_on, *more))) if more else task.depends_on
        found.append(replace(task, depends_on=depends_on) if more else task)
        if task.key in barriers:
            found.append(barriers[task.key])
    return replace(document, tasks=tuple(_passed_on(found)))


def _passed_on(tasks: Sequence[PlanTask]) -> Iterator[PlanTask]:
    """A box that is ticked passes on what it waits for: nothing behind it is to overtake that."""
    if not any(task.done for task in tasks):
        yield from tasks
        return
    done: set[str] = set()
    passes: dict[str, list[str]] = {}
    """By what is done, what is still to be done before it."""
    after: dict[str, tuple[str, ...]] = {}
    for task in _topological(tasks):
        more = (
            []
            if task.is_group and not is_barrier(task.key)
            else [one for key in task.depends_on for one in passes.get(key, ())]
        )
        after[task.key] = tuple(dict.fromkeys((*task.depends_on, *more)))
        if task.done or (task.is_group and done.issuperset(after[task.key])):
            done.add(task.key)
            passes[task.key] = [key for key in after[task.key] if key not in done]
    for task in tasks:
        waits_for = after.get(task.key, task.depends_on)
        yield task if waits_for == task.depends_on else replace(task, depends_on=waits_for)


def waves(tasks: Sequence[PlanTask], ended: Collection[str] = ()) -> list[list[str]]:
    """Keys of what is still to be done, by when it may begin at the earliest: each wave after the one before."""
    level: dict[str, int] = {}
    found: list[list[str]] = []
    for task in _topological(tasks):
        begins = max((level[key] for key in task.depends_on if key in level), default=0)
        if task.is_group:
            level[task.key] = begins
        elif not task.done and task.key not in ended:
            level[task.key] = begins + 1
            found += ([] for _ in range(begins + 1 - len(found)))
            found[begins].append(task.key)
    return found


def _barrier(before: Sequence[PlanTask], taken: set[str]) -> PlanTask:
    last, number = before[-1], 1
    heading, key = last.section.rpartition("*")[0], last.section
    while key in taken:
        number += 1
        key = f"{heading}*{number}"
    taken.add(key)
    return PlanTask(
        key=key,
        title=f"all of {heading.rstrip('/')}" if heading else "all before the first heading",
        depends_on=tuple(task.key for task in before),
        is_group=True,
        epic=last.epic,
        feature=last.feature,
        line=last.line,
    )


def _sequence(tasks: Sequence[PlanTask]) -> list[PlanTask]:
    """What is given out, in the file's order; what waits for something below it comes right behind that."""
    place = {task.key: number for number, task in enumerate(tasks)}
    last: dict[str, int] = {}
    for task in reversed(tasks):
        own = place[task.key]
        last[task.key] = (
            max((last.get(key, place[key]) for key in task.depends_on), default=own) if task.is_group else own
        )
    leaves = [task for task in tasks if not task.is_group]
    if all(last[key] < place[task.key] for task in leaves for key in task.depends_on):
        return leaves
    return [task for task in _topological(tasks) if not task.is_group]


def _topological(tasks: Sequence[PlanTask]) -> Iterator[PlanTask]:
    """Each behind all that it waits for, and otherwise in the given order."""
    place = {task.key: number for number, task in enumerate(tasks)}
    behind: dict[int, list[int]] = {}
    unmet = [0] * len(tasks)
    for number, task in enumerate(tasks):
        for key in task.depends_on:
            if key in place:
                behind.setdefault(place[key], []).append(number)
                unmet[number] += 1
    ready = [number for number, count in enumerate(unmet) if not count]
    while ready:
        number = heapq.heappop(ready)
        yield tasks[number]
        for child in behind.get(number, ()):
            unmet[child] -= 1
            if not unmet[child]:
                heapq.heappush(ready, child)


def _runs(leaves: Iterable[PlanTask]) -> Iterator[list[PlanTask]]:
    """One by one; neighbours below one heading that may run beside each other are one step."""
    for (beside, _), run in groupby(leaves, lambda task: (task.beside, task.section if task.beside else "")):
        if beside:
            yield list(run)
        else:
            yield from ([task] for task in run)


def _phases(leaves: Sequence[PlanTask], tasks: Sequence[PlanTask]) -> Iterator[list[PlanTask]]:
    """Heading after heading; what waits for a task below a later heading is of that one's step."""
    number_of: dict[str, int] = {}
    for task in tasks:
        number_of.setdefault(task.section, len(number_of))
    phase: dict[str, int] = _late(tasks, number_of)
    by_phase: dict[int, list[PlanTask]] = {}
    for task in leaves:
        by_phase.setdefault(phase[task.key], []).append(task)
    for number in sorted(by_phase):
        yield by_phase[number]


def _late(tasks: Sequence[PlanTask], number_of: Mapping[str, int]) -> dict[str, int]:
    phase: dict[str, int] = {}
    for task in _topological(tasks):
        own = 0 if task.is_group else number_of[task.section]
        phase[task.key] = max((own, *(phase[key] for key in task.depends_on if key in phase)))
    return phase
