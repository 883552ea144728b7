"""What waits for a person, as the pages show it."""

from __future__ import annotations

from muster.model.json_value import Json
from muster.model.states import PauseReason
from muster.web.backend import Backend
from muster.web.pages.render import json_of


async def needs_of(web: Backend, plan: str | None = None, *, most: int) -> Json:
    """Of the tasks only the first `most`; how many are left out is said."""
    found: Json = json_of(await web.queries.inbox(plan))
    found["pools"] = {
        name: json_of(pool)
        for name, pool in sorted((await web.queries.pools()).items())
        if pool.until_ms is None
    }
    found["plans"] = [
        json_of(one)
        for one in await web.queries.plans()
        if one.paused is PauseReason.BUDGET and plan in {None, one.name}
    ]
    kinds = ("tasks", "files", "webhooks", "channels", "pools", "plans")
    found["number"] = sum(len(found[kind]) for kind in kinds)
    found["more"] = max(0, len(found["tasks"]) - most)
    found["tasks"] = found["tasks"][:most]
    return found
