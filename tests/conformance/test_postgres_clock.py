"""A server knows the time of its database, whatever its own host's clock shows."""

from __future__ import annotations

import pytest

from muster.stores.postgres.database_clock import DatabaseClock, HostTime


class FakeHost:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed_ms, self.wall_ms = 5_000, 1_000_000_000
        monkeypatch.setattr(HostTime, "now", self.now)

    def now(self) -> HostTime:
        return HostTime(self.wall_ms, self.elapsed_ms)

    def sleep(self, ms: int) -> None:
        self.elapsed_ms += ms
        self.wall_ms += ms


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(monkeypatch)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.promise("S15")
def test_it_goes_on_as_the_databases_when_the_hosts_own_is_set(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    clock = DatabaseClock()
    assert clock.wall_ms() == host.wall_ms, "the database was not heard yet"
    asked = host.now()
    host.sleep(200)
    clock.heard(1_000_000_100, asked)
    assert clock.wall_ms() == 1_000_000_200
    host.wall_ms += 600_000
    host.sleep(1000)
    assert clock.wall_ms() == 1_000_001_200
    for _ in range(2):
        clock.heard(1_000_001_200, host.now())
    assert clock.wrong_ms == 600_000
    (told,) = warnings(caplog)
    assert "this host's clock is 600 s ahead of the database's" in told
    host.wall_ms -= 600_000
    clock.heard(1_000_001_200, host.now())
    assert clock.wrong_ms == 0
    assert "again" in warnings(caplog)[1]


def test_it_follows_the_databases_when_that_is_set(host: FakeHost) -> None:
    clock = DatabaseClock()
    clock.heard(host.wall_ms, host.now())
    clock.heard(host.wall_ms - 600_000, host.now())
    assert clock.wall_ms() == host.wall_ms - 600_000
    assert clock.wrong_ms == 600_000


def test_an_answer_that_took_as_long_as_a_sleep_tells_nothing(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    clock = DatabaseClock()
    clock.heard(host.wall_ms, host.now())
    asked, theirs_ms = host.now(), host.wall_ms
    host.sleep(3_600_000)
    clock.heard(theirs_ms, asked)
    assert clock.wall_ms() == host.wall_ms
    assert not warnings(caplog)
