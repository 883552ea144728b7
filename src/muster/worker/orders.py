"""What a runner is told while its process runs, from another thread."""

from __future__ import annotations

import os
import threading
from enum import Enum

from muster.worker.lease_guard import NEVER_FROZEN, LeaseGuard

_LOCK = threading.Lock()
"""Of all orders: they are few, and each attempt would have to make one."""


class Order(Enum):
    STOP = "stop"
    """Save a checkpoint, stop, give the task back."""
    ABANDON = "abandon"
    """The attempt is over: the process tree must go at once, and nothing is reported."""


class Orders:
    """The newest order, and a file descriptor that wakes whoever waits for the process."""

    def __init__(self, lease_guard: LeaseGuard | None = None, proof: str = "") -> None:
        self.lease_guard = lease_guard or NEVER_FROZEN
        self.proof = proof
        """Of the attempt's grant; goes with each heartbeat."""
        self._order: Order | None = None
        self.notice = ""
        """What the agent is to be told; the runner writes it down, so that no disk holds up the heartbeat."""
        self._fds: tuple[int, int] | None = None
        """Made for the first who waits: a function's attempt has no process."""
        self._over = False

    def close(self) -> None:
        with _LOCK:
            self._over = True
            for fd in self._fds or ():
                os.close(fd)
            self._fds = None

    @property
    def wake_fd(self) -> int:
        with _LOCK:
            if self._fds is None:
                self._fds = os.pipe()
                os.set_blocking(self._fds[1], False)
                if self._order is not None:
                    os.write(self._fds[1], b"!")
            return self._fds[0]

    @property
    def given(self) -> Order | None:
        return self._order

    def give(self, order: Order) -> None:
        """An order to abandon is never taken back."""
        with _LOCK:
            if self._over or self._order in (order, Order.ABANDON):
                return
            self._order = order
            if self._fds is not None:
                os.write(self._fds[1], b"!")

    def seen(self) -> None:
        """Call after waking, so that the next wait really waits."""
        os.read(self.wake_fd, 64)
