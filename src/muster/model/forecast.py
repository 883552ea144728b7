"""When a plan will be done, and how good such forecasts were.  Pure.

The method, as the page states it: a task takes as long as the middle one of the plan's tasks that are done, from
the start of its last attempt to its end.  Of a task at work only those count that took longer than it has so far;
where none did, it takes a part of that time more.  What is left is laid out in the order of its dependencies, the
longest chain first, on as many places as the plan has used at once so far.  The range is the same with the first
and the third quarter in place of the middle.  What waits for a person, and what waits for that, is not counted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.model.plan_graph import downwards, lengths_below

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
    took = sorted(
        one.ended_ms - one.begun_ms
        for one in tasks.values()
        if one.ended_ms is not None and one.begun_ms is not None
    )
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
    usual = quarters(took)
    spans = {
        number: usual if one.begun_ms is None and not one.group else _spans_of(one, now_ms, took)
        for number, one in left.items()
    }
    order = _Order.of(left)
    early, middle, late = (
        _laid_out(order, now_ms, {number: span[part] for number, span in spans.items()}, at_once)
        for part in range(3)
    )
    beyond = sum(_at_work_ms(one, now_ms) >= took[-1] for one in left.values() if one.begun_ms is not None)
    return Forecast(middle, early, late, round(usual[1]), at_once, work, len(standing), beyond)


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
    todo = [number for number, one in tasks.items() if one.stands]
    children = _children({number: one.parents for number, one in tasks.items()}) if todo else {}
    found: set[int] = set()
    while todo:
        number = todo.pop()
        if number not in found and tasks[number].ended_ms is None and not tasks[number].over:
            found.add(number)
            todo += children.get(number, [])
    return found


class _Order(NamedTuple):
    """What is left, as it may begin: the same whatever each of it takes."""

    begun: dict[int, bool]
    parents: dict[int, Sequence[int]]
    children: dict[int, list[int]]
    upwards: list[int]

    @classmethod
    def of(cls, left: Mapping[int, TimedTask]) -> _Order:
        parents: dict[int, Sequence[int]] = {
            number: [parent for parent in one.parents if parent in left] for number, one in left.items()
        }
        begun = {number: one.begun_ms is not None for number, one in left.items()}
        return cls(begun, parents, _children(parents), list(downwards(parents))[::-1])


def _children(parents: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, above in parents.items():
        for parent in above:
            found.setdefault(parent, []).append(number)
    return found


def _laid_out(order: _Order, now_ms: int, took: Mapping[int, float], places: int) -> int:
    """When the last of them ends."""
    below = lengths_below(order.parents, took, order.upwards)
    waits = {number: len(above) for number, above in order.parents.items()}
    # What is at work already has its place.
    ready = [
        (not order.begun[number], -below[number], number) for number, above in waits.items() if not above
    ]
    heapq.heapify(ready)
    at_work: list[tuple[float, int]] = []
    now = float(now_ms)
    while ready or at_work:
        while ready and len(at_work) < places:
            _, _, number = heapq.heappop(ready)
            heapq.heappush(at_work, (now + took[number], number))
        now, done = heapq.heappop(at_work)
        for child in order.children.get(done, ()):
            waits[child] -= 1
            if not waits[child]:
                heapq.heappush(ready, (not order.begun[child], -below[child], child))
    return round(now)


def _spans_of(one: TimedTask, now_ms: int, took: Sequence[int]) -> tuple[float, ...]:
    """What one at work, or a group, still takes: in the first quarter, the middle and the third.

    `took` is sorted.
    """
    if one.group:
        return (0.0, 0.0, 0.0)
    so_far = _at_work_ms(one, now_ms)
    shorter = bisect_right(took, so_far)
    if shorter == len(took):
        return tuple(part * so_far for part in BEYOND)
    return tuple(each - so_far for each in quarters(took, shorter))


def _at_work_ms(one: TimedTask, now_ms: int) -> int:
    return 0 if one.begun_ms is None else max(0, now_ms - one.begun_ms)


def quarters(took: Sequence[int], begin: int = 0) -> tuple[float, ...]:
    """Of those from there on, which are sorted: as `statistics.quantiles(n=4, method="inclusive")`."""
    last = len(took) - begin - 1
    found = []
    for part in (1, 2, 3):
        at, beyond = divmod(part * last, 4)
        here = took[begin + at]
        there = took[begin + at + 1] if beyond else here
        found.append((here * (4 - beyond) + there * beyond) / 4)
    return tuple(found)
