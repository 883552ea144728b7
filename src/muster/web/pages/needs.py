"""What waits for a person, as the pages show it."""

from __future__ import annotations

from muster.model.json_value import Json
from muster.model.states import PauseReason
from muster.web.backend import Backend
from muster.web.pages.render import json_of


async def needs_of(web: Backend, plan: str | None = None) -> Json:
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
    kinds = ("tasks", "files", "webhooks", "pools", "plans")
    found["number"] = sum(len(found[kind]) for kind in kinds)
    return found
