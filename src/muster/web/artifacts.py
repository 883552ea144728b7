"""What attempts have made and want kept in sight: `/api/v1/agent-tasks/{task_id}/artifacts`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from muster.model.errors import NotFound
from muster.web.backend import Backend
from muster.web.blackouts import blackout_of
from muster.web.http import Reply
from muster.web.routes import Routes

routes = Routes()

_ARTIFACTS = "/api/v1/agent-tasks/{task_id:id}/artifacts"


class ArtifactView(Struct, frozen=True, rename="camel"):
    epoch: int
    """Of the attempt that has made it."""
    name: str
    location: str
    """As its attempt has named it: a path on the worker's host, or an address."""
    created_at_ms: int
    bytes: int | None
    """Of what is kept of it here; None: nothing is."""


@routes.get(_ARTIFACTS)
async def artifacts(web: Backend, task_id: int) -> Sequence[ArtifactView]:
    """What a task's attempts have made, the oldest first."""
    if await web.reads.workspace_of(task_id) != web.workspace_id:
        raise NotFound(f"there is no task {task_id}", "muster task list")
    found = []
    for one in await web.reads.artifacts(task_id):
        size = await web.owner.artifact_bytes(task_id, one.epoch, one.name)
        found.append(ArtifactView(one.epoch, one.name, one.location, one.created_at_ms, size))
    return found


@routes.get(f"{_ARTIFACTS}/{{epoch:id}}/{{name}}/content", answer={200: bytes})
async def content(web: Backend, task_id: int, epoch: int, name: str) -> Reply:
    """What was in the file when its attempt has named it."""
    if await web.reads.workspace_of(task_id) == web.workspace_id:
        for one in await web.reads.artifacts(task_id):
            if (one.epoch, one.name) == (epoch, name):
                data = await web.owner.artifact(task_id, epoch, name)
                if data is not None:
                    black = (await blackout_of(web, [task_id])).data
                    return Reply(200, await asyncio.to_thread(black, data), "application/octet-stream")
                raise NotFound(
                    f"nothing is kept here of {name}: it was no file of at most 16 MB where it was named, or its "
                    f"time is over; it is at {one.location}"
                )
    raise NotFound(f"attempt {epoch} of task {task_id} has no artifact {name!r}", "muster artifact list REF")
