"""Events that are about something else than a task or a plan: a worker, a provider's pool, a token."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster.engine.view import View
from muster.model.events import COORDINATOR, Event, Level
from muster.model.states import TaskStatus

_EVENTS = "workspace_events"
"""How many such events a workspace has."""


async def note(
    view: View,
    subject: str,
    event: str,
    message: str,
    actor: str = COORDINATOR,
    *,
    level: Level = Level.INFO,
    details: Mapping[str, object] | None = None,
) -> None:
    """`subject`: a kind, and which one of it: `worker worker-a1b2c3d4`."""
    number = int(await view.tx.meta_to_set(_EVENTS) or 0) + 1
    await view.tx.set_meta(_EVENTS, str(number))
    view.record(
        Event(
            task_id=-view.tx.workspace_id,  # the number of no task and no plan
            seq=number,
            at_ms=view.now.wall_ms,
            level=level,
            event=event,
            message=message,
            details=msgspec.json.encode(details or {}).decode(),
            previous_status=TaskStatus.PENDING if number > 1 else None,
            new_status=TaskStatus.PENDING,
            generation=1,
            epoch=0,
            actor=actor,
            subject=subject,
        )
    )
