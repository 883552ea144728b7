"""SQL kept in files of named statements, each with its columns filled in from the rows' own types."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from muster.model.edits import KeptTask
from muster.model.events import Event
from muster.model.rows import Lane, Plan, WorkerRow
from muster.model.seals import Seal
from muster.model.task import Artifact, Attempt, Checkpoint, Task
from muster.model.views import TaskView
from muster.stores.sqlite.rows import EDITED, TEXTS

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_ROWS = (Task, Attempt, Event, Plan, Lane, WorkerRow, Seal, Checkpoint, Artifact)


def filled_in() -> dict[str, str]:
    """What statements share: parts of them, and the columns of the rows' types."""
    # Filled in when it runs: only a condition without OR lets SQLite seek.
    fragments = _parts("fragments.sql", {})
    filled = {"by_id": "$by_id", **fragments}
    for shown in (KeptTask, TaskView):
        kind = shown.__name__.lower()
        columns = (fragments.get(f"{kind}_{name}", f"t.{name}") for name in shown.__struct_fields__)
        filled[f"{kind}_columns"] = ", ".join(columns)
    rows = {row.__name__.removesuffix("Row").lower(): row.__struct_fields__ for row in _ROWS}
    for name, names in {**rows, "text": TEXTS, "edited": EDITED}.items():
        filled[f"{name}_columns"] = ", ".join(names)
        filled[f"{name}_slots"] = ", ".join("?" * len(names))
    return filled


def _parts(file: str, filled: dict[str, str]) -> dict[str, str]:
    text = (Path(__file__).with_name("sql") / file).read_text("utf-8")
    _, *parts = _NAME.split(Template(text).substitute(filled))
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def load_sql(file: str) -> dict[str, str]:
    """The statements of `sql/<file>` by name."""
    return _parts(file, filled_in())
