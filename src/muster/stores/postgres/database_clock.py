"""The database's clock as a server knows it, which asks for it every few seconds and counts the time since."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from muster.ports.store_clock import WRONG_MS, apart

log = logging.getLogger(__name__)

_COUNTS_SUSPEND: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class HostTime(NamedTuple):
    wall_ms: int
    elapsed_ms: int
    """Whoever sets the wall clock does not change this, and a suspend counts."""

    @classmethod
    def now(cls) -> HostTime:
        elapsed_ns = time.clock_gettime_ns(_COUNTS_SUSPEND)
        return cls(time.time_ns() // 1_000_000, elapsed_ns // 1_000_000)


class DatabaseClock:
    """As ports.store_clock.StoreClock."""

    def __init__(self) -> None:
        self.servers: Mapping[str, int] = {}
        self.wrong_ms = 0
        """So far this host's clock is ahead of the database's; 0 where that is no more than WRONG_MS."""
        self._ahead_ms: int | None = None
        """Of the time that has elapsed on this host; None: it was not heard yet."""

    def wall_ms(self) -> int:
        here = HostTime.now()
        return here.wall_ms if self._ahead_ms is None else here.elapsed_ms + self._ahead_ms

    def heard(self, theirs_ms: int, asked: HostTime) -> None:
        """The database's clock has shown that since it was asked."""
        here = HostTime.now()
        slack_ms = max(0, here.elapsed_ms - asked.elapsed_ms) // 2
        if slack_ms > WRONG_MS and self._ahead_ms is not None:
            return  # as where this host has slept meanwhile: it says less than is known
        then_ms = asked.elapsed_ms + slack_ms
        self._ahead_ms = theirs_ms - then_ms
        # The wall clock may have been set while the answer was on its way.
        off_ms = here.wall_ms - (here.elapsed_ms + self._ahead_ms)
        wrong_ms = off_ms if abs(off_ms) - slack_ms > WRONG_MS else 0
        if wrong_ms and not self.wrong_ms:
            log.warning(
                "this host's clock is %s the database's: set it (timedatectl set-ntp true); leases and tokens "
                "are told by the database's, but what is dated here, as in this log, is wrong",
                apart(wrong_ms),
            )
        elif self.wrong_ms and not wrong_ms:
            log.warning("this host's clock is that of the database again")
        self.wrong_ms = wrong_ms
