"""A plan as epics, features and tasks, with what is below each added up."""

from __future__ import annotations

import sys

from muster.cli.output import Screen, inert, note, print_json
from muster.model.durations import duration_text
from muster.model.json_value import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from muster.config.settings import Config
    from muster.model.edits import KeptTask

_CELLS = {
    "ITEM": lambda item: "  " * item["depth"] + item["title"],
    "STATE": lambda item: item["status"].replace("_", " "),
    "DONE": lambda item: f"{item['completed']} of {item['tasks']}",
    "TIME": lambda item: duration_text(item["workS"]) if item["workS"] else "-",
    "TOKENS": lambda item: f"{_tokens(item):,}" if item["usage"] else "-",
    "COST": lambda item: "-" if (spent := _microusd(item)) is None else f"${spent / 1e6:.4f}",
}


def show(items: list[Json], screen: Screen) -> None:
    """What has others below it; nothing where the plan has no such item."""
    above = {item["parent"] for item in items}
    depths: dict[str | None, int] = {None: 0}
    rows = []
    for item in items:
        depths.setdefault(item["id"], depths[item["parent"]] + 1)
        if item["id"] in above:
            rows.append({**item, "depth": depths[item["parent"]]})
    if rows:
        screen.table(rows, _CELLS, give="ITEM")
        screen.line()


def _tokens(item: Json) -> int:
    return int(item["usage"]["inputTokens"] + item["usage"]["outputTokens"])


def _microusd(item: Json) -> int | None:
    return item["usage"]["costMicrousd"] if item["usage"] else None


def exported(name: str, items: list[Json], tasks: Iterable[KeptTask]) -> Json:
    """As `plans.importers.items` reads it."""
    kept = {task.key: task for task in tasks}
    return {"plan": name, "items": [_exported(item, kept.get(item["id"])) for item in items]}


def _exported(item: Json, task: KeptTask | None) -> Json:
    told: Json = {
        "id": item["id"],
        "type": item["type"],
        "title": item["title"],
        "parent_id": item["parent"],
        "status": item["status"],
        "percent_complete": item["percent"],
        "priority": _priority(item["priority"]),
        "actual_hours": round(item["workS"] / 3600, 4),
        "tokens": _tokens(item) if item["usage"] else 0,
        "cost_usd": None if (spent := _microusd(item)) is None else spent / 1e6,
    }
    if item["type"] == "task" and task is not None:
        told |= {
            "description": task.description,
            "blocked_by": [] if task.is_group else list(task.depends_on),
            "agent_type": task.profile,
            "tags": list(task.tags),
        }
        if task.estimated_s:
            told["estimated_hours"] = round(task.estimated_s / 3600, 4)
    return told


def _priority(number: int) -> str | None:
    """None for that of a task of which nothing is said."""
    if number == 5:
        return None
    return "P0" if number > 8 else "P1" if number > 5 else "P2"


def export(args: argparse.Namespace, name: str, items: list[Json], tasks: list[Json], config: Config) -> int:
    """As JSON items, or as a plan file."""
    import msgspec

    from muster.model.edits import KeptTask, without_barriers
    from muster.model.errors import BadPlan
    from muster.model.profiles import Chooser
    from muster.plans.render import Usual, render

    kept = msgspec.convert(tasks, list[KeptTask])
    if args.items:
        print_json(exported(name, items, without_barriers(kept)))
        return 0
    usual = Usual(config.default_agent, int(config.task.timeout_s), config.task.retries)
    choose = Chooser(config.profiles).choose
    guessed = {
        task.key: choose(task.title, task.description, f"{task.epic} {task.feature}").profile
        for task in kept
        if task.agent is None
    }
    try:
        rendered = render(name, kept, usual, guessed)
    except BadPlan as error:
        raise BadPlan(
            f"{name} cannot be written as a plan file:\n{error.message}", f"muster plan export {name} --json"
        ) from None
    print(inert(rendered.text) if sys.stdout.isatty() else rendered.text, end="")
    for lost in rendered.lost:
        note(lost)
    return 0
