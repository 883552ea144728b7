"""When a plan will be done, and how good such forecasts were.  Pure.

The method, as the page states it: a task takes as long as the middle one of the plan's tasks that are done, from
the start of its last attempt to its end.  Of a task at work only those count that took longer than it has so far;
where none did, it takes a part of that time more.  What is left is laid out in the order of its dependencies, the
longest chain first, on as many places as the plan has used at once so far.  The range is the same with the first
and the third quarter in place of the middle.  What waits for a person, and what waits for that, is not counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import NamedTuple

from muster.model.plan_graph import lengths_below

LEAST_DONE = 3
"""Fewer tell nothing."""
BEYOND = (0.25, 0.5, 1.0)
"""Such parts of its time what takes longer than any other goes on: the first quarter, the middle, the third."""
ERRORS_MAX = 20


class TimedTask(NamedTuple):
    parents: tuple[int, ...]
    begun_ms: int | None
    ended_ms: int | None
    """When it was completed."""
    stands: bool = False
    """Nothing moves it before a person does something."""
    over: bool = False
    """It ended in another way: nothing of it is left to be done."""
    group: bool = False
    """It takes no time itself: it is over with what it waits for."""


class Forecast(NamedTuple):
    end_ms: int
    early_ms: int
    late_ms: int
    typical_ms: int
    at_once: int
    left: int
    """How many tasks were laid out."""
    stand: int
    """How many were not, for they wait for a person, or for one that does."""
    beyond: int
    """How many are at work for longer than any took that is done."""


def forecast(tasks: Mapping[int, TimedTask], now_ms: int) -> Forecast | None:
    """None where too few are done, or nothing is left."""
    took = [
        one.ended_ms - one.begun_ms
        for one in tasks.values()
        if one.ended_ms is not None and one.begun_ms is not None
    ]
    standing = _standing(tasks)
    left = {
        number: one
        for number, one in tasks.items()
        if one.ended_ms is None and not one.over and number not in standing
    }
    work = sum(not one.group for one in left.values())
    if len(took) < LEAST_DONE or not work:
        return None
    at_once = peak(tasks, now_ms)
    spans = {number: _spans_of(one, now_ms, took) for number, one in left.items()}
    early, middle, late = (
        _laid_out(left, now_ms, {number: span[part] for number, span in spans.items()}, at_once)
        for part in range(3)
    )
    typical = round(_quarters(took)[1])
    beyond = sum(_at_work_ms(one, now_ms) >= max(took) for one in left.values() if one.begun_ms is not None)
    return Forecast(middle, early, late, typical, at_once, work, len(standing), beyond)


def missed_by(tasks: Mapping[int, TimedTask]) -> float | None:
    """By which part of what was left the forecast was wrong when half of this plan was done.

    None: it is not over, or too small to tell.
    """
    ends = sorted(one.ended_ms for one in tasks.values() if one.ended_ms is not None)
    open_ones = any(one.ended_ms is None and not one.over for one in tasks.values())
    if open_ones or len(ends) < 2 * LEAST_DONE:
        return None
    then_ms, end_ms = ends[(len(ends) - 1) // 2], ends[-1]
    known = {number: _as_of(one, then_ms) for number, one in tasks.items()}
    told = forecast(known, then_ms)
    if told is None or end_ms <= then_ms:
        return None
    return abs(told.end_ms - end_ms) / (end_ms - then_ms)


def peak(tasks: Mapping[int, TimedTask], now_ms: int) -> int:
    """How many of them were at work at once, at most; at least 1."""
    steps: list[tuple[int, int]] = []
    for one in tasks.values():
        if one.begun_ms is not None and not one.over:
            ended = now_ms if one.ended_ms is None else one.ended_ms
            steps += [(one.begun_ms, 1), (ended, -1)]
    most = now = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return max(1, most)


def _as_of(one: TimedTask, then_ms: int) -> TimedTask:
    begun = one.begun_ms if one.begun_ms is not None and one.begun_ms <= then_ms else None
    ended = one.ended_ms if one.ended_ms is not None and one.ended_ms <= then_ms else None
    return one._replace(begun_ms=begun, ended_ms=ended, stands=False)


def _standing(tasks: Mapping[int, TimedTask]) -> set[int]:
    children: dict[int, list[int]] = {}
    for number, one in tasks.items():
        for parent in one.parents:
            children.setdefault(parent, []).append(number)
    found: set[int] = set()
    todo = [number for number, one in tasks.items() if one.stands]
    while todo:
        number = todo.pop()
        if number not in found and tasks[number].ended_ms is None and not tasks[number].over:
            found.add(number)
            todo += children.get(number, [])
    return found


def _laid_out(left: Mapping[int, TimedTask], now_ms: int, took: Mapping[int, float], places: int) -> int:
    """When the last of them ends."""
    parents: dict[int, Sequence[int]] = {
        number: [parent for parent in one.parents if parent in left] for number, one in left.items()
    }
    below = lengths_below(parents, took)
    waits = {number: len(above) for number, above in parents.items()}
    children: dict[int, list[int]] = {}
    for number, above in parents.items():
        for parent in above:
            children.setdefault(parent, []).append(number)
    # What is at work already has its place.
    ready = [(left[number].begun_ms is None, -below[number], number) for number in left if not waits[number]]
    heapq.heapify(ready)
    at_work: list[tuple[float, int]] = []
    now = float(now_ms)
    while ready or at_work:
        while ready and len(at_work) < places:
            _, _, number = heapq.heappop(ready)
            heapq.heappush(at_work, (now + took[number], number))
        now, done = heapq.heappop(at_work)
        for child in children.get(done, ()):
            waits[child] -= 1
            if not waits[child]:
                heapq.heappush(ready, (left[child].begun_ms is None, -below[child], child))
    return round(now)


def _spans_of(one: TimedTask, now_ms: int, took: Sequence[int]) -> tuple[float, ...]:
    """What it still takes: in the first quarter, the middle and the third."""
    if one.group:
        return (0.0, 0.0, 0.0)
    so_far = _at_work_ms(one, now_ms)
    longer = [each for each in took if each > so_far] if one.begun_ms is not None else took
    if not longer:
        return tuple(part * so_far for part in BEYOND)
    return tuple(each - so_far for each in _quarters(longer))


def _at_work_ms(one: TimedTask, now_ms: int) -> int:
    return 0 if one.begun_ms is None else max(0, now_ms - one.begun_ms)


def _quarters(took: Sequence[int]) -> Sequence[float]:
    return quantiles(took, n=4, method="inclusive") if len(took) > 1 else (took[0],) * 3
