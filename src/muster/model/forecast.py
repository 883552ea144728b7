"""When a plan will be done, and how good such forecasts were.  Pure.

The method, as the page states it: a task takes as long as the middle one of the plan's tasks that are done, from
the start of its last attempt to its end.  Of a task at work only those count that took longer than it has so far;
where none did, it takes a part of that time more.  What is left is laid out as the crew hands it out: of what
waits for nothing any more the highest priority first, then in its own order, nothing before a time that it waits
for, on as many places as the plan has used at once so far, and of one limit no more at once than the settings
allow.  The range is the same with the first and the third quarter in place of the middle.  What waits for a
person, and what waits for that, is not counted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_DONE = 3
"""Fewer tell nothing."""
BEYOND = (0.25, 0.5, 1.0)
"""Such parts of its time what takes longer than any other goes on: the first quarter, the middle, the third."""
ERRORS_MAX = 20
NO_LIMITS: Mapping[str, int] = {}


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
    due_ms: int | None = None
    """It does not begin before."""
    limit: str = ""
    """It shares the places of this one, where there is such a limit."""
    order: tuple[int, ...] = ()
    """The least of what is ready is handed out first, and of equal ones that with the least number."""


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
    due: int
    """How many wait for a time of their own."""
    limited: int
    """How many share the places of a limit."""


def forecast(
    tasks: Mapping[int, TimedTask], now_ms: int, limits: Mapping[str, int] = NO_LIMITS
) -> Forecast | None:
    """None where too few are done, or nothing is left.  `limits`: most at once by limit; others have none."""
    took = _took(tasks)
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
    order = _Order.of(left, limits)
    early, middle, late = (
        _laid_out(order, now_ms, [spans[number][part] for number in order.numbers], at_once)
        for part in range(3)
    )
    beyond = sum(_at_work_ms(one, now_ms) >= took[-1] for one in left.values() if one.begun_ms is not None)
    due = sum(due_ms > now_ms for due_ms in order.due_ms)
    limited = sum(map(bool, order.limits))
    return Forecast(middle, early, late, round(usual[1]), at_once, work, len(standing), beyond, due, limited)


def typical_ms(tasks: Mapping[int, TimedTask]) -> int:
    """How long the middle one of those took that are done; 1 where none is."""
    took = _took(tasks)
    return max(1, round(quarters(took)[1])) if took else 1


def _took(tasks: Mapping[int, TimedTask]) -> list[int]:
    """Of what is done, the quickest first."""
    return sorted(
        one.ended_ms - one.begun_ms
        for one in tasks.values()
        if one.ended_ms is not None and one.begun_ms is not None
    )


def missed_by(tasks: Mapping[int, TimedTask], limits: Mapping[str, int] = NO_LIMITS) -> float | None:
    """By which part of what was left the forecast was wrong when half of this plan was done.

    None: it is not over, or too small to tell.
    """
    ends = sorted(one.ended_ms for one in tasks.values() if one.ended_ms is not None)
    open_ones = any(one.ended_ms is None and not one.over for one in tasks.values())
    if open_ones or len(ends) < 2 * LEAST_DONE:
        return None
    then_ms, end_ms = ends[(len(ends) - 1) // 2], ends[-1]
    known = {number: _as_of(one, then_ms) for number, one in tasks.items()}
    told = forecast(known, then_ms, limits)
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
    """What is left, in the order in which it is handed out: the same whatever each of it takes."""

    numbers: list[int]
    at_work: list[bool]
    groups: list[bool]
    due_ms: list[int]
    limits: list[str]
    """Empty: it has none."""
    most: Mapping[str, int]
    children: list[list[int]]
    """Their places in `numbers`."""
    waits: list[int]
    """For how many of them each waits."""

    @classmethod
    def of(cls, left: Mapping[int, TimedTask], limits: Mapping[str, int]) -> _Order:
        numbers = sorted(left, key=lambda number: (left[number].order, number))
        tasks = [left[number] for number in numbers]
        at = {number: place for place, number in enumerate(numbers)}
        at_work = [one.begun_ms is not None and not one.group for one in tasks]
        children: list[list[int]] = [[] for _ in numbers]
        waits = [0] * len(numbers)
        for place, one in enumerate(tasks):
            # What is at work waits for nothing any more, whatever was asked of it meanwhile.
            for parent in () if at_work[place] else one.parents:
                if parent in at:
                    children[at[parent]].append(place)
                    waits[place] += 1
        return cls(
            numbers,
            at_work,
            [one.group for one in tasks],
            [0 if one.due_ms is None or one.begun_ms is not None else one.due_ms for one in tasks],
            [one.limit if one.limit in limits else "" for one in tasks],
            limits,
            children,
            waits,
        )


def _children(parents: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, above in parents.items():
        for parent in above:
            found.setdefault(parent, []).append(number)
    return found


class _Layout:
    """Who is at work when, from one moment to the next at which something ends or comes due."""

    def __init__(self, order: _Order, now_ms: int, took: Sequence[float]) -> None:
        self._order = order
        self._took = took
        self.now = float(now_ms)
        self._waits = list(order.waits)
        self._at_work: list[tuple[float, int]] = []
        self._ready: list[int] = []
        self._later: list[tuple[int, int]] = []
        """Those that wait for nothing but a time."""
        self._used = dict.fromkeys(order.most, 0)
        self._held: dict[str, list[int]] = {}
        """Those whose limit had no place when it was their turn: one of them has its turn again for each that is
        given back."""
        for one, at_work in enumerate(order.at_work):
            if at_work:
                self._begin(one)  # it has its place already
        self._free([one for one, waits in enumerate(self._waits) if not waits and not order.at_work[one]])

    def fill(self, places: int) -> None:
        limits, most = self._order.limits, self._order.most
        while self._ready and len(self._at_work) < places:
            one = heapq.heappop(self._ready)
            limit = limits[one]
            if limit and self._used[limit] >= most[limit]:
                heapq.heappush(self._held.setdefault(limit, []), one)
            else:
                self._begin(one)

    def go_on(self) -> bool:
        """To the next moment; False: there is none."""
        if not (self._at_work or self._later):
            return False
        self.now = float(min(heap[0][0] for heap in (self._at_work, self._later) if heap))
        while self._at_work and self._at_work[0][0] <= self.now:
            self._end(heapq.heappop(self._at_work)[1])
        while self._later and self._later[0][0] <= self.now:
            heapq.heappush(self._ready, heapq.heappop(self._later)[1])
        return True

    def _begin(self, one: int) -> None:
        if limit := self._order.limits[one]:
            self._used[limit] += 1
        heapq.heappush(self._at_work, (self.now + self._took[one], one))

    def _end(self, one: int) -> None:
        if limit := self._order.limits[one]:
            self._used[limit] -= 1
            if held := self._held.get(limit):
                heapq.heappush(self._ready, heapq.heappop(held))
        self._free(self._met(one))

    def _met(self, one: int) -> list[int]:
        """Those that have waited for it last."""
        for child in self._order.children[one]:
            self._waits[child] -= 1
        return [child for child in self._order.children[one] if not self._waits[child]]

    def _free(self, todo: list[int]) -> None:
        """They wait for no other."""
        while todo:
            one = todo.pop()
            if self._order.groups[one]:
                todo += self._met(one)
            elif self._order.due_ms[one] > self.now:
                heapq.heappush(self._later, (self._order.due_ms[one], one))
            else:
                heapq.heappush(self._ready, one)


def _laid_out(order: _Order, now_ms: int, took: Sequence[float], places: int) -> int:
    """When the last of them ends."""
    layout = _Layout(order, now_ms, took)
    layout.fill(places)
    while layout.go_on():
        layout.fill(places)
    return round(layout.now)


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
