"""SQL kept in files of named statements, each with its columns filled in from the rows' own types."""

from __future__ import annotations

import re
from importlib import resources
from string import Template

from msgspec import Struct

from muster.model.events import Event
from muster.model.rows import Plan, Worker
from muster.model.seals import Seal
from muster.model.task import Attempt, Task

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_TYPES: dict[str, type[Struct]] = {
    "task": Task,
    "attempt": Attempt,
    "event": Event,
    "plan": Plan,
    "worker": Worker,
    "seal": Seal,
}

_DONE = """(status = 'COMPLETED' OR (status IN ('CANCELLED', 'ARCHIVED') AND error_kind IS NULL
                            AND (error = '' OR error LIKE 'skipped%')))"""
"""Children go on behind it: it was completed or skipped, also where it was archived since."""
_HALF_DONE = "(error_kind IS 'lost' OR done_epoch IS NOT NULL)"
"""Its worker was lost, or did not come to publish it: it goes first.  Stands like that in the index too."""
_DEAD = f"(status IN ('FAILED', 'CANCELLED', 'ARCHIVED') AND NOT {_DONE})"


_KEPT = """
SELECT t.id, coalesce(t.key, CAST(t.id AS TEXT)), t.status, t.error, t.pinned_agent,
       EXISTS (SELECT 1 FROM events e WHERE e.task_id = t.id AND e.seq = 1 AND e.details = '{"file":true}'),
       t.title, t.description, t.agent, t.capabilities, t.profile, t.priority, t.sort_key, t.limit_key,
       t.on_failed, t.tags, t.metadata, t.timeout_s, t.max_retries, t.epic, t.feature,
       CASE WHEN p.plan_id IS t.plan_id THEN coalesce(p.key, CAST(p.id AS TEXT)) ELSE CAST(p.id AS TEXT) END,
       t.not_before_ms, t.not_after_ms, t.estimated_s, t.target, t.created_at_ms,
       (SELECT json_group_array(json_array(id, name, json(iif(met, 'true', 'false')))) FROM (
            SELECT o.id, d.met, CASE WHEN o.plan_id IS t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT))
                                     ELSE CAST(o.id AS TEXT) END AS name
              FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id ORDER BY o.id))
  FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id"""
"""The columns of a KeptTask."""


def _columns() -> dict[str, str]:
    # Filled in when it runs: only a condition without OR lets SQLite seek.
    filled = {"by_id": "$by_id", "done": _DONE, "dead": _DEAD, "half_done": _HALF_DONE, "kept": _KEPT}
    for name, row in _TYPES.items():
        fields = row.__struct_fields__
        filled[f"{name}_columns"] = ", ".join(fields)
        filled[f"{name}_slots"] = ", ".join("?" * len(fields))
    return filled


def load_sql(file: str) -> dict[str, str]:
    """The statements of `sql/<file>` by name."""
    text = resources.files(__package__).joinpath("sql", file).read_text("utf-8")
    _, *parts = _NAME.split(Template(text).substitute(_columns()))
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
