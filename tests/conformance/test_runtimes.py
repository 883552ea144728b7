"""What any runtime does: the one of a server alone, and Valkey between two."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from runtimes import Servers, eventually, local, over_valkey, own_namespace

from muster.ports.runtime import (
    EVENTS,
    READY,
    RECOVERY,
    Beat,
    CrewMember,
    HeldTask,
    LiveEvent,
    Picture,
    WaitingTask,
    orders_for,
)
from patience import HOURS_S, PATIENCE_S

Test = Callable[[Servers], Awaitable[None]]
PICTURE = Picture(
    waiting={1: [WaitingTask(7, 5, 1_000), WaitingTask(8, 9, 2_000)], 2: []},
    held=[HeldTask(1, 9, "worker-a", "claude", "a-session", 3_000)],
    crew=[CrewMember(1, "worker-a", "busy", 4_000, stale=False)],
)


@pytest.fixture(params=["local", "valkey"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Test], None]]:
    """Runs a test on two servers that share a runtime of their own."""
    servers: Callable[[], AbstractAsyncContextManager[Servers]] = local
    if request.param == "valkey":
        servers = functools.partial(over_valkey, request.getfixturevalue("valkey"), own_namespace())

    async def with_servers(test: Test) -> None:
        async with servers() as made:
            await test(made)

    yield lambda test: asyncio.run(with_servers(test))


def test_what_one_server_publishes_wakes_those_who_wait_at_both(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        topic = orders_for("worker-a")
        with servers.one.wakeups.listen(topic) as here, servers.other.wakeups.listen(topic) as there:
            servers.one.wakeups.publish([topic, READY])
            assert await here.wait(PATIENCE_S)
            assert await there.wait(PATIENCE_S)

    run(test)


def test_another_topic_wakes_nobody(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        with servers.other.wakeups.listen(READY) as ready, servers.other.wakeups.listen(EVENTS) as events:
            await ready.wait(0)  # what was said at the beginning
            await events.wait(0)
            servers.one.wakeups.publish([EVENTS])
            assert await events.wait(PATIENCE_S)
            assert not await ready.wait(0)

    run(test)


def test_any_thread_may_publish(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        with servers.other.wakeups.listen("x") as there:
            await asyncio.to_thread(servers.one.wakeups.publish, frozenset({"x"}))
            assert await there.wait(PATIENCE_S)

    run(test)


def test_many_wake_ups_in_a_row_are_few_to_those_elsewhere_and_the_last_one_is_heard(
    run: Callable[[Test], None],
) -> None:
    async def test(servers: Servers) -> None:
        with servers.other.wakeups.listen("x") as there, servers.other.wakeups.listen("last") as last:
            for _ in range(1_000):
                servers.one.wakeups.publish(["x"])
            servers.one.wakeups.publish(["last"])
            assert await there.wait(PATIENCE_S)
            assert await last.wait(PATIENCE_S)

    run(test)


def test_at_the_end_nobody_is_kept_waiting(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        with servers.one.wakeups.listen("nobody publishes this") as here:
            waiting = asyncio.create_task(here.wait(HOURS_S))
            await asyncio.sleep(0)
            servers.one.wakeups.wake_all()
            assert await waiting

    run(test)


def test_what_may_be_lost_is_looked_at_by_who_leads_and_only_once(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        named = 0

        async def taken() -> bool:
            nonlocal named
            named += await servers.other.suspects([1, 2])
            return named >= 3

        with servers.other.wakeups.listen(RECOVERY) as hints:
            await hints.wait(0)
            servers.one.suspect(1, [7, 8])
            servers.one.suspect(2, [9])
            assert await hints.wait(PATIENCE_S)
            await eventually(taken, "all three were named")
        assert named == 3
        assert await servers.other.suspects([1, 2]) == 0

    run(test)


def test_a_look_may_be_asked_for_without_a_name(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        with servers.other.wakeups.listen(RECOVERY) as hints:
            await hints.wait(0)
            servers.one.suspect(1)
            assert await hints.wait(PATIENCE_S)
        assert await servers.other.suspects([1]) == 0

    run(test)


def test_nobody_is_counted_more_often_than_he_has_asked(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        counted = 0
        for _ in range(50):
            servers.one.rates.asked("ada")
            counted += servers.other.rates.asked("ada")
            counted += servers.other.rates.asked("bob")
            await asyncio.sleep(0.002)
        assert counted <= 50

    run(test)


def test_what_is_shown_and_told_keeps_nobody_waiting(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        for number in range(100):
            servers.one.beat(Beat(1, f"worker-{number}", (7,)))
            servers.one.tell([LiveEvent(1, number, "completed", 7, "", "COMPLETED")])
        await servers.one.show(PICTURE)
        await servers.one.show(PICTURE)
        await servers.other.show(Picture({}, [], []))
        assert servers.one.state in {"unused", "connected"}
        assert servers.one.failures == servers.other.failures == 0

    run(test)


def test_it_may_be_closed_while_much_is_to_be_told(run: Callable[[Test], None]) -> None:
    async def test(servers: Servers) -> None:
        for number in range(20_000):
            servers.one.wakeups.publish([f"topic {number}"])
        await servers.one.aclose()

    run(test)
