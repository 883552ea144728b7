"""What waits for a person, as the pages show it."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model.json_value import Json
from muster.model.needs import gathered
from muster.web.backend import Backend
from muster.web.pages.render import json_of


async def needs_of(web: Backend, plan: str | None = None, *, most: int) -> Json:
    """Of the tasks only the first `most`; how many are left out is said."""
    inbox = await web.queries.inbox(plan)
    more = max(0, len(inbox.tasks) - most)
    pools = {name: json_of(pool) for name, pool in (await web.queries.pools()).items()}
    some = json_of(replace(inbox, tasks=inbox.tasks[:most]))
    found = gathered(some, pools, json_of(await web.queries.plans()), plan)
    return {**found, "more": more, "number": found["number"] + more}
