"""Tasks that are added at the times of a cron expression.

Each time has an idempotency key, so that it is one task however many programs with the same app are up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from muster.model.errors import BadInput, Conflict, Unavailable

log = logging.getLogger(__name__)

CATCH_UP_S = 60.0
"""So late a time is made up for anyway: the program was started again, or stood still."""


class Cron(NamedTuple):
    """When one task is due."""

    expression: str
    zone: ZoneInfo
    catch_up_s: float

    def last(self, now: datetime) -> datetime | None:
        """Its newest time that is not later than `now`, if it is not too late for that."""
        # Whole seconds, as cronsim's times are: of a part of one it makes a time that is still to come.
        whole = now.replace(microsecond=0)
        # The second comes before the zone: adding it there would forget which of two equal hours it is.
        local = (whole + timedelta(seconds=1)).astimezone(self.zone)
        found = next(CronSim(self.expression, local, reverse=True), None)
        return found if found is not None and (now - found).total_seconds() <= self.catch_up_s else None


def cron_of(expression: str, timezone: str, catch_up_s: float) -> Cron:
    """Raises BadInput where the expression or the time zone cannot be read."""
    try:
        CronSim(expression, datetime.now(ZoneInfo("UTC")))
        return Cron(expression, ZoneInfo(timezone), max(CATCH_UP_S, catch_up_s))
    except CronSimError as error:
        raise BadInput(
            f"cron {expression!r}: {error}", "like `30 6 * * mon-fri`: minute hour day month weekday"
        ) from error
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadInput(f"there is no time zone {timezone!r}", "like UTC or Europe/Vienna") from error


class Schedules:
    """`look` often: what is due is added once."""

    def __init__(self, crons: Iterable[tuple[str, Cron]], add: Callable[[str, str], Any]) -> None:
        """`add` adds the task of that name under an idempotency key."""
        self._crons = tuple(crons)
        self._add = add
        self._done: dict[str, str] = {}
        """By name, the key of the newest time: in the hour that comes twice, two times of one zone are equal."""

    def look(self, now: datetime) -> None:
        """Never raises for what an owner does: what could not be added is due at the next look."""
        for name, cron in self._crons:
            due = cron.last(now)
            if due is None or self._done.get(name) == (key := f"cron {name} {due.isoformat()}"):
                continue
            try:
                self._add(name, key)
            except Conflict as error:
                log.warning("another version of this program has added %s for %s: %s", name, due, error)
            except Unavailable as error:
                log.info("%s is due and not added yet: %s", name, error)
                continue
            self._done[name] = key
