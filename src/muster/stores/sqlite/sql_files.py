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
from muster.stores.sqlite.rows import KEPT_COLUMNS

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
_DEAD = f"(status IN ('FAILED', 'CANCELLED', 'ARCHIVED') AND NOT {_DONE})"


_KEPT_AS = {
    "key": "coalesce(t.key, CAST(t.id AS TEXT))",
    "from_file": """EXISTS (SELECT 1 FROM events e WHERE e.task_id = t.id AND e.seq = 1
                            AND e.details = '{"file":true}')""",
    "parent": """CASE WHEN p.plan_id IS t.plan_id THEN coalesce(p.key, CAST(p.id AS TEXT))
                      ELSE CAST(p.id AS TEXT) END""",
    "expires_at_ms": "t.not_after_ms",
    "dependencies": """(SELECT json_group_array(json_array(id, name, json(iif(met, 'true', 'false')))) FROM (
            SELECT o.id, d.met, CASE WHEN o.plan_id IS t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT))
                                     ELSE CAST(o.id AS TEXT) END AS name
              FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id ORDER BY o.id))""",
}
_KEPT = "SELECT " + ", ".join(_KEPT_AS.get(name, f"t.{name}") for name in KEPT_COLUMNS)
_KEPT += " FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id"


def _columns() -> dict[str, str]:
    # Filled in when it runs: only a condition without OR lets SQLite seek.
    filled = {"by_id": "$by_id", "done": _DONE, "dead": _DEAD, "kept": _KEPT}
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
