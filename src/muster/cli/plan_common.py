"""What the commands about plans share."""

from __future__ import annotations

from muster.cli.context import Context
from muster.cli.output import Screen, clean
from muster.client.api import Api, plan_path
from muster.model.json_value import Json
from muster.model.wording import counted


def paused_line(plan: Json) -> str:
    """Why a plan is paused, and what goes on with it."""
    reason = (
        f"{counted(plan['failures'], 'task')} failed in a row"
        if plan["paused"] == "breaker"
        else "by a person"
    )
    return f"plan {plan['name']}: {reason}; `muster plan resume {plan['name']}` goes on"


def tick_boxes(api: Api, name: str) -> str:
    """Has the boxes of what is completed ticked now; says why some are not, empty where all are."""
    waits: str = api.post(plan_path(name, "tick"), {})["waits"]
    return f"not ticked yet: {clean(waits)}" if waits else ""


def named(context: Context, text: str) -> str:
    """The name of the plan that is meant: also by its file."""
    if text.endswith(".md"):
        source = context.project.source_of(text)
        for plan in context.api.get("/api/v1/plans"):
            if plan["source"] in {source, text}:
                name: str = plan["name"]
                return name
    return text


def progress(plan: Json) -> str:
    """`3 of 5`: what was cancelled or put away is no work any more."""
    counts = plan["counts"]
    wanted = sum(number for status, number in counts.items() if status not in {"CANCELLED", "ARCHIVED"})
    return f"{counts.get('COMPLETED', 0)} of {wanted}"


def tell(plan: Json, screen: Screen) -> None:
    screen.line(f"{clean(plan['name'])}  {progress(plan)}  {screen.counts(plan['counts'])}")
    if plan["paused"]:
        screen.line(f"  {screen.badge('paused')}  {clean(paused_line(plan))}")
