"""A plan as epics, features and tasks, with what is below each added up."""

from __future__ import annotations

from muster.cli.output import Screen
from muster.model.durations import duration_text
from muster.model.json_value import Json

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


def exported(name: str, items: list[Json], tasks: list[Json]) -> Json:
    """As `plans.importers.items` reads it."""
    kept = {task["key"]: task for task in tasks}
    return {"plan": name, "items": [_exported(item, kept.get(item["id"], {})) for item in items]}


def _exported(item: Json, task: Json) -> Json:
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
    if item["type"] == "task":
        told |= {
            "description": task["description"],
            "blocked_by": list(task["dependsOn"]),
            "agent_type": task["profile"],
            "tags": list(task["tags"]),
        }
        if task["estimatedS"]:
            told["estimated_hours"] = round(task["estimatedS"] / 3600, 4)
    return told


def _priority(number: int) -> str | None:
    """None for that of a task of which nothing is said."""
    if number == 5:
        return None
    return "P0" if number > 8 else "P1" if number > 5 else "P2"
