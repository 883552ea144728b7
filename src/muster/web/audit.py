"""The audit, to be read and to be proved: `/api/v1/audit`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from msgspec import Meta

from muster.model import commands as c
from muster.model.answers import AuditReport
from muster.model.errors import BadInput
from muster.model.events import Level
from muster.model.views import EventView
from muster.web.access import workspace_meant
from muster.web.backend import Backend
from muster.web.http import Query, Request
from muster.web.routes import Routes

routes = Routes()


COORDINATION = ("coordinator", "crew", "worker", "agent", "pool", "webhook")


class LogQuery(Query, frozen=True, kw_only=True):
    level: str | None = None
    """This one and worse."""
    since: c.Count = 0
    """Unix milliseconds."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class AuditQuery(LogQuery, frozen=True, kw_only=True):
    task: c.Id | None = None
    subject: c.Name | None = None
    """`token 12`, or any `token`; so also `member`, `worker`, `pool`, `crew`, `coordinator`."""


@routes.get("/api/v1/audit")
async def newest(web: Backend, query: AuditQuery) -> list[EventView]:
    """The newest events, oldest of them first."""
    subjects = () if query.subject is None else (query.subject,)
    return await _events(web, query, subjects=subjects, task_id=query.task)


class CoordinationQuery(LogQuery, frozen=True, kw_only=True):
    workspace: str | None = None
    """Its number or name; None: the asker's."""


@routes.get("/api/v1/coordinator/logs")
async def coordination(web: Backend, request: Request, query: CoordinationQuery) -> list[EventView]:
    """The newest events of what coordinates and works, not of tasks, oldest of them first."""
    if query.workspace is not None:
        web = web.of((await workspace_meant(web, request, query.workspace)).id)
    return await _events(web, query, subjects=COORDINATION)


async def _events(
    web: Backend, query: LogQuery, *, subjects: Collection[str], task_id: int | None = None
) -> list[EventView]:
    return await web.reads.audit_events(
        task_id=task_id,
        levels=levels_from(query.level),
        since_ms=query.since,
        limit=query.limit,
        subjects=subjects,
    )


def levels_from(name: str | None) -> tuple[str, ...]:
    """That level and those above it; nothing for all.  Raises BadInput."""
    if name is None:
        return ()
    known = [level.value for level in Level]
    if name.upper() not in known:
        raise BadInput(f"level={name} is no level", f"one of {', '.join(known)}".lower())
    return tuple(known[known.index(name.upper()) :])


@routes.get("/api/v1/audit/verify")
async def verify(web: Backend) -> AuditReport:
    """Whether anybody has changed what was written."""
    return await web.owner.verify_audit(web.workspace_id)
