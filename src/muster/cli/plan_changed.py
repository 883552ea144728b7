"""What a crew says as it comes up of plans whose files were changed while none was."""

from __future__ import annotations

from collections.abc import Iterator

from muster.cli.output import clean, shell_word
from muster.cli.plan_sync import ASKED_FIRST, few
from muster.client.api import Api, plan_path
from muster.model.errors import MusterError
from muster.model.json_value import Json


def changed_meanwhile(api: Api) -> Iterator[str]:
    """A sentence for each plan whose file says otherwise: what it asks about is held."""
    try:
        for plan in api.get("/api/v1/plans"):
            if plan["source"] is None:
                continue
            found, name = api.get(plan_path(plan["name"], "sync")), plan["name"]
            if found["problem"]:
                yield f"Changed  {clean(name)}: {clean(found['problem'])}; what is not held is done as before"
            elif keys := _differing(found):
                yield f"Changed  {clean(name)}: {few(keys)} in its file; held until you say so"
                yield f"Next     muster plan sync {shell_word(name)} --status"
    except MusterError as error:
        yield f"Changed  nobody knows whether the files of plans were: {error.message}"


def _differing(found: Json) -> list[str]:
    waits = [(one["key"], one["kind"]) for one in found["conflicts"]]
    others = {*found["running"], *found["bySettings"]}
    differs = [(key, kind) for key, kind, *_ in found["untaken"] if key not in others]
    return list(dict.fromkeys(key for key, kind in [*differs, *waits] if kind in ASKED_FIRST))
