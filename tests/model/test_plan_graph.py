"""Chains of a plan, and forecasts of its end."""

from __future__ import annotations

from statistics import quantiles

from hypothesis import given
from hypothesis import strategies as st

from muster.model.forecast import TimedTask, forecast, missed_by, peak, quarters
from muster.model.plan_graph import critical_path, depths, downwards, lengths_below

DIAMOND = {4: [2, 3], 2: [1], 3: [1], 1: []}


def test_each_stands_below_what_it_waits_for() -> None:
    assert depths(DIAMOND) == {1: 1, 2: 2, 3: 2, 4: 3}
    order = list(downwards(DIAMOND))
    assert sorted(order) == [1, 2, 3, 4] and order[0] == 1 and order[-1] == 4


def test_the_chain_that_takes_longest_decides() -> None:
    assert critical_path(DIAMOND, {1: 1, 2: 1, 3: 5, 4: 1}) == [1, 3, 4]
    assert critical_path(DIAMOND, {1: 1, 2: 6, 3: 5, 4: 1}) == [1, 2, 4]
    assert critical_path({}, {}) == []
    assert lengths_below(DIAMOND, {1: 1, 2: 1, 3: 5, 4: 1}) == {1: 7, 2: 2, 3: 6, 4: 1}


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
