"""The scheduler, the ticker, and the loop that all services share."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from engine_rig import FakeClock, Rig, complete, fail

from muster.engine.batch import drive
from muster.engine.service import Service
from muster.engine.services import scheduler as scheduler_module
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.ticker import Ticker
from muster.hosts.detached_call import detached_call
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import BadPlan, MusterError, StoreRefused, TermOver
from muster.model.states import ErrorKind
from patience import HOURS_S


def failed(rig: Rig, *keys: str) -> None:
    rig.register()
    rig.enqueue(dict.fromkeys(keys, ()))
    for job in rig.started():
        rig.do(fail(job, ErrorKind.CRASH))
        rig.clock.advance(1)


def scheduler(rig: Rig) -> Scheduler:
    return Scheduler(rig.clock, rig.reads, rig, term=rig.new_boot().term, interval_s=0.5)


# -- scheduler


def test_only_what_is_due_may_be_claimed_again(rig: Rig) -> None:
    failed(rig, "a", "b")
    service = scheduler(rig)
    due_ms = rig.task("a").next_attempt_at_ms or 0
    rig.clock.advance((due_ms - rig.clock.present.wall_ms - 1) / 1000)
    drive(service.run_once())
    assert rig.statuses() == {"a": "ABORTED", "b": "ABORTED"}
    rig.clock.advance(0.001)
    drive(service.run_once())
    assert rig.statuses() == {"a": "PENDING", "b": "ABORTED"}
    assert rig.task("a").ready
    rig.clock.advance(60)
    drive(service.run_once())
    drive(service.run_once())
    assert rig.names("a").count("promoted") == rig.names("b").count("promoted") == 1


def test_a_person_who_was_faster_is_no_error(rig: Rig) -> None:
    failed(rig, "a", "b")
    rig.clock.advance(60)

    class Slow:
        execute = rig.execute

        async def execute_all(self, commands: Sequence[c.Command]) -> list[Answer | MusterError]:
            rig.do(c.Cancel(task_id=rig.id("a"), actor="ada"))
            return await rig.execute_all(commands)

    term = rig.new_boot().term
    drive(Scheduler(rig.clock, rig.reads, Slow(), term=term, interval_s=0.5).run_once())
    assert rig.statuses() == {"a": "CANCELLED", "b": "PENDING"}


def test_a_scheduler_whose_term_is_over_stops(rig: Rig) -> None:
    failed(rig, "a")
    service = scheduler(rig)
    rig.new_boot()
    rig.clock.advance(60)
    with pytest.raises(TermOver):
        drive(service.run_once())
    assert rig.statuses() == {"a": "ABORTED"}


def test_what_is_overdue_beyond_one_page_comes_at_the_next_tick(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "PAGE_ROWS", 2)
    failed(rig, "a", "b", "c")
    rig.clock.advance(60)
    service = scheduler(rig)
    drive(service.run_once())
    assert sorted(rig.statuses().values()) == ["ABORTED", "PENDING", "PENDING"]
    drive(service.run_once())
    assert set(rig.statuses().values()) == {"PENDING"}


# -- ticker


class Files:
    """Plan files as a list of what was ticked."""

    def __init__(self) -> None:
        self.ticked: list[tuple[str, frozenset[str]]] = []
        self.broken: Exception | None = None

    def tick(self, path: str, keys: Collection[str], clear: Collection[str] = ()) -> frozenset[str]:
        if self.broken is not None:
            raise self.broken
        self.ticked.append((path, frozenset(keys)))
        return frozenset({*keys, *clear})


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def tick(rig: Rig, files: Files) -> Any:
    ticker = Ticker(rig.clock, rig.reads, rig, files)
    return lambda: asyncio.run(ticker.run_once())


def test_boxes_are_ticked_once_and_the_cursor_is_kept(rig: Rig, files: Files, tick: Any) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": [], "c": []}, source="/plan.md", specs={"c": {"done": True}})
    rig.enqueue({"x": []}, plan="no file")
    tick()
    assert files.ticked == []
    a, b, x = rig.started()
    rig.apply(complete(a), complete(x))
    tick()
    assert files.ticked == [("/plan.md", frozenset({"a"}))]
    tick()
    asyncio.run(Ticker(rig.clock, rig.reads, rig, files).run_once())
    assert len(files.ticked) == 1, "a box that a person un-ticked since stays so, also under the next owner"
    rig.do(complete(b))
    tick()
    assert files.ticked[1:] == [("/plan.md", frozenset({"b"}))]


@pytest.mark.parametrize("broken", [BadPlan("line 3: no box"), PermissionError("read-only")])
def test_a_file_that_cannot_be_ticked_now_is_ticked_later(
    rig: Rig, files: Files, tick: Any, broken: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []}, source="/plan.md")
    a, b = rig.started()
    rig.do(complete(a))
    files.broken = broken
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tick()
    assert len(caplog.records) == 1, "said once, not every second"
    rig.do(complete(b))
    files.broken = None
    tick()
    assert files.ticked == [("/plan.md", frozenset({"a", "b"}))]
    tick()
    assert len(files.ticked) == 1


def test_one_broken_plan_does_not_hold_up_the_others(rig: Rig, tick: Any, files: Files) -> None:
    rig.register()
    for i in (1, 2):
        rig.enqueue({f"a{i}": []}, source=f"/{i}.md")
    for job in rig.started():
        rig.do(complete(job))
    plain = files.tick

    def choosy(path: str, keys: Collection[str], clear: Collection[str]) -> frozenset[str]:
        if path == "/1.md":
            raise BadPlan("no")
        return plain(path, keys)

    files.tick = choosy  # type: ignore[method-assign]
    tick()
    assert files.ticked == [("/2.md", frozenset({"a2"}))]


def test_a_look_goes_through_what_has_happened_since_the_last_one(rig: Rig, files: Files) -> None:
    """Plans with a million events would else hold up the loop that answers heartbeats, every second."""
    rig.register()
    rig.enqueue({"a": [], "b": []}, source="/plan.md")
    asked: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(rig.reads, name)

    ticker = Ticker(rig.clock, Counted(), rig, files)  # type: ignore[arg-type]
    asyncio.run(ticker.run_once())
    assert asked == ["last_event_id", "plan_sources", "sync_state", "completions"]
    asked.clear()
    a, b = rig.started()
    rig.do(complete(a))
    asyncio.run(ticker.run_once())
    assert asked == ["last_event_id", "plan_sources", "completed_since", "box_names"]
    assert files.ticked == [("/plan.md", frozenset({"a"}))]
    asked.clear()
    asyncio.run(ticker.run_once())
    assert asked == ["last_event_id"]
    files.broken = PermissionError("read-only")
    rig.do(complete(b))
    asyncio.run(ticker.run_once())
    files.broken = None
    asyncio.run(ticker.run_once())
    assert files.ticked[1:] == [("/plan.md", frozenset({"b"}))], "what could not be ticked is not forgotten"


def test_what_is_ticked_is_not_ticked_again_for_the_sake_of_what_was_completed_meanwhile(
    rig: Rig, files: Files
) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []}, source="/plan.md")
    a, b = rig.started()
    rig.do(complete(a))

    async def slow(tick: Callable[..., object], *given: object) -> object:
        ticked = tick(*given)
        if "a" in given[1]:
            rig.do(complete(b))
        return ticked

    ticker = Ticker(rig.clock, rig.reads, rig, files, in_thread=slow)
    asyncio.run(ticker.run_once())
    assert files.ticked == [("/plan.md", frozenset({"a"}))]
    asyncio.run(ticker.run_once())
    assert files.ticked[1:] == [("/plan.md", frozenset({"b"}))]
    asyncio.run(ticker.run_once())
    assert len(files.ticked) == 2


def test_catching_up_takes_one_plan_or_all_and_says_what_waits(rig: Rig, files: Files) -> None:
    rig.register()
    for i in (1, 2):
        rig.enqueue({f"a{i}": []}, source=f"/{i}.md", plan=f"p{i}")
    for job in rig.started():
        rig.do(complete(job))
    ticker = Ticker(rig.clock, rig.reads, rig, files)
    assert asyncio.run(ticker.catch_up("p2")) == ""
    assert files.ticked == [("/2.md", frozenset({"a2"}))]
    files.broken = BadPlan("line 3: no box")
    assert asyncio.run(ticker.catch_up()) == "line 3: no box"
    files.broken = None
    assert asyncio.run(ticker.catch_up()) == ""
    assert files.ticked[1:] == [("/1.md", frozenset({"a1"}))]


@pytest.mark.parametrize("took_s,rests_s", [(0.5, 4.5), (2, 10), (5, 10)])
def test_a_plan_that_takes_long_to_read_is_read_less_often(
    rig: Rig, files: Files, took_s: float, rests_s: float
) -> None:
    rig.register()
    rig.enqueue({"a": []}, source="/plan.md")
    rig.do(complete(rig.started()[0]))

    async def long(tick: Callable[..., object], *given: object) -> object:
        rig.clock.advance(took_s)
        return tick(*given)

    ticker = Ticker(rig.clock, rig.reads, rig, files, in_thread=long)
    asyncio.run(ticker.run_once())
    before = rig.clock.now().mono_ms
    asyncio.run(ticker.pause())
    assert rig.clock.now().mono_ms - before == rests_s * 1000
    asyncio.run(ticker.run_once())
    before = rig.clock.now().mono_ms
    asyncio.run(ticker.pause())
    assert rig.clock.now().mono_ms - before == 1000, "there was nothing to tick"


def test_catching_up_is_over_in_time_whatever_the_disk_does(rig: Rig, files: Files) -> None:
    rig.register()
    rig.enqueue({"a": []}, source="/plan.md")
    rig.do(complete(rig.started()[0]))
    awake = threading.Event()
    files.tick = lambda *_: awake.wait(HOURS_S)  # type: ignore[method-assign, assignment, return-value]
    ticker = Ticker(rig.clock, rig.reads, rig, files, in_thread=detached_call)
    try:
        assert asyncio.run(ticker.catch_up(within_s=0.05)) == "not written within 0.05 s"
    finally:
        awake.set()


def test_a_store_that_refuses_keeps_nobody_from_ending(rig: Rig, files: Files) -> None:
    rig.register()
    rig.enqueue({"a": []}, source="/plan.md")
    rig.do(complete(rig.started()[0]))

    class Full:
        async def execute(self, _: object) -> None:
            raise StoreRefused("the disk is full")

    ticker = Ticker(rig.clock, rig.reads, Full(), files)  # type: ignore[arg-type]
    assert asyncio.run(ticker.catch_up()) == "the disk is full"


# -- the shared loop


class Stop(Exception):
    pass


class Scripted(Service):
    interval_s = 7.0

    def __init__(self, *outcomes: Exception | None) -> None:
        super().__init__(FakeClock())
        self.outcomes = list(outcomes)

    async def run_once(self) -> None:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome


def test_weather_is_said_once_and_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    full = [StoreRefused("full") for _ in range(3)]
    service = Scripted(None, *full, None, StoreRefused("full"), Stop())
    started_ms = service.clock.now().mono_ms
    with caplog.at_level(logging.WARNING), pytest.raises(Stop):
        asyncio.run(service.run())
    assert [record.getMessage() for record in caplog.records] == ["service: full"] * 2
    assert service.clock.now().mono_ms - started_ms == 6 * 7000


def test_the_end_of_the_term_ends_the_loop() -> None:
    with pytest.raises(TermOver):
        asyncio.run(Scripted(TermOver("over")).run())
