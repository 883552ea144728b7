"""How a process of an attempt ended."""

from __future__ import annotations

import time
from typing import NamedTuple

from muster.model.answers import ClaimedJob
from muster.model.pools import CLOSING
from muster.ports.agent import AgentStream, Exit, Failed, Launch, PermissionAsked
from muster.worker.watchdog import StopVerdict

SIGNALLED = 128
"""Codes above it are those of signals."""


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
    asked: PermissionAsked | None = None
    """It wants what only a person can allow, or knows."""
    lingers: bool = False
    """It has said how its work ended, and does not end."""
    refused: bool = False
    """Its provider refuses it, and it is not to try any longer."""

    @property
    def by_itself(self) -> bool:
        """No signal has ended it, also none that it has heard and told by its code, as a shell does."""
        return self.code is not None and 0 <= self.code <= SIGNALLED

    @property
    def exit(self) -> Exit:
        return Exit(
            code=self.exit_code,
            timed_out=self.timed_out,
            given_up=self.lingers or self.refused,
            out_of_memory=self.starved,
            at_s=time.time(),
        )


def no_session(job: ClaimedJob, launch: Launch, stream: AgentStream, outcome: Failed) -> bool:
    """The next attempt is to begin anew: it has no session, or none that the CLI can open."""
    resumed = bool(launch.session_key) and launch.session_key == job.session_key
    # Refused before the model said a word, a new one has nothing to go on with.
    unused = outcome.kind in CLOSING and not stream.answered and not resumed
    return outcome.session_gone or (outcome.unopened and resumed) or unused
