"""The audit, to be read and to be proved: `/api/v1/audit`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import commands as c
from muster.model.answers import AuditReport
from muster.model.errors import BadInput
from muster.model.events import Level
from muster.model.views import EventView
from muster.web.backend import Backend
from muster.web.http import Query
from muster.web.routes import Routes

routes = Routes()


class AuditQuery(Query, frozen=True, kw_only=True):
    task: c.Id | None = None
    level: str | None = None
    """This one and worse."""
    since: c.Count = 0
    """Unix milliseconds."""
    subject: c.Name | None = None
    """`token 12`, or any `token`; so also `member` and `workspace`."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


@routes.get("/api/v1/audit")
async def newest(web: Backend, query: AuditQuery) -> list[EventView]:
    """The newest events, oldest of them first."""
    return await web.reads.audit_events(
        task_id=query.task,
        levels=() if query.level is None else _from(query.level),
        since_ms=query.since,
        limit=query.limit,
        subject=query.subject,
    )


def _from(name: str) -> tuple[str, ...]:
    """That level and those above it.  Raises BadInput."""
    known = [level.value for level in Level]
    if name.upper() not in known:
        raise BadInput(f"level={name} is no level", f"one of {', '.join(known)}".lower())
    return tuple(known[known.index(name.upper()) :])


@routes.get("/api/v1/audit/verify")
async def verify(web: Backend) -> AuditReport:
    """Whether anybody has changed what was written."""
    return await web.owner.verify_audit(web.workspace_id)
