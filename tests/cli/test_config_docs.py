"""What is said of settings is all that is read, and every key of others that is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.agents.command import CommandAgent
from muster.app.settings import KINDS
from muster.config import importing, load
from muster.config.keys import AGENT_KEYS, CHANNEL_KEYS, KEYS
from muster.config.kinds import AgentKind
from muster.config.tables import Table
from muster.model.place import USUAL_PROMPT

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
FULL = {
    "agent": "mine",
    "budget": {},
    "task": {"backoff": {"first": "1s"}},
    "workers": {},
    "health": {},
    "retention": {},
    "plan": {},
    "serve": {},
    "webhooks": {},
    "notify": {},
    "channels": {"mine": {"kind": "desktop"}},
    "runtime": {},
    "log": {},
    "trace": {},
    "limits": {},
    "git": {},
    "profiles": {},
    "agents": {
        "mine": {"command": ["true"], "limits": {}},
        "claude": {"kind": "claude-code", "permission_mode": "plan"},
        "foreign": {"kind": "of-another-package", "options": {}},
    },
}


def test_the_usual_words_on_a_tasks_place_are_shown() -> None:
    assert f"```text\n{USUAL_PROMPT}```" in PAGE.read_text("utf-8")


def foreign_table(kind: str) -> list[str]:
    lines = [f"| {kind} | Muster | what differs |", "|---|---|---|"]
    for setting in importing.SETTINGS:
        if setting.kind == kind:
            target = f"`{setting.target}`" if setting.target else "-"
            target += ", left at its default" if setting.aside else ""
            lines.append(f"| `{setting.source}` | {target} | {setting.note} |")
    return lines


TABLES = {kind: foreign_table(kind) for kind in (importing.POOL, importing.CLUSTER, importing.PLANNER)}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_table_as_the_code_makes_it(name: str) -> None:
    table = "\n".join(TABLES[name])
    assert f"{table}\n\n" in PAGE.read_text("utf-8") + "\n", f"the table should be:\n{table}"


def test_every_key_that_is_read_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = AgentKind(program="x", make=CommandAgent, options=("word",))
    read: set[str] = set()
    known = Table.read

    def noting(self: Table, key: str, parse: object, default: object) -> object:
        read.add(re.sub(r"^agents\.(claude|foreign)\b", "agents.mine", self.path(key)))
        return known(self, key, parse, default)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "read", noting)
    load.parse_config(FULL, {**KINDS, "of-another-package": theirs})
    deeper = {
        "task.backoff",
        "agents.mine",
        "agents.mine.limits",
        "agents.mine.options.word",
        "channels.mine",
    }
    tables = deeper | (FULL.keys() - {"agent"})
    listed = {key.path for key in KEYS} | {f"agents.mine.{key.path}" for key in AGENT_KEYS}
    listed |= {f"channels.mine.{key.path}" for key in CHANNEL_KEYS}
    assert read - tables == listed


def test_every_foreign_key_leads_to_a_key_of_ours() -> None:
    ours = {key.path for key in KEYS}
    assert {setting.target for setting in importing.SETTINGS if setting.target} <= ours
    assert all(setting.note or setting.target for setting in importing.SETTINGS), "what becomes of it?"
