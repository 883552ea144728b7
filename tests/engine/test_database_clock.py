"""The clock that leases are told by is a database's, and it is set: that is nobody's silence (S15)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from engine_rig import LEASE_S, TICK_S, W1, FakeClock, FakeHost, Rig

from muster.engine.batch import drive
from muster.engine.services.reaper import Reaper
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.task import Now


class ServerOfADatabase:
    """A reaper with a clock of its own, beside that of the rig's store."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.clock = rig, FakeClock()
        self.answers_late_s = 0.0
        self.reaper = Reaper(
            self.clock,
            self,  # type: ignore[arg-type]
            self,
            FakeHost(rig.log),
            sweep=lambda: 0,
            term=rig.new_boot().term,
            lease_s=LEASE_S,
            interval_s=TICK_S,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rig.reads, name)

    async def now(self, _: Now) -> Now:
        self.pass_s(self.answers_late_s)
        return self.rig.clock.present

    def of(self, _: int) -> Rig:
        return self.rig

    async def execute(self, command: c.Command) -> Answer:
        return await self.rig.execute(command)

    def pass_s(self, seconds: float) -> None:
        """On both clocks."""
        self.clock.advance(seconds)
        self.rig.clock.advance(seconds)

    def ticks(self, seconds: float) -> list[str]:
        self.rig.log.clear()
        for _ in range(round(seconds / TICK_S)):
            self.pass_s(TICK_S)
            drive(self.reaper.run_once())
        return [type(entry).__name__ for entry in self.rig.log if not isinstance(entry, tuple)]


@pytest.fixture
def server(rig: Rig) -> ServerOfADatabase:
    rig.register(W1, hostname="far")
    rig.enqueue({"a": []})
    rig.started(W1)
    return ServerOfADatabase(rig)


@pytest.mark.promise("S15")
@pytest.mark.parametrize("set_by_s", [3600, 12, -12, -86_400])
def test_leases_last_as_long_as_they_are_whatever_the_databases_clock_is_set_to(
    server: ServerOfADatabase, set_by_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert server.ticks(5) == []
    server.rig.clock.advance(set_by_s)
    assert server.ticks(LEASE_S) == ["FreshLeases"]
    assert caplog.messages == [f"the store's clock was set by {set_by_s:.1f} s: all leases begin anew"]
    assert server.ticks(TICK_S) == ["Reap", "MarkWorkerDead"]


def test_an_answer_that_is_long_on_its_way_is_no_clock_that_was_set(
    server: ServerOfADatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for late_s in (0, 4, 0, 1, 0):
        server.answers_late_s = late_s
        drive(server.reaper.run_once())
        server.pass_s(TICK_S)
    assert caplog.messages == []
