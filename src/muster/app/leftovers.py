"""Processes whose new parent is a supervisor: those of dead workers' agents that have shed their mark."""

from __future__ import annotations

import signal
import time

from muster.hosts.local_host import adopted_orphans, reap_zombies
from muster.hosts.process_table import send

LOOK_S = 5.0
"""How often a supervisor looks for them while nobody has ended."""


class Leftovers:
    def __init__(self) -> None:
        self._looked_s = time.monotonic()
        self._known_pids: set[int] | None = None

    def look(self, own_pids: set[int]) -> None:
        """Kills them, now and then and when somebody has died: that is when they come.

        To look through all processes takes milliseconds.
        """
        now_s = time.monotonic()
        if own_pids != self._known_pids or now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._known_pids = None if kill_leftovers(own_pids) else own_pids


def kill_leftovers(own_pids: set[int]) -> bool:
    """Whether there were any: their own children come next."""
    orphans = adopted_orphans(own_pids)
    for orphan in orphans:
        if not orphan.gone:
            send(orphan.id, signal.SIGKILL)
    reap_zombies(orphans)
    return bool(orphans)
