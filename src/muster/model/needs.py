"""All that waits for a person, from what the API tells: one list for the inbox of every surface.  Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muster.model.json_value import Json

KINDS = ("pools", "plans", "tasks", "webhooks", "channels", "files")
"""In the order in which they are shown."""
MORE = "more waits for you than was looked at: `muster task list --status paused failed`"
"""Where the inbox is not `complete`."""


def gathered(inbox: Json, pools: Mapping[str, Json], plans: Iterable[Json], plan: str | None) -> Json:
    """`inbox` with `pools` that a person has to open again, `plans` whose budget is used up, and the `number` of
    all."""
    found: Json = {
        "channels": {},  # a server that is older tells none
        **inbox,
        "pools": {name: pool for name, pool in sorted(pools.items()) if pool["untilMs"] is None},
        "plans": [one for one in plans if one["paused"] == "budget" and plan in {None, one["name"]}],
    }
    found["number"] = sum(len(found[kind]) for kind in KINDS)
    return found
