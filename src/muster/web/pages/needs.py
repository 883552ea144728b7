"""What waits for a person, as the pages show it."""

from __future__ import annotations

from muster.model.json_value import Json
from muster.model.needs import gathered
from muster.web.backend import Backend
from muster.web.pages.render import json_of


async def needs_of(web: Backend, plan: str | None = None, *, most: int) -> Json:
    """Of the tasks only the first `most`; how many are left out is said."""
    inbox = json_of(await web.queries.inbox(plan))
    pools = {name: json_of(pool) for name, pool in (await web.queries.pools()).items()}
    found = gathered(inbox, pools, json_of(await web.queries.plans()), plan)
    found["more"] = max(0, len(found["tasks"]) - most)
    found["tasks"] = found["tasks"][:most]
    return found
