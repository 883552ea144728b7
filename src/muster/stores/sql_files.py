"""SQL kept in files of named statements, each with its columns filled in from the rows' own types.

What reads the same for every store stands in `sql/` beside this; each store has a folder of its own for what does
not.  A statement or a part of one stands in both stores' folders, or in the shared one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from muster.model.access import BROWSER, Member, Token
from muster.model.agents import AgentBeat, AgentRow
from muster.model.edits import KeptTask
from muster.model.events import Event
from muster.model.outlines import TaskOutline
from muster.model.rows import Lane, Plan, WorkerRow
from muster.model.seals import Seal
from muster.model.secrets import Secret
from muster.model.task import Artifact, Attempt, Checkpoint, Task
from muster.model.views import TaskView
from muster.model.webhooks import HookMessage, NewMessage, WebhookRow
from muster.stores.rows import EDITED, TEXTS

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MINE = re.compile(r"@mine\b(?:\((\w+)\))?")
_NUMBERED = re.compile(r"\?(\d+)")
_ROWS = (
    Task,
    Attempt,
    Event,
    Plan,
    Lane,
    WorkerRow,
    Seal,
    Checkpoint,
    Artifact,
    Member,
    Token,
    WebhookRow,
    HookMessage,
    AgentRow,
    AgentBeat,
    NewMessage,
    Secret,
)


def filled_in(own: Path) -> dict[str, str]:
    """What statements share: parts of them, and the columns of the rows' types.  `own` is the store's folder."""
    # Filled in when it runs: only a condition without OR lets SQLite seek.
    fragments = _parts("fragments.sql", own, {})
    filled = {"by_id": "$by_id", **fragments}
    ended = "coalesce(revoked_at_ms, expires_at_ms)"
    filled["old_session"] = f"FROM tokens WHERE name = '{BROWSER}' AND {ended} < ?1"
    for shown in (KeptTask, TaskView, TaskOutline):
        kind = shown.__name__.lower()
        columns = (fragments.get(f"{kind}_{name}", f"t.{name}") for name in shown.__struct_fields__)
        filled[f"{kind}_columns"] = ", ".join(columns)
    rows = {row.__name__.removesuffix("Row").lower(): row.__struct_fields__ for row in _ROWS}
    for name, names in {**rows, "text": TEXTS, "edited": EDITED}.items():
        filled[f"{name}_columns"] = ", ".join(names)
        filled[f"{name}_slots"] = ", ".join("?" * len(names))
        filled[f"{name}_excluded"] = ", ".join(f"excluded.{one}" for one in names)
    return filled


def _parts(file: str, own: Path, filled: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in (Path(__file__).with_name("sql") / file, own / file):
        if path.exists():
            _, *parts = _NAME.split(Template(path.read_text("utf-8")).substitute(filled))
            found |= {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
    return found


def load_sql(file: str, own: Path) -> dict[str, str]:
    """The statements of `<file>` by name, the shared ones and the store's."""
    return _parts(file, own, filled_in(own))


def of_one(statements: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """The statements for the rows of one workspace, and which of them take its number as their last binding.

    `@mine` stands for the condition that a row is its own, `@mine(t)` for that of a row of `t`.
    """
    made = {name: _own_rows(sql) for name, sql in statements.items()}
    return made, frozenset(name for name, sql in statements.items() if made[name] != sql)


def of_all(statements: Mapping[str, str], everything: str = "1") -> dict[str, str]:
    """The same statements for the rows of every workspace; `everything` is a condition that always holds."""
    return {name: _MINE.sub(everything, sql) for name, sql in statements.items()}


def _own_rows(sql: str) -> str:
    last = max(map(int, _NUMBERED.findall(sql)), default=0)
    own = f"workspace_id = ?{last + 1}"
    return _MINE.sub(lambda found: f"{found[1]}.{own}" if found[1] else own, sql)
