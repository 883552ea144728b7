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
_DEAD = f"(status IN ('FAILED', 'CANCELLED', 'ARCHIVED') AND NOT {_DONE})"


def _columns() -> dict[str, str]:
    filled = {"done": _DONE, "dead": _DEAD}
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
