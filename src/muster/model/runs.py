"""The history of a crew: when it was up, and what it has done meanwhile."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.commands.base import Command
from muster.model.scalars import Count, Name

RUNS = "crew_runs"
"""Its row of `meta`."""
RUNS_MAX = 200
DIED = "died"
"""How a run has ended whose end nobody has told."""


class CrewRun(Struct, frozen=True, rename="camel"):
    id: str
    started_at_ms: int
    started_by: str
    after_event_id: int
    """What was written later has happened in it."""
    ended_at_ms: int | None = None
    """Of one that has died: when it was last heard of."""
    how: str = ""
    """`drained`, `stopped`, `killed`, `failed` or `died`; empty while it goes on."""
    completed: int = 0
    """Tasks, also those that were done more than once."""
    failed: int = 0


class NoteRun(Command, frozen=True, kw_only=True):
    """A crew begins; or the one that goes on ends.

    `completed`, `failed` and the times are those of the run that goes on, as whoever asks has counted them.
    """

    run: Name
    """Repeating it changes nothing."""
    actor: Name
    how: Literal["", "drained", "stopped", "killed", "failed"] = ""
    after_event_id: Count = 0
    last_at_ms: Count = 0
    completed: Count = 0
    failed: Count = 0
    term: Count | None = None
    """Set where it is the word of who leads several servers, or has led last."""


def runs_of(kept: str | None) -> list[CrewRun]:
    """The oldest first."""
    return msgspec.json.decode(kept, type=list[CrewRun]) if kept else []


def noted(runs: list[CrewRun], command: NoteRun, wall_ms: int) -> list[CrewRun]:
    last = runs[-1] if runs else None
    begins = not command.how
    if last is not None and last.id == command.run and (begins or last.how):
        return runs
    if last is not None and not last.how:  # one supervises a crew at a time: it ends what another has begun
        ended_ms = max(last.started_at_ms, command.last_at_ms) if begins else wall_ms
        counted = {"completed": command.completed, "failed": command.failed}
        runs = [*runs[:-1], replace(last, ended_at_ms=ended_ms, how=command.how or DIED, **counted)]
    if begins:
        new = CrewRun(command.run, wall_ms, command.actor, command.after_event_id)
        runs = [*runs[1 - RUNS_MAX :], new]
    return runs


def kept_as(runs: list[CrewRun]) -> str:
    return msgspec.json.encode(runs).decode()
