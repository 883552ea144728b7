"""A plan file that was renamed or moved since it was taken in: its plan goes on, and does nothing twice (S19)."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

from muster.cli.context import actor
from muster.cli.output import clean, note
from muster.cli.plan_given import Given
from muster.client.api import Api, plan_path
from muster.config.project import Project
from muster.model.errors import BadInput, BadPlan, Conflict
from muster.model.json_value import Json
from muster.model.states import TaskStatus


class _Likely(NamedTuple):
    """A plan whose file no longer holds it."""

    name: str
    source: str
    common: int
    """How many of its tasks are in the given file."""
    tasks: int


def add_which(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--as", dest="as_plan", metavar="NAME", help="its file was renamed: it is the plan NAME"
    )
    which.add_argument("--new", action="store_true", help="it is no renamed file, whatever it resembles")


def former_source(args: argparse.Namespace, api: Api, project: Project, given: Given) -> str | None:
    """What the plan in this file was known by, where that is another file; None where it is known, or new.

    Asks at a terminal where that cannot be told for sure, and raises Conflict elsewhere.
    """
    plans: list[Json] = api.get("/api/v1/plans")
    source = given.source(project)
    if args.as_plan is not None:
        return _named(args.as_plan, plans, project, source)
    if source is None or args.new or any(plan["source"] == source for plan in plans):
        return None
    keys = {task.key for task in given.document.tasks}
    likely = []
    for plan in plans:
        if plan["source"] is None:
            continue
        kept = [
            t["key"] for t in api.get(plan_path(plan["name"], "tasks")) if t["status"] != TaskStatus.ARCHIVED
        ]
        common = len(keys.intersection(kept))
        if (common or plan["name"] == given.document.name) and not _still_holds(
            project, plan["source"], kept
        ):
            likely.append(_Likely(plan["name"], plan["source"], common, len(kept)))
    if not likely:
        return None
    one = likely[0]
    if len(likely) == 1 and 2 * one.common >= max(len(keys), one.tasks):
        return one.source
    return _asked(args, source, likely)


def follow(args: argparse.Namespace, api: Api, project: Project, given: Given) -> None:
    """As `former_source`; from now on the plan is known by this file."""
    before = former_source(args, api, project, given)
    if before is None:
        return
    (plan,) = (plan["name"] for plan in api.get("/api/v1/plans") if plan["source"] == before)
    source = given.source(project)
    api.post(plan_path(plan, "move"), {"actor": actor(), "source": source})
    note(f"plan {clean(plan)} goes on: its file {clean(before)} is {clean(source or '')} now")


def _named(name: str, plans: list[Json], project: Project, source: str | None) -> str | None:
    """Raises BadInput, and Conflict where that plan still has its file."""
    found: str | None = next((plan["source"] for plan in plans if plan["name"] == name), None)
    if found is None or source is None:
        raise BadInput(f"there is no plan {name!r} with a file; nothing was changed", "muster plan list")
    if found == source:
        return None
    if (project.root / found).exists():
        raise Conflict(
            f"plan {name} still has its file {found}; nothing was changed",
            f"remove that file first, or --new for a plan beside {name}",
        )
    return found


def _still_holds(project: Project, source: str, kept: list[str]) -> bool:
    """Whether the plan's own file is there, with at least half of its tasks."""
    from muster.plans.files import read_plan

    path = project.root / source
    if not path.exists():
        return False
    try:
        keys = {task.key for task in read_plan(path).tasks}
    except BadPlan:
        return True  # being edited, perhaps: whose it was it is
    return 2 * len(keys.intersection(kept)) >= len(kept)


def _asked(args: argparse.Namespace, source: str, likely: list[_Likely]) -> str | None:
    told = [
        f"{one.name}, whose file was {one.source} ({one.common} of its {one.tasks} tasks are in it)"
        for one in likely
    ]
    if len(likely) == 1 and not args.json and sys.stdin.isatty() and sys.stderr.isatty():
        question = f"{source} may be plan {told[0]}. Is it that plan? [y/n] "
        while True:
            print(clean(question), end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline()
            if answer.strip().lower() in {"y", "yes"}:
                return likely[0].source
            if answer.strip().lower() in {"n", "no"}:
                return None
            if not answer:
                break
    raise Conflict(
        f"{source} may be the renamed file of plan {'; or of plan '.join(told)}; nothing was changed",
        f"--as {likely[0].name} if it is; --new if it is another plan",
    )
