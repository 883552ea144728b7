"""Tasks that are added at the times of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import muster
from muster.model.errors import BadInput, Unavailable
from muster.sdk.schedules import Schedules, cron_of
from patience import until


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "catch_up_s", "now", "due"),
    [
        ("30 6 * * *", "UTC", 0, "2026-05-04 06:30:00", "2026-05-04 06:30:00"),
        ("30 6 * * *", "UTC", 0, "2026-05-04 06:29:59", None),
        ("30 6 * * *", "UTC", 0, "2026-05-04 06:30:59", "2026-05-04 06:30:00"),
        ("30 6 * * *", "UTC", 0, "2026-05-04 06:31:01", None),
        ("30 6 * * *", "UTC", 3600, "2026-05-04 07:29:00", "2026-05-04 06:30:00"),
        ("30 6 * * *", "Europe/Vienna", 0, "2026-05-04 04:30:10", "2026-05-04 04:30:00"),
        ("0 0 * * *", "UTC", 0, "2026-05-04 23:59:59.000001", None),
        ("0 0 * * *", "UTC", 0, "2026-05-04 23:59:59.999999", None),
        ("0 0 * * *", "UTC", 0, "2026-05-05 00:00:00.000001", "2026-05-05 00:00:00"),
        ("0 0 * * *", "UTC", 86400, "2026-05-04 23:59:59.5", "2026-05-04 00:00:00"),
        ("0 0 * * mon-fri", "UTC", 86400 * 3, "2026-05-03 12:00:00", "2026-05-01 00:00:00"),
    ],
)
def test_the_newest_time_that_is_not_too_late(expression, zone, catch_up_s, now, due):
    found = cron_of(expression, zone, catch_up_s).last(at(now))
    assert (found and found.astimezone(UTC)) == (due and at(due))


def test_each_time_is_added_once_also_when_nobody_answered():
    added: list[str] = []
    away = True

    def add(name: str, key: str) -> None:
        if away:
            raise Unavailable("no owner")
        added.append(key)

    schedules = Schedules([("report", cron_of("*/10 * * * *", "UTC", 0))], add)
    now = at("2026-05-04 06:30:00")
    schedules.look(now)
    assert not added
    away = False
    for seconds in range(0, 1300, 5):
        schedules.look(now + timedelta(seconds=seconds))
    assert [key.split("T")[1][:5] for key in added] == ["06:30", "06:40", "06:50"]


@pytest.mark.parametrize(
    ("expression", "evening", "times"),
    [
        # 02:30 comes twice when summer time ends: each hour is one, the one of the day is the first.
        ("30 * * * *", "2026-10-24 22:00:00", ["22:30", "23:30", "00:30", "01:30", "02:30", "03:30"]),
        ("30 2 * * *", "2026-10-24 22:00:00", ["00:30"]),
        # It comes never when summer time begins: what is due then is done as the hour ends that is left out.
        ("30 * * * *", "2026-03-28 22:00:00", ["22:30", "23:30", "00:30", "01:30", "02:30", "03:30"]),
        ("30 2 * * *", "2026-03-28 22:00:00", ["01:00"]),
    ],
)
def test_no_hour_is_left_out_or_done_twice_when_the_clocks_change(expression, evening, times):
    added: list[str] = []

    def add(name: str, key: str) -> None:
        added.append(f"{now:%H:%M}")

    schedules = Schedules([("report", cron_of(expression, "Europe/Vienna", 0))], add)
    for seconds in range(0, 6 * 3600, 30):
        now = at(evening) + timedelta(seconds=seconds)
        schedules.look(now)
    assert added == times


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
@pytest.mark.parametrize("night", ["2026-10-25 00:59:58", "2026-03-29 00:59:58", "2026-05-04 21:59:58"])
def test_never_before_its_time(zone, night):
    """Also in the nights in which the clocks change."""
    for expression in ("0 * * * *", "0 0 * * *", "0 3 * * *", "* * * * * *"):
        cron = cron_of(expression, zone, 0)
        for millis in range(0, 4000, 125):
            now = at(night) + timedelta(milliseconds=millis)
            due = cron.last(now)
            assert due is None or due <= now, (expression, now, due)


@pytest.mark.parametrize(
    "options", [{"cron": "61 * * * *"}, {"cron": "* * * * *", "timezone": "Mars/Olympus"}]
)
def test_what_cannot_be_read_is_refused_at_once(app: muster.App, options):
    with pytest.raises(BadInput, match=r"cron|time zone"):
        app.task(**options)(lambda: None)


@pytest.mark.parametrize("options", [{"timezone": "UTC"}, {"catch_up": "1h"}])
def test_what_belongs_to_a_cron_says_nothing_without_one(app: muster.App, options):
    with pytest.raises(BadInput, match="without a cron"):
        app.task(**options)(lambda: None)
    task = app.task(name="other", cron=None)(lambda: None)
    for more in (options, {"cron": "* * * * *"}):
        with pytest.raises(BadInput, match="said of the function"):
            task.with_options(**more)


def test_two_programs_with_one_app_add_one_task(app: muster.App, tmp_path):
    ran: list[int] = []
    other = muster.App("reports", project=tmp_path)
    for each in (app, other):

        @each.task(cron="* * * * * *")
        def report(n: int = 3) -> None:
            ran.append(n)

        with pytest.raises(BadInput, match="needs arguments: n"):

            @each.task(cron="* * * * *")
            def needy(n: int) -> None: ...

    with app.running(), other.running():
        until(lambda: len(ran) >= 3, "three seconds have passed")
    tasks = muster.Client(tmp_path).tasks("reports")
    made_at = sorted(view.created_at_ms // 1000 for view in tasks)
    assert len(set(made_at)) == len(made_at), "no second has two"
