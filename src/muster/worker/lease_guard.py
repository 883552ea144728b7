"""Until when an attempt's lease is sure, and its process tree, which stands still once it is not (L5)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from muster.ports.agent import RunningProcess

log = logging.getLogger(__name__)

MARGIN_S_MAX = 5.0
MARGIN_SHARE = 0.2
"""Of the lease: a tree is frozen that much before its end, so that it surely stands still by then."""
LOOK_S = 0.25


def boot_s() -> float:
    """Seconds on the clock that goes on in suspend: who slept through the end of a lease has lost it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def margin_s(lease_s: float) -> float:
    return min(MARGIN_S_MAX, lease_s * MARGIN_SHARE)


class LeaseGuard:
    """`lease_s` None: the store is on this host.  Its owner kills what it frees, so nobody is ever frozen."""

    def __init__(self, lease_s: float | None = None, clock_s: Callable[[], float] = boot_s) -> None:
        self.lease_s = lease_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._process: RunningProcess | None = None
        # Nobody here knows how long its grant was on the way; the start of the attempt is the first to renew it.
        self._sure_until_s = clock_s()
        self._frozen_at_s: float | None = None
        self._stood_still_s = 0.0

    def now_s(self) -> float:
        return self._clock_s()

    @property
    def stood_still_s(self) -> float:
        """How long the tree was frozen in all: it does not count as the agent's working time."""
        with self._lock:
            since_s = self._frozen_at_s
            return self._stood_still_s + (time.monotonic() - since_s if since_s is not None else 0)

    @contextlib.contextmanager
    def guarding(self, process: RunningProcess) -> Iterator[None]:
        if self.lease_s is None:
            yield
            return
        with self._lock:
            self._process = process
        self.look()
        try:
            yield
        finally:
            with self._lock:
                self._process = None

    def heard(self, sent_s: float) -> None:
        """The owner has renewed the lease, as an answer to a request that was sent at `sent_s`."""
        if self.lease_s is None:
            return
        with self._lock:
            self._sure_until_s = max(self._sure_until_s, sent_s + self.lease_s - margin_s(self.lease_s))
            if self._frozen_at_s is None or self._clock_s() >= self._sure_until_s:
                return
            self._stood_still_s += time.monotonic() - self._frozen_at_s
            self._frozen_at_s = None
            if self._process is not None:
                log.warning("process %d goes on: its lease was renewed", self._process.pid)
                self._process.thaw()

    def look(self) -> None:
        """Freezes the tree where its lease is not sure any more."""
        if self.lease_s is None:
            return
        with self._lock:
            if self._process is None or self._clock_s() < self._sure_until_s:
                return
            if self._frozen_at_s is None:
                log.warning("process %d stands still: its lease could not be renewed", self._process.pid)
                self._frozen_at_s = time.monotonic()
                self._process.freeze()


NEVER_FROZEN = LeaseGuard()
"""For all attempts of a host that has the store: it keeps nothing of any of them."""
