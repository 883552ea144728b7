"""What is listed besides tasks, as rows like theirs: plans, and what waits for a person without being a task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from muster.cli.output import paused_line, shell_word
from muster.client.api import path_of, plan_path, task_path
from muster.model import shown
from muster.model.forms import SEEN_EVENT, open_tasks, possible_for_plan
from muster.model.json_value import Json
from muster.model.needs import KINDS, MORE
from muster.model.states import FINAL, HELD

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


def plan_rows(plans: Iterable[Json], newest_event: int) -> list[Json]:
    """`newest_event` is of the same status as the plans."""
    return [
        _row(
            "plan",
            plan["name"],
            "plan",
            paused_line(plan) if plan["paused"] else counts_line(plan["counts"]),
            actions=(*possible_for_plan(plan), "merge"),
            paused=plan["paused"],
        )
        | {"open": open_tasks(plan), SEEN_EVENT: newest_event}
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
    more = [] if needs["complete"] else [_row("more", "and more", "inbox", MORE)]
    return [row for kind in KINDS for row in rows.get(kind, ())] + more


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


def rank(task: Json) -> int:
    """What needs a person, then what is at work, then what waits, then what has ended."""
    if task["needsPerson"]:
        return 0
    if task["status"] in HELD:
        return 1
    return 3 if task["status"] in FINAL else 2


def nearest(row: RowId | None, before: Sequence[RowId], now: Collection[RowId]) -> RowId | None:
    """A row that is there: this one, or else the next of those that stood below it, or above it."""
    if row is None or row in now:
        return row
    at = before.index(row) if row in before else len(before)
    return next((other for other in (*before[at:], *reversed(before[:at])) if other in now), None)


def above(row: RowId | None, order: Sequence[RowId]) -> RowId:
    """The first row, or of tasks the first one that is newer than this."""
    numbers = (other for other in order if isinstance(row, int) and isinstance(other, int) and other > row)
    return order[0] if row is None else next(numbers, order[-1])


def stepped(key: str, order: Sequence[RowId], chosen: RowId | None, page: int) -> RowId | None:
    """The row that the key chooses; `page`: rows that the window has room for."""
    if not order:
        return chosen
    at = order.index(chosen) if chosen in order else 0
    steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pgdn": page, "pgup": -page}
    ends = {"g g": 0, "home": 0, "G": len(order) - 1, "end": len(order) - 1}
    to = ends.get(key, at + steps.get(key, 0))
    return order[max(0, min(to, len(order) - 1))]
