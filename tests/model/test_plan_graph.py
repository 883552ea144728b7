"""Chains of a plan, and forecasts of its end."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.model.forecast import TimedTask, forecast, missed_by, peak, quarters
from muster.model.plan_graph import critical_path, depths, downwards
from muster.model.shown import span

DIAMOND = {4: [2, 3], 2: [1], 3: [1], 1: []}


def test_each_stands_below_what_it_waits_for() -> None:
    assert depths(DIAMOND) == {1: 1, 2: 2, 3: 2, 4: 3}
    order = list(downwards(DIAMOND))
    assert sorted(order) == [1, 2, 3, 4] and order[0] == 1 and order[-1] == 4


def test_the_chain_that_takes_longest_decides() -> None:
    assert critical_path(DIAMOND, {1: 1, 2: 1, 3: 5, 4: 1}) == [1, 3, 4]
    assert critical_path(DIAMOND, {1: 1, 2: 6, 3: 5, 4: 1}) == [1, 2, 4]
    assert critical_path({}, {}) == []


def test_a_chain_may_be_long() -> None:
    chain = {number: [number - 1] if number else [] for number in range(5000, -1, -1)}
    assert len(critical_path(chain, dict.fromkeys(chain, 1.0))) == 5001


def done(begun: int, ended: int, *parents: int) -> TimedTask:
    return TimedTask(parents, begun, ended)


def test_what_is_left_is_laid_out_in_its_order() -> None:
    tasks = {1: done(0, 10), 2: done(0, 10), 3: done(10, 20, 1)}
    chain = tasks | {4: TimedTask((3,), None, None), 5: TimedTask((4,), None, None)}
    told = forecast(chain, 20)
    assert told is not None
    assert (told.end_ms, told.typical_ms, told.at_once, told.left) == (40, 10, 2, 2)
    wide = tasks | {number: TimedTask((3,), None, None) for number in range(4, 9)}
    told = forecast(wide, 20)
    assert told is not None and told.end_ms == 50, "five of them, two at once"


def test_one_that_is_at_work_has_begun_already() -> None:
    tasks = {1: done(0, 100), 2: done(0, 100), 3: done(0, 100), 4: TimedTask((), 100, None)}
    told = forecast(tasks, 140)
    assert told is not None and told.end_ms == 200
    late = forecast(tasks, 400)
    assert late is not None and late.end_ms == 550, "it takes longer than the others, and some time still"


def test_one_that_takes_longer_than_usual_takes_as_long_as_such_ones() -> None:
    tasks = {number: done(0, 10 * number) for number in range(1, 6)}
    told = forecast(tasks | {9: TimedTask((), 100, None)}, 135)
    assert told is not None and (told.early_ms, told.end_ms, told.late_ms, told.beyond) == (142, 145, 148, 0)
    beyond = forecast({n: done(0, 1) for n in range(3)} | {9: TimedTask((), 0, None)}, 480_000)
    assert beyond is not None and (beyond.end_ms, beyond.beyond) == (720_000, 1)
    assert (beyond.early_ms, beyond.late_ms) == (600_000, 960_000)


def test_the_range_is_that_of_the_others() -> None:
    took = {number: done(0, 10 * number) for number in range(1, 6)}
    told = forecast(took | {9: TimedTask((), None, None)}, 50)
    assert told is not None
    assert (told.early_ms, told.end_ms, told.late_ms) == (70, 80, 90)


def test_what_waits_for_a_person_is_not_counted() -> None:
    tasks = {number: done(0, 10) for number in range(1, 4)}
    tasks |= {4: TimedTask((), None, None, stands=True), 5: TimedTask((4,), None, None)}
    assert forecast(tasks, 20) is None
    told = forecast(tasks | {6: TimedTask((), None, None)}, 20)
    assert told is not None and (told.left, told.stand) == (1, 2)
    assert forecast({1: done(0, 10), 2: TimedTask((), None, None)}, 20) is None, "one tells nothing"


def test_what_ended_otherwise_keeps_nobody_waiting() -> None:
    tasks = {number: done(0, 10) for number in range(1, 4)}
    tasks |= {4: TimedTask((), 0, None, over=True), 5: TimedTask((4,), None, None)}
    told = forecast(tasks, 20)
    assert told is not None and told.left == 1


def test_a_group_takes_no_time_and_passes_on_the_order() -> None:
    tasks = {1: done(0, 10), 2: done(10, 20), 3: done(20, 30), 4: TimedTask((3,), None, None)}
    tasks |= {5: TimedTask((4,), None, None, group=True), 6: TimedTask((5,), None, None)}
    told = forecast(tasks, 30)
    assert told is not None and (told.end_ms, told.left) == (50, 2)


TENS = {number: done(0, 10) for number in range(1, 4)}
"""Three places at once, and what is left takes 10."""


def todo(*parents: int, priority: int = 5, **changes: Any) -> TimedTask:
    return TimedTask(parents, None, None, order=(-priority,), **changes)


def test_nothing_begins_before_its_time() -> None:
    told = forecast(TENS | {4: todo(due_ms=1000), 5: todo(4), 6: todo()}, 20)
    assert told is not None and (told.end_ms, told.left, told.due) == (1020, 3, 1)
    passed = forecast(TENS | {4: todo(due_ms=15), 5: todo(4)}, 20)
    assert passed is not None and (passed.end_ms, passed.due) == (40, 0)
    behind = forecast(TENS | {4: todo(), 5: todo(4, due_ms=25), 6: todo(4, due_ms=45)}, 20)
    assert behind is not None and behind.end_ms == 55, "one is due before it is its turn, one later"


def test_a_place_stays_free_until_something_is_due() -> None:
    one = {1: done(0, 10), 2: done(10, 20), 3: done(20, 30)}
    told = forecast(one | {4: todo(due_ms=45, priority=9), 5: todo(), 6: todo(due_ms=45)}, 30)
    assert told is not None and (told.at_once, told.end_ms) == (1, 65), "30 to 40, then 45 to 55 and 55 to 65"


def test_of_one_limit_no_more_are_at_work_than_it_has_places() -> None:
    limited = {number: todo(limit="gpu") for number in range(4, 10)}
    free = {number: todo() for number in range(10, 13)}
    ends = [
        told.end_ms
        for limits in ({}, {"gpu": 1}, {"gpu": 2}, {"other": 1})
        if (told := forecast(TENS | limited | free, 20, limits))
    ]
    assert ends == [50, 80, 50, 50], "nine on three places; six one by one; two of six and one of three"
    told = forecast(TENS | limited | free, 20, {"gpu": 1})
    assert told is not None and told.limited == 6


def test_what_is_at_work_has_its_place_of_the_limit() -> None:
    busy = TENS | {4: TimedTask((), 15, None, limit="gpu"), 5: todo(limit="gpu", priority=9)}
    told = forecast(busy, 20, {"gpu": 1})
    assert told is not None and told.end_ms == 35, "until 25, then 10 more"
    waits = forecast(busy | {6: TimedTask((), 15, None, limit="gpu")}, 20, {"gpu": 1})
    assert waits is not None and waits.end_ms == 35, "more are at work than may be by now"


def test_what_is_ready_begins_as_the_crew_hands_it_out() -> None:
    four = {number: done(0, 10) for number in range(1, 5)}
    alone = four | {9: TimedTask((), 10, None), 8: TimedTask((), 10, None)}
    chain = {20: todo(priority=1), 21: todo(20)}
    wide = {number: todo() for number in range(10, 14)}
    told = forecast(alone | chain | wide, 10)
    assert told is not None and told.at_once == 4 and told.end_ms == 40, (
        "20 waits until the others have begun"
    )
    sooner = forecast(alone | {20: todo(priority=9), 21: todo(20)} | wide, 10)
    assert sooner is not None and sooner.end_ms == 30


def test_a_group_takes_no_place() -> None:
    one = {1: done(0, 10), 2: done(10, 20), 3: done(20, 30)}
    tasks = one | {4: todo(priority=9), 5: TimedTask((), None, None, group=True), 6: todo(5, priority=10)}
    told = forecast(tasks, 30)
    assert told is not None and (told.end_ms, told.left) == (50, 2)


def test_past_plans_are_laid_out_likewise() -> None:
    first = {n: done(0, 10) for n in range(3)}
    one_by_one = {n: done(10 * n - 20, 10 * n - 10)._replace(limit="gpu") for n in (3, 4, 5)}
    assert missed_by(first | one_by_one, {"gpu": 1}) == 0.0
    assert missed_by(first | one_by_one) == 2 / 3, "all three at once"
    later = {n: done(100, 110)._replace(due_ms=100) for n in (3, 4, 5)}
    assert missed_by(first | later) == 0.0


def test_a_past_plan_tells_how_wrong_it_was() -> None:
    even = {number: done(10 * number, 10 * number + 10) for number in range(6)}
    assert missed_by(even) == 0.0
    slower = {n: done(10 * n, 10 * n + 10) for n in range(3)} | {
        n: done(20 * n - 30, 20 * n - 10) for n in (3, 4, 5)
    }
    assert missed_by(slower) == 0.5, "30 was told of what took 60"
    assert missed_by(even | {9: TimedTask((), None, None)}) is None, "it is not over"
    assert missed_by({number: done(0, 10) for number in range(3)}) is None


def test_how_many_were_at_work_at_once() -> None:
    assert peak({1: done(0, 10), 2: done(10, 20), 3: done(15, 20)}, 30) == 2
    assert peak({}, 0) == 1


def test_a_time_and_its_range_are_told_in_one_unit() -> None:
    assert span(72_000, 90_000, 130_000) == ("72s", "90s", "130s")
    assert span(72_000, 118_000, 120_000) == ("1m", "2m", "2m")
    assert span(59_000, 118_000, 121_000) == ("59s", "118s", "121s"), "the first is no minute"
    assert span(-5, 0, 400) == ("1s", "1s", "1s")
    assert span(3 * 3_600_000, 4 * 3_600_000, 4 * 3_600_001) == ("3h", "4h", "5h")
    assert span(10 * 3_600_000, 50 * 3_600_000, 60 * 3_600_000) == ("10h", "50h", "60h")
    assert span(64 * 86_400_000, 64 * 86_400_000 + 5, 65 * 86_400_000) == ("64d", "64d", "65d")


SPANS = st.lists(st.integers(0, 10**11), min_size=3, max_size=3).map(sorted)


@given(SPANS)
def test_no_range_contradicts_its_middle(times: list[int]) -> None:
    told = span(*times)
    numbers = [int(one[:-1]) for one in told]
    assert len({one[-1] for one in told}) == 1 and 1 <= numbers[0] <= numbers[1] <= numbers[2]


TIMES = st.lists(st.integers(0, 10**10), min_size=2, max_size=50).map(sorted)


@given(TIMES, st.data())
def test_quarters_are_those_of_the_standard_library(took: list[int], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(took) - 2))
    assert list(quarters(took, begin)) == quantiles(took[begin:], n=4, method="inclusive")
    assert quarters(took, len(took) - 1) == (took[-1],) * 3, "of a single one"


class CountedTime(int):
    """Knows how often two such times were compared."""

    compared = 0

    def __sub__(self, other: int) -> CountedTime:
        return CountedTime(int(self) - int(other))

    def __lt__(self, other: int) -> bool:
        CountedTime.compared += 1
        return int(self) < int(other)


def test_twice_the_tasks_do_not_take_four_times_as_long() -> None:
    def compared(number: int) -> int:
        CountedTime.compared = 0
        tasks = {at: done(CountedTime(at), CountedTime(3 * at + 5)) for at in range(number)}
        tasks |= {at: TimedTask((at - number,), None, None) for at in range(number, 2 * number)}
        assert forecast(tasks, number) is not None
        return CountedTime.compared

    assert 0 < compared(400) < 2.5 * compared(200)
