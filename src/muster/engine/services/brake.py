"""The reaper's brake: where most agents fall silent at once, it is seldom they who are gone (S15)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from muster.model.task import Attempt

log = logging.getLogger(__name__)

AGENTS_MIN = 10
SHARE = 0.55
"""Of the leases, that run out within one lease time without a proof of death."""


class Brake:
    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._given_up_ms: list[int] = []
        self._until_ms: int | None = None
        """Waited for once, until nobody is silent any more."""

    def given_up(self, at_ms: int) -> None:
        """An attempt was reaped for its silence alone."""
        self._given_up_ms.append(at_ms)

    def holds(self, held: int, silent: Sequence[Attempt], now_ms: int) -> bool:
        """Whether those of `held` attempts that are silent are to be waited for."""
        self._given_up_ms = [at_ms for at_ms in self._given_up_ms if now_ms - at_ms < self._lease_ms]
        lapsing, agents = len(silent) + len(self._given_up_ms), held + len(self._given_up_ms)
        if not lapsing:
            self._until_ms = None
        elif self._until_ms is None and agents >= AGENTS_MIN and lapsing > SHARE * agents:
            wait_ms = max((attempt.lease_ms for attempt in silent), default=0)
            self._until_ms = now_ms + wait_ms
            log.warning(
                "%d of %d agents were not heard within one lease: the cause may be here; they get %d s more",
                lapsing,
                agents,
                wait_ms // 1000,
            )
        return self._until_ms is not None and now_ms < self._until_ms
