"""How a process of an attempt ended."""

from __future__ import annotations

from typing import NamedTuple

from muster.ports.agent import Exit
from muster.worker.watchdog import StopVerdict


class End(NamedTuple):
    """Why nobody waits for the process any more."""

    code: int | None = None
    """Its root has ended by itself."""
    exit_code: int = 0
    """How it ended in the end."""
    abandoned: bool = False
    timed_out: bool = False
    stopped: bool = False
    """On request."""
    verdict: StopVerdict | None = None
    starved: str = ""
    """How the kernel has killed it for want of memory."""
    lingers: bool = False
    """It has said how its work ended, or what it waits for, and does not end."""

    @property
    def exit(self) -> Exit:
        return Exit(
            code=self.exit_code,
            timed_out=self.timed_out,
            given_up=self.lingers,
            out_of_memory=self.starved,
        )
