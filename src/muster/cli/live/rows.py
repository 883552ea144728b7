"""What is listed besides tasks, as rows like theirs: plans, and what waits for a person without being a task."""

from __future__ import annotations

from collections.abc import Iterable

from muster.cli.output import paused_line, shell_word
from muster.client.api import path_of, plan_path, task_path
from muster.model import shown
from muster.model.forms import possible_for_plan
from muster.model.json_value import Json
from muster.model.needs import KINDS

RowId = int | str
"""Of a task its number."""


def row_id(row: Json) -> RowId:
    number: RowId = row["id"]
    return number


def path_to(row: Json, action: str) -> str:
    """Where an action on it is asked for."""
    kind = row.get("kind", "task")
    if kind == "plan":
        return plan_path(row["key"], action)
    return path_of("pools", row["key"], action) if kind == "pool" else task_path(row["id"], action)


def plan_rows(plans: Iterable[Json]) -> list[Json]:
    return [
        _row(
            "plan",
            plan["name"],
            "plan",
            paused_line(plan) if plan["paused"] else counts_line(plan["counts"]),
            actions=tuple(possible_for_plan(plan, settled=False)),
            paused=plan["paused"],
        )
        for plan in plans
    ]


def need_rows(needs: Json) -> list[Json]:
    """Those that are no tasks."""
    rows = {
        "pools": [
            _row("pool", name, "provider", f"{pool['reason']} ({pool['kind']}); see to it", actions=("open",))
            for name, pool in needs["pools"].items()
        ],
        "plans": [_row("budget", plan["name"], "budget", paused_line(plan)) for plan in needs["plans"]],
        "webhooks": [
            _row(
                "webhook",
                str(one["id"]),
                "webhook",
                f"told nothing any more: {one['disabled']}; see to its receiver, then muster webhook resend "
                f"{one['id']}",
            )
            for one in needs["webhooks"]
        ],
        "channels": [
            _row(
                "channel",
                name,
                "channel",
                f"tells you nothing any more: {why}; see to its receiver, then muster notify resend {name}",
            )
            for name, why in needs["channels"].items()
        ],
        "files": [_row("file", file["plan"], "plan file", _file_line(file)) for file in needs["files"]],
    }
    return [row for kind in KINDS for row in rows.get(kind, ())]


def counts_line(counts: dict[str, int]) -> str:
    told = [
        f"{number} {shown.COUNT_WORDS[status]}"
        for status in shown.COUNT_ORDER
        if (number := counts.get(status))
    ]
    return ", ".join(told) or "no tasks"


def _file_line(file: Json) -> str:
    told = [file["problem"]] if file["problem"] else []
    told += [f"{one['key']} {one['kind']}: {one['why']}" for one in file["conflicts"]]
    return "; ".join([*told, f"muster plan sync {shell_word(file['plan'])} --status"])


def _row(
    kind: str, name: str, word: str, why: str, *, actions: tuple[str, ...] = (), paused: object = True
) -> Json:
    """With the fields of a task that lists show."""
    row: Json = {"id": f"{kind} {name}", "kind": kind, "plan": "", "key": name, "title": "", "why": why}
    row |= {"state": "paused" if paused else "running", "word": word, "status": "", "actions": list(actions)}
    row |= {"agent": None, "wantedAgent": None, "epoch": 0, "percent": 0, "step": "", "startedAtMs": None}
    return {**row, "question": "", "wish": "", "needsPerson": kind != "plan"}
