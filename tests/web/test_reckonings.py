"""What takes long to reckon is reckoned once for all who ask, and not too often."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.web.reckonings import KEPT_MAX, LEAST_S, SHARE, Reckoned, Reckonings


class Desk:
    """A reckoning that waits for a word, by a clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.reckonings = Reckonings(lambda: self.now_s)
        self.go = asyncio.Event()
        self.go.set()
        self.fails = False
        self.holds = False
        self.numbers = itertools.count(1)

    async def ask(self, key: object = "plan", event: int = 1) -> Any:
        return (await self.reckonings.get(key, event, self._reckon, self._holds)).value

    async def _reckon(self) -> int:
        await self.go.wait()
        self.now_s += self.takes_s
        if self.fails:
            raise OSError("the store is away")
        return next(self.numbers)

    async def _holds(self, known: Reckoned) -> bool:
        return self.holds


def at_desk(work: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await work(Desk())

    asyncio.run(run())


def test_two_at_once_wait_for_one_reckoning() -> None:
    async def work(desk: Desk) -> None:
        desk.go.clear()
        asked = [asyncio.create_task(desk.ask()) for _ in range(3)]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.sleep(0)
        desk.go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError), "who has asked first has gone"
        assert found[1:] == [1, 1]

    at_desk(work)


@pytest.mark.parametrize(("takes_s", "due_s"), [(0.0, LEAST_S), (1.0, SHARE * 1.0)])
def test_it_is_reckoned_again_when_that_is_due(takes_s: float, due_s: float) -> None:
    async def work(desk: Desk) -> None:
        desk.takes_s = takes_s
        assert await desk.ask() == 1
        desk.now_s = due_s - 0.1
        assert await desk.ask(event=2) == 1
        assert desk.reckonings.up_to("plan", 2) == 1
        desk.now_s = due_s
        assert desk.reckonings.up_to("plan", 2) == 2, "asked now, it would count that as well"
        assert await desk.ask(event=2) == 2

    at_desk(work)


def test_what_holds_is_not_reckoned_again() -> None:
    async def work(desk: Desk) -> None:
        assert await desk.ask() == 1
        desk.now_s, desk.holds = LEAST_S, True
        assert await desk.ask(event=5) == 1
        assert desk.reckonings.up_to("plan", 5) == 5

    at_desk(work)


def test_one_that_fails_is_told_to_all_and_tried_again() -> None:
    async def work(desk: Desk) -> None:
        desk.fails = True
        found = await asyncio.gather(desk.ask(), desk.ask(), return_exceptions=True)
        assert [type(one) for one in found] == [OSError, OSError]
        desk.fails = False
        assert await desk.ask() == 1

    at_desk(work)


def test_only_the_last_that_were_asked_for_are_kept() -> None:
    async def work(desk: Desk) -> None:
        for key in range(KEPT_MAX + 1):
            await desk.ask(key)
            await desk.ask(1)
        assert await desk.ask(1) == 2 and await desk.ask(KEPT_MAX) == KEPT_MAX + 1
        assert await desk.ask(0) == KEPT_MAX + 2, "it was asked for last long ago"

    at_desk(work)
